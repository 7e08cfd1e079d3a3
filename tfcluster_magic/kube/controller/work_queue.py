"""A work queue of keys, and the threads that work it off.

A key is queued once and handled by one worker at a time; one that is added meanwhile, or while it
rests, comes again afterwards. Keys belong to shares, such as namespaces, which are served in turn:
one that adds keys all the time delays no other. Nothing is done unless this process leads, a key
that changes all the time does not use up a core, and a turn that fails is reported, tried again
with growing pauses, and holds up no other. Keeps nothing on disk, and never looks at what a turn
decides.
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
        share: whose a key is.
        most: how many keys of one share may be handled at the same time; 0: any number.
    """

    def __init__(self, share: Callable[[K], Hashable] = lambda _key: None, most: int = 0) -> None:
        self._share, self._most = share, most
        self._ready: OrderedDict[Hashable, deque[K]] = OrderedDict()
        """Keys that wait, by their share; the share whose turn is next comes first."""
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._handled: Counter[Hashable] = Counter()
        """How many keys of a share workers have."""
        self._resting: Counter[Hashable] = Counter()
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
                share = self._next_share()
                if share is not _NONE:
                    return self._hand_out(share)
                due = [each[0][0] for each in (self._timers, self._rests) if each]
                self._changed.wait(min(due) - time.monotonic() if due else None)
            return None

    def done(self, key: K, rest: float = 0.0) -> None:
        """The worker is through with it; it does not come again for so many seconds."""
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
        """Hand out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def resting(self, key: K) -> int:
        """How many others do not come again for a while, whatever changes; if of each share that
        has any there were as many as of this key's.
        """
        with self._changed:
            share = self._share(key)
            return (self._resting[share] + 1) * len(self._resting.keys() | {share}) - 1

    def __len__(self) -> int:
        """Keys that wait for a worker."""
        with self._changed:
            return len(self._waiting)

    def _next_share(self) -> Hashable:
        """The share that is next and has fewer keys handled than it may; `_NONE` without one."""
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
            if self._due.get(key) == at:  # else another timer has taken its place
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
"""Workers that one share may have at once: the others are there for who comes next."""
SHARE, LONGEST_REST = 0.05, 0.3
"""What the turns of one key may take of a core while it changes all the time, and the longest pause
in seconds that this asks for: hundreds of pods that start are looked at together, not one by one.
"""
CHANGING, LONGEST_OF_MANY = 50.0, 1.0
"""Turns a second for all keys that change all the time, and the longest pause for that."""


def rest_seconds(used: float, others: int) -> float:
    """Seconds for which a key does not come again, after a turn that used so many of a core, while
    so many others rest (`WorkQueue.resting`).
    """
    of_many = min(LONGEST_OF_MANY, others / CHANGING)
    return max(of_many, min(LONGEST_REST, used * (1 / SHARE - 1)))


class KeyedWorkers(Generic[K]):
    """A queue of keys and its workers.

    Args:
        look: one turn: seconds until the next is due, None when nothing is left to do.
        leads: whether this process may act.
        tell: told of a turn that failed, to log it.
        took: told how many seconds each turn took.
        share: whose a key is; each has its fair part of the workers.
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


# A thread beside the workers, that does something again and again.


class BackgroundThread(abc.ABC):
    """A thread called `name` that runs `_run` until it returns; that looks at `_enough`."""

    def __init__(self, name: str) -> None:
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Do nothing more."""
        self._enough.set()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @abc.abstractmethod
    def _run(self) -> None:
        """What it does."""
