"""A clock that only the test moves."""

from __future__ import annotations


class Clock:
    """A clock that is called for the time, in seconds, and stands still until `now` is set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
