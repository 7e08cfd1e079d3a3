"""The launch queue of each namespace: which runs wait to be admitted, and in which order.

First in, first out: by the time at which a run was created, and within one second in the order in
which the operator saw them. Only the first run of a namespace may be admitted; namespaces do not
wait for each other. Snapshots hold the queues; nothing else decides on their order. `LaunchPace`
says how fast those of one namespace may begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ...kube.api.client import Object
from ...spec import Phase
from ..cluster_state import Key


@dataclass(frozen=True)
class QueuedRun:
    """A run that waits to be admitted."""

    key: Key
    uid: str
    since: tuple[str, int]
    """When it was created, and how many runs were seen before it."""


class LaunchQueue:
    """Gives every waiting run its place; the caller takes care that one thread at a time asks."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._count = 0

    def entry(self, head: Object) -> QueuedRun:
        """The waiting run of this metadata, with its place among those of one second."""
        if head["uid"] not in self._seen:
            self._count += 1
            self._seen[head["uid"]] = self._count
        since = head["creationTimestamp"], self._seen[head["uid"]]
        return QueuedRun((head["namespace"], head["name"]), head["uid"], since)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all runs but these."""
        for uid in self._seen.keys() - set(uids):
            del self._seen[uid]


def is_waiting_run(found: Object) -> bool:
    """Whether a record says that its run waits: it did not begin, and nobody has ended it.

    Whether it was admitted already, which the record may not say yet, is the caller's question.
    """
    if phase_of(found) != Phase.QUEUED.value or found["metadata"].get("deletionTimestamp"):
        return False
    return not (found.get("spec") or {}).get("stop")


def in_order(waiting: Iterable[QueuedRun]) -> list[QueuedRun]:
    """The runs that wait in one namespace, the next one first."""
    return sorted(waiting, key=lambda run: run.since)


def runs_ahead(queue: Sequence[QueuedRun], uid: str) -> int:
    """How many runs are before this one."""
    return next((n for n, each in enumerate(queue) if each.uid == uid), 0)


def phase_of(found: Object) -> str:
    """The phase of a run; Queued before the operator wrote any."""
    return str((found.get("status") or {}).get("phase", Phase.QUEUED.value))


# How fast the runs of one namespace may begin.
# Each costs the API server a dozen writes, its controllers as many, and the same again when it is
# deleted: somebody who launches and deletes all the time would take most of what others need.

AT_ONCE = 30
"""Runs of one namespace that may begin at once, after a while without any."""
EVERY = 1.0
"""Seconds after which one more may."""
NEARLY = 6
"""As long as fewer than so many may begin at once, the pace is what the queue waits for."""


class LaunchPace:
    """When the next run of a namespace may begin; `clock` counts seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid: dict[str, float] = {}
        """By namespace: the time at which what it used is made up for."""

    def is_due(self, namespace: str) -> bool:
        """Whether one may begin now."""
        now = self._clock()
        return self._paid.get(namespace, now) - now <= (AT_ONCE - 1) * EVERY

    def is_holding(self, namespace: str) -> bool:
        """Whether the queue of a namespace moves no faster than this, also in the moment in which
        the next one may begin.
        """
        now = self._clock()
        return self._paid.get(namespace, now) - now > (AT_ONCE - NEARLY) * EVERY

    def note(self, namespace: str) -> None:
        """One begins now; the caller takes care that one thread at a time says so."""
        now = self._clock()
        self._paid = {each: at for each, at in self._paid.items() if at > now}
        self._paid[namespace] = self._paid.get(namespace, now) + EVERY
