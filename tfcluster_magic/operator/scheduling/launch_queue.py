"""The launch queue of each namespace: which runs wait to be admitted, and in which order.

The queue is first in, first out: by creation time, and within one second by the order in which the
operator saw the runs. A run that waits for other runs enters the queue when the last of these runs
is done. Only the first run of a namespace may be admitted; namespaces do not wait for each other.
`LaunchPace` limits how fast the runs of one namespace begin.
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
    """The time at which the run entered the queue, and the order in which the operator saw it."""


class LaunchQueue:
    """Assigns each waiting run its place; not thread-safe."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._count = 0

    def entry(self, found: Object) -> QueuedRun:
        """Return the queue entry for this run."""
        head = found["metadata"]
        if head["uid"] not in self._seen:
            self._count += 1
            self._seen[head["uid"]] = self._count
        awaited = (found.get("status") or {}).get("awaited") or ()
        # Times are cut to whole seconds, because creation times have no fractions.
        done = (f"{each['doneTime'][:19]}Z" for each in awaited if each.get("doneTime"))
        since = max([head["creationTimestamp"], *done]), self._seen[head["uid"]]
        return QueuedRun((head["namespace"], head["name"]), head["uid"], since)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all runs except `uids`."""
        for uid in self._seen.keys() - set(uids):
            del self._seen[uid]


def is_waiting_run(found: Object) -> bool:
    """Return whether a run waits in the launch queue according to its record: it has not begun, is
    not stopped or deleted, and waits for no other run. The caller must also check that the run was
    not admitted since its record was written.
    """
    if phase_of(found) != Phase.QUEUED.value or found["metadata"].get("deletionTimestamp"):
        return False
    return not (found.get("spec") or {}).get("stop") and not awaited_names(found)


def awaited_names(found: Object) -> list[str]:
    """Return the names of the runs for which a queued run still waits, from its record."""
    if phase_of(found) != Phase.QUEUED.value:
        return []
    awaited = (found.get("status") or {}).get("awaited") or ()
    done = {each["run"] for each in awaited if each.get("doneTime")}
    after = (found.get("spec") or {}).get("after") or ()
    return [each["run"] for each in after if each["run"] not in done]


def in_order(waiting: Iterable[QueuedRun]) -> list[QueuedRun]:
    """Return the waiting runs of one namespace, the next one first."""
    return sorted(waiting, key=lambda run: run.since)


def runs_ahead(queue: Sequence[QueuedRun], uid: str) -> int:
    """Return the number of runs before the run `uid` in the queue."""
    return next((n for n, each in enumerate(queue) if each.uid == uid), 0)


def phase_of(found: Object) -> str:
    """Return the phase of a run; Queued before the operator has written a status."""
    return str((found.get("status") or {}).get("phase", Phase.QUEUED.value))


# The pace at which the runs of one namespace may begin. Each run costs a dozen writes by the
# operator, as many by Kubernetes' controllers, and as many again when the run is deleted. A user
# who launches and deletes all the time would take most of the API server's capacity.

AT_ONCE = 30
"""Maximum number of runs of one namespace that may begin at once after a pause."""
EVERY = 1.0
"""Seconds between the starts of two further runs of a namespace, after `AT_ONCE` runs have begun.
"""
NEARLY = 6
"""The pace counts as delaying the queue (`is_holding`) while fewer than this number of runs may
begin at once.
"""


class LaunchPace:
    """A token bucket for the launches of each namespace; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid: dict[str, float] = {}
        """The time at which all used tokens of a namespace will be refilled, by namespace."""

    def is_due(self, namespace: str) -> bool:
        """Return whether one more run may begin now."""
        now = self._clock()
        return self._paid.get(namespace, now) - now <= (AT_ONCE - 1) * EVERY

    def is_holding(self, namespace: str) -> bool:
        """Return whether the pace delays the queue of a namespace. While runs wait because of the
        pace, the result is true all the time, even at moments at which one more run may begin.
        """
        now = self._clock()
        return self._paid.get(namespace, now) - now > (AT_ONCE - NEARLY) * EVERY

    def note(self, namespace: str) -> None:
        """Record that a run begins now; not thread-safe."""
        now = self._clock()
        self._paid = {each: at for each, at in self._paid.items() if at > now}
        self._paid[namespace] = self._paid.get(namespace, now) + EVERY
