"""How often all runs together may write a status that nobody waits for. Decides nothing else.

An API server takes milliseconds for each, the more the larger the run, at the very time at which it
has pods to make: eleven writes for each of 50 users who launch together were a fifth of its work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

EACH, TASK = 0.2, 0.001
"""Seconds of the pace that a write takes, and each task of its run: five small runs a second, or
one of 800 tasks.
"""
BURST, LONGEST = 1.0, 5.0
"""Seconds that may be used at once after a rest, and that a write waits at the longest."""


class Pace:
    """One pace for all runs; `clock` counts seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() - BURST
        self._lock = threading.Lock()

    def slot(self, tasks: int) -> float:
        """The moment from which a run of so many tasks may be written once; it is this run's."""
        with self._lock:
            now = self._clock()
            slot = min(max(self._next, now - BURST), now + LONGEST)
            self._next = slot + EACH + TASK * tasks
            return slot
