"""What is to be looked at: keys in the order in which they came, each once, each by one worker.

Promises that a key which is added while a worker has it, or while it rests, comes again afterwards,
that two workers never have the same one, and that a timer wakes it when nothing else does. Keeps
nothing on disk.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Work(Generic[K]):
    """A queue of keys with timers."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._timers: list[tuple[float, int, K]] = []
        self._rests: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def add(self, key: K) -> None:
        """Something changed: look at it as soon as a worker is free."""
        with self._changed:
            self._add(key)

    def add_in(self, key: K, seconds: float) -> None:
        """Look at it in so many seconds at the latest; a timer that rings before that is enough."""
        with self._changed:
            at = time.monotonic() + max(0.0, seconds)
            if self._due.get(key, at + 1) <= at:
                return
            self._due[key] = at
            self._count += 1
            heapq.heappush(self._timers, (at, self._count, key))
            self._changed.notify()

    def get(self) -> K | None:
        """The next key, which is this worker's until `done`; None when it is closed."""
        with self._changed:
            while not self._closed:
                self._ring()
                if self._ready:
                    key = self._ready.popleft()
                    self._waiting.discard(key)
                    self._busy.add(key)
                    return key
                due = [each[0][0] for each in (self._timers, self._rests) if each]
                self._changed.wait(min(due) - time.monotonic() if due else None)
            return None

    def done(self, key: K, rest: float = 0.0) -> None:
        """The worker is through with it; it does not come again for so many seconds."""
        with self._changed:
            if rest <= 0:
                self._release(key)
                return
            self._count += 1
            heapq.heappush(self._rests, (time.monotonic() + rest, self._count, key))
            self._changed.notify()

    def close(self) -> None:
        """Hand out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def resting(self) -> int:
        """Keys that do not come again for a while, whatever changes."""
        return len(self._rests)

    def __len__(self) -> int:
        """Keys that wait for a worker."""
        with self._changed:
            return len(self._ready)

    def _add(self, key: K) -> None:
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._changed.notify()

    def _release(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._add(key)

    def _ring(self) -> None:
        now = time.monotonic()
        while self._rests and self._rests[0][0] <= now:
            self._release(heapq.heappop(self._rests)[2])
        while self._timers and self._timers[0][0] <= now:
            at, _count, key = heapq.heappop(self._timers)
            if self._due.get(key) == at:  # else another timer has taken its place
                del self._due[key]
                self._add(key)
