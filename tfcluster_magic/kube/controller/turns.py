"""The threads that take turns: what changes is queued by its key, and a small pool looks at it.

Promises one turn at a time for each key, that nothing is done unless this process leads, that a key
which changes all the time does not use up a core, and that a turn which fails is told, taken again
with growing pauses, and holds up no other. It never looks at what a turn decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..api.informer import pause
from .work_queue import Work

K = TypeVar("K", bound=Hashable)
WORKERS = 8
SHARE, LONGEST_REST = 0.05, 0.3
"""What the turns of one key may take of a core while it changes all the time, and the longest pause
in seconds that this asks for: hundreds of pods that start are looked at together, not one by one.
"""
CHANGING, LONGEST_OF_MANY = 50.0, 1.0
"""Turns a second for all keys that change all the time, and the longest pause for that."""


def rest(used: float, others: int) -> float:
    """Seconds for which a key does not come again, after a turn that used so many of a core, while
    so many others rest.
    """
    of_many = min(LONGEST_OF_MANY, others / CHANGING)
    return max(of_many, min(LONGEST_REST, used * (1 / SHARE - 1)))


class Turns(Generic[K]):
    """A queue of keys and its workers.

    Args:
        look: one turn: seconds until the next is due, None when nothing is left to do.
        leads: whether this process may act.
        tell: told of a turn that failed, to log it.
        took: told how many seconds each turn took.
    """

    def __init__(
        self,
        look: Callable[[K], float | None],
        leads: Callable[[], bool],
        tell: Callable[[K, Exception], None],
        took: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self.work: Work[K] = Work()
        self._look, self._leads, self._tell, self._took = look, leads, tell, took
        self._failures: dict[K, int] = {}
        self.taken = self.failed = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"turns {n}", daemon=True)
            for n in range(WORKERS)
        ]

    def start(self) -> None:
        """Begin to take turns."""
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Take no more; those under way have so many seconds to end."""
        self.work.close()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether no worker has died."""
        return all(each.is_alive() for each in self._threads)

    def _run(self) -> None:
        while (key := self.work.get()) is not None:
            began = time.thread_time()
            try:
                if self._leads():
                    self._take(key)
            finally:
                used = time.thread_time() - began
                self.work.done(key, rest(used, self.work.resting))

    def _take(self, key: K) -> None:
        self.taken += 1
        began = time.monotonic()
        try:
            rest = self._look(key)
        except Exception as error:  # noqa: BLE001 - the other keys need this thread
            self.failed += 1
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._tell(key, error)
            rest = pause(failures)
        else:
            self._failures.pop(key, None)
        self._took(time.monotonic() - began)
        if rest is not None:
            self.work.add_in(key, rest)
