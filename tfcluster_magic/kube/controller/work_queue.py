"""A work queue of keys, and its worker threads.

A key is queued once and handled by one worker at a time. A key that is added while it is handled is
queued once more afterwards. Each key belongs to a group of keys, called its share, such as the keys
of one namespace. The shares are served in turn, so that a busy share delays no other. Workers act
only while this process leads. A key that changes all the time is slowed down. A failed turn is
reported, retried with growing pauses, and delays no other key. Nothing is stored on disk.
"""

from __future__ import annotations

import abc
import heapq
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..api.informer import backoff_seconds

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A queue of keys with timers.

    Args:
        share: returns the share of a key.
        most: maximum number of keys of one share that workers handle at the same time; 0 means no
            limit.
    """

    def __init__(self, share: Callable[[K], Hashable] = lambda _key: None, most: int = 0) -> None:
        self._share, self._most = share, most
        self._ready: OrderedDict[Hashable, deque[K]] = OrderedDict()
        """Waiting keys by share; the share to serve next comes first."""
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._handled: Counter[Hashable] = Counter()
        """The number of keys of a share that workers are handling."""
        self._resting: Counter[Hashable] = Counter()
        self._again: set[K] = set()
        self._timers: list[tuple[float, int, K]] = []
        self._rests: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def add(self, key: K) -> None:
        """Queue a key; a worker handles it as soon as one is free."""
        with self._changed:
            self._add(key)

    def add_in(self, key: K, seconds: float) -> None:
        """Queue a key after a delay in seconds, unless a timer for the key ends earlier."""
        with self._changed:
            at = time.monotonic() + max(0.0, seconds)
            if self._due.get(key, at + 1) <= at:
                return
            self._due[key] = at
            self._count += 1
            heapq.heappush(self._timers, (at, self._count, key))
            self._changed.notify()

    def get(self) -> K | None:
        """Return the next key as soon as there is one; return None when the queue is closed. The
        key belongs to this worker until `done`.
        """
        with self._changed:
            while not self._closed:
                self._ring()
                share = self._next_share()
                if share is not _NONE:
                    return self._hand_out(share)
                due = [each[0][0] for each in (self._timers, self._rests) if each]
                self._changed.wait(min(due) - time.monotonic() if due else None)
            return None

    def done(self, key: K, rest: float = 0.0) -> None:
        """Release a key; it is not handed out again for `rest` seconds."""
        with self._changed:
            share = self._share(key)
            _count_down(self._handled, share)
            if rest <= 0:
                self._release(key)
                self._changed.notify()
                return
            self._resting[share] += 1
            self._count += 1
            heapq.heappush(self._rests, (time.monotonic() + rest, self._count, key))
            self._changed.notify()

    def close(self) -> None:
        """Hand out no more keys."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def resting(self, key: K) -> int:
        """Estimate how many other keys rest, that is, wait after a turn before they may be handled
        again. The estimate assumes that every share with resting keys has as many of them as the
        share of this key, in which this key counts too.
        """
        with self._changed:
            share = self._share(key)
            return (self._resting[share] + 1) * len(self._resting.keys() | {share}) - 1

    def __len__(self) -> int:
        """Return how many keys wait for a worker."""
        with self._changed:
            return len(self._waiting)

    def _next_share(self) -> Hashable:
        """Return the next share that may have one more of its keys handled, or `_NONE`."""
        for share in self._ready:
            if not self._most or self._handled[share] < self._most:
                return share
        return _NONE

    def _hand_out(self, share: Hashable) -> K:
        keys = self._ready[share]
        key = keys.popleft()
        if keys:
            self._ready.move_to_end(share)
        else:
            del self._ready[share]
        self._waiting.discard(key)
        self._busy.add(key)
        self._handled[share] += 1
        return key

    def _add(self, key: K) -> None:
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.setdefault(self._share(key), deque()).append(key)
            self._changed.notify()

    def _release(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._add(key)

    def _ring(self) -> None:
        now = time.monotonic()
        while self._rests and self._rests[0][0] <= now:
            key = heapq.heappop(self._rests)[2]
            _count_down(self._resting, self._share(key))
            self._release(key)
        while self._timers and self._timers[0][0] <= now:
            at, _count, key = heapq.heappop(self._timers)
            if self._due.get(key) == at:  # otherwise another timer has replaced this one
                del self._due[key]
                self._add(key)


_NONE = object()


def _count_down(counted: Counter[Hashable], share: Hashable) -> None:
    counted[share] -= 1
    if counted[share] <= 0:
        del counted[share]


# The workers of a queue.

WORKERS = 8
MOST_OF_ONE = WORKERS - 2
"""Maximum workers for one share at a time; the others are for other shares."""
SHARE, LONGEST_REST = 0.05, 0.3
"""A pair that limits the turns of one constantly changing key. The turns take at most the fraction
SHARE of a core. To keep to that, the key waits between two turns, but never longer than
LONGEST_REST seconds. While a run's hundreds of pods start, one turn then handles many changes.
"""
CHANGING, LONGEST_OF_MANY = 50.0, 1.0
"""A pair that limits the turns of all constantly changing keys together. They take at most CHANGING
turns per second. To keep to that, each key waits between two of its turns, but never longer than
LONGEST_OF_MANY seconds.
"""


def rest_seconds(used: float, others: int) -> float:
    """Return the pause of a key after a turn that took `used` seconds of CPU time. `others` is
    the number of other resting keys (`WorkQueue.resting`).
    """
    of_many = min(LONGEST_OF_MANY, others / CHANGING)
    return max(of_many, min(LONGEST_REST, used * (1 / SHARE - 1)))


class KeyedWorkers(Generic[K]):
    """A queue of keys with its workers.

    Args:
        look: takes one turn, that is, handles a key once; returns the seconds until the key's next
            turn, or None if nothing is left to do.
        leads: whether this process may act.
        tell: called with each failed turn, to log it.
        took: called with the duration of each turn in seconds.
        share: returns the share of a key; the workers serve all shares fairly.
    """

    def __init__(
        self,
        look: Callable[[K], float | None],
        leads: Callable[[], bool],
        tell: Callable[[K, Exception], None],
        took: Callable[[float], None] = lambda _seconds: None,
        share: Callable[[K], Hashable] | None = None,
    ) -> None:
        self.work: WorkQueue[K] = WorkQueue() if share is None else WorkQueue(share, MOST_OF_ONE)
        self._look, self._leads, self._tell, self._took = look, leads, tell, took
        self._failures: dict[K, int] = {}
        self.taken = self.failed = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"turns {n}", daemon=True)
            for n in range(WORKERS)
        ]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Take no more turns; wait up to this many seconds for the turns in progress."""
        self.work.close()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether all workers are alive."""
        return all(each.is_alive() for each in self._threads)

    def _run(self) -> None:
        while (key := self.work.get()) is not None:
            began = time.thread_time()
            try:
                if self._leads():
                    self._take(key)
            finally:
                used = time.thread_time() - began
                self.work.done(key, rest_seconds(used, self.work.resting(key)))

    def _take(self, key: K) -> None:
        self.taken += 1
        began = time.monotonic()
        try:
            rest = self._look(key)
        except Exception as error:  # noqa: BLE001 - the other keys need this thread
            self.failed += 1
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._tell(key, error)
            rest = backoff_seconds(failures)
        else:
            self._failures.pop(key, None)
        self._took(time.monotonic() - began)
        if rest is not None:
            self.work.add_in(key, rest)


class BackgroundThread(abc.ABC):
    """A named thread that runs `_run`, which returns soon after `_enough` is set."""

    def __init__(self, name: str) -> None:
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._enough.set()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @abc.abstractmethod
    def _run(self) -> None:
        """Do the work of the thread."""
