"""Slows down who guesses passwords: at most so many tries for a key within a window of time.

It promises bounded memory, whatever names and addresses are tried, and that a try counts from its
beginning: a hundred at the same moment are a hundred. It counts in this process alone; a restart of
the hub forgets. It knows neither passwords nor accounts.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

KEYS = 10_000
"""Keys that are remembered; the one tried longest ago goes first."""


class Throttle:
    """Tries of keys: accounts, or addresses.

    Args:
        tries: how many are allowed within the window.
        window: in seconds.
        clock: seconds, never backwards.
    """

    def __init__(
        self, tries: int, window: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tries = tries
        self.window = window
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until the next try of this key is allowed, 0 for now."""
        times = self._times.get(key)
        if times is None or len(times) < self.tries:
            return 0.0
        return max(0.0, times[0] + self.window - self._clock())

    def begin(self, key: str) -> None:
        """Count a try."""
        times = self._times.setdefault(key, deque(maxlen=self.tries))
        times.append(self._clock())
        self._times.move_to_end(key)
        if len(self._times) > KEYS:
            self._times.popitem(last=False)

    def forgive(self, key: str) -> None:
        """Take one try back: it was no guess."""
        if times := self._times.get(key):
            times.pop()

    def forget(self, key: str) -> None:
        """Take all of them back: the password is known there."""
        self._times.pop(key, None)
