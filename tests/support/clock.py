"""A clock that only the test moves."""

from __future__ import annotations


class Clock:
    """A callable that returns the time in seconds, like `time.time`, and stands still until `now`
    is set.
    """

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
