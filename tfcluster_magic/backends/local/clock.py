"""The time by which a supervisor lives: epoch seconds that go on evenly when the clock is set.

Promises that what should take so many seconds takes so many, and that a machine that slept has not
stood still. `from_wall` brings over a time that a task told by the machine's clock.
"""

from __future__ import annotations

import time

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_EPOCH = time.time() - time.clock_gettime(_STEADY)
_JUMP = 1.0
"""Seconds of difference that are a jump, and not the time between two looks."""


def now() -> float:
    """Epoch seconds, as the machine's clock had them when this process began."""
    return _EPOCH + time.clock_gettime(_STEADY)


def from_wall(at: float) -> float:
    """A moment of the machine's clock, told just now, as a moment of ours."""
    jumped = now() - time.time()
    return at + jumped if abs(jumped) > _JUMP else at
