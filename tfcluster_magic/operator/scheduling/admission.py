"""Admission: which runs may begin, and which can never run.

One run is admitted at a time, and its resources are reserved until its record shows them, so that
two launches never share the last free resources. A run that can never begin is refused with every
problem at once. A waiting run gets the reason why it waits and its place in the launch queue. A
brief change of the published options does not cause the refusal of a waiting run. This module
writes nothing, and the decision on one run does not wait for the API requests of another run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ...errors import Problem
from ...kube.api.resource_amounts import CPU, format_amount, format_amounts, holders
from ...kube.objects.policy import uses_gangs
from ...launch_checks.capacity_check import DemandByType, Shortage, shortages
from ...launch_checks.kubernetes import LaunchFacts, launch_problems, task_demands
from ...launch_checks.policy_check import names_secrets
from ...spec import Message, Spec, TFCluster
from ..cluster_state import ClusterState
from .launch_queue import AT_ONCE, LaunchPace, QueuedRun, runs_ahead
from .snapshot import Snapshotter

PATIENCE = 600.0
"""Seconds for which a waiting run stays Queued although, according to the published options, it can
never start. The options may be wrong for a while, because a restarting node or device plugin
reports no resources.
"""


@dataclass(frozen=True)
class Admitted:
    """The run may begin; its resources are reserved."""


@dataclass(frozen=True)
class Waiting:
    """The run must wait: `sentence` is the reason, `place` its place in the queue (1 is next)."""

    sentence: Message
    place: int = 1
    is_coarse: bool = False
    """Whether `place` is an upper bound."""


@dataclass(frozen=True)
class Held:
    """The run waits for other runs, and enters the queue when they are done."""


@dataclass(frozen=True)
class Refused:
    """The run can never begin; `problems` has every problem."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class LeftToGangScheduler:
    """The tasks may be created; the run begins when a scheduler has room for all of them."""


Verdict = Admitted | Waiting | Held | Refused | LeftToGangScheduler
BudgetCheck = Callable[[TFCluster, Callable[[TFCluster], float]], Sequence[Problem] | None]
"""Returns the reasons why a budget does not allow a run; None if unknown. The second argument
returns the run's CPU cores.
"""


class Admission:
    """Decides which queued runs may begin, must wait, or are refused.

    Args:
        snapshotter: the current runs and nodes, and the reservations of admitted runs.
        cluster_state: reads the quotas from the API just before a run is admitted.
        enforced: whether NetworkPolicies are enforced; None if unknown.
        spent: returns the reasons why the user's budget does not allow the run; None if unknown.
    """

    def __init__(
        self,
        snapshotter: Snapshotter,
        cluster_state: ClusterState,
        enforced: Callable[[], bool | None],
        spent: BudgetCheck = lambda _run, _cores: (),
    ) -> None:
        self._spent = spent
        self._snapshotter, self._cluster_state = snapshotter, cluster_state
        self._enforced = enforced
        self._lock, self.pace = threading.Lock(), LaunchPace()
        self._refusals: dict[str, tuple[LaunchFacts, tuple[Problem, ...]]] = {}
        self._new: dict[str, float] = {}
        """For each new run that was never found possible: the time at which the run was seen first.
        """
        self._doubted: dict[str, float] = {}
        """For each run that was found impossible: the time at which this was found first."""

    def decide(self, cluster: TFCluster) -> Verdict:
        """Return whether this run may begin now.

        Raises:
            ApiError: the quotas could not be read; ask again.
        """
        uid = cluster.metadata.uid
        if uid in self._snapshotter.admitted:
            return self._granted(cluster)
        if not cluster.status.message:
            self._new.setdefault(uid, time.monotonic())
        if not self._snapshotter.settled:
            return Waiting(Message("OperatorLooksAround"))
        if command := self._cluster_state.opt_in_command(cluster.metadata.owner):
            closed = {"namespace": cluster.metadata.owner, "command": command}
            return Waiting(Message("NamespaceClosed", closed))
        spent = self._spent(cluster, self._cores)
        if spent is None:
            return Waiting(Message("OperatorCountsHours"))
        if spent:
            return Refused(tuple(spent))
        if never := self._never(cluster):
            return self._doubt(cluster, never)
        self._new.pop(uid, None)
        self._doubted.pop(uid, None)
        if self._together(cluster) and not self._snapshotter.pod_groups.available:
            return Waiting(Message("VolcanoMissing"))
        if self._enforced() is None and self._snapshotter.policy.require_network_policy:
            return Waiting(Message("PolicyCheckPending"))
        queue = self._queue(cluster.metadata.owner, uid)
        if place := runs_ahead(queue, uid):
            if self.pace.is_holding(cluster.metadata.owner):
                return _held_by_pace(place + 1)
            told = Message("TurnAfter", {"name": queue[place - 1].key[1]})
            return Waiting(told, place + 1)
        return self._first(cluster)

    def decide_held(self, cluster: TFCluster) -> Verdict:
        """Return Held for a run that waits for other runs. A new run that can never begin is
        refused at once, not only when the other runs are done.
        """
        is_judged = not cluster.status.message and self._snapshotter.settled
        never = self._never(cluster) if is_judged else ()
        return Refused(never) if never else Held()

    def why_not_changed(self, namespace: str, own: Spec, changed: Spec) -> Message | None:
        """Return the reason why a run with the spec `changed` would be refused or have to wait for
        resources, while a run with the spec `own` would not. Return None if there is no such
        difference.
        """
        if not self._snapshotter.settled:
            return Message("OperatorLooksAround")
        offer = replace(self._snapshotter.published(namespace), enforced=self._enforced())
        known = [each.field for each in launch_problems(own, offer)]
        if new := [each for each in launch_problems(changed, offer) if each.field not in known]:
            return Message("Clauses", {"parts": [each.message for each in new]})
        there = self._snapshotter.offer(namespace)
        asked = task_demands(changed, there)
        if (short := _short(asked, there)) and not _short(task_demands(own, there), there):
            return _waits_for(short, asked, there)
        return None

    def _cores(self, cluster: TFCluster) -> float:
        """Return the CPU cores that the tasks request, including defaults from the API server."""
        asked = task_demands(cluster.spec, self._snapshotter.published(cluster.metadata.owner))
        return sum(count * demand.requests.get(CPU, 0.0) for count, demand in asked.values())

    def _doubt(self, cluster: TFCluster, never: tuple[Problem, ...]) -> Verdict:
        """Refuse a run that can never start. If an earlier check found that the run could start,
        let it wait for `PATIENCE` seconds before it is refused, because the published options may
        be wrong for a while.
        """
        namespace, uid = cluster.metadata.owner, cluster.metadata.uid
        since = self._doubted.setdefault(uid, time.monotonic())
        if uid in self._new or time.monotonic() >= since + PATIENCE:
            self._new.pop(uid, None)
            del self._doubted[uid]
            return Refused(never)
        told = Message("EarlierOffer", {"problems": [each.message for each in never]})
        return Waiting(told, runs_ahead(self._queue(namespace, uid), uid) + 1)

    def _queue(self, namespace: str, uid: str) -> Sequence[QueuedRun]:
        """Return the waiting runs of a namespace, including the run `uid`, which may be newer than
        the snapshot.
        """
        queue = self._snapshotter.current().queues.get(namespace, ())
        known = any(each.uid == uid for each in queue)
        return queue if known else self._snapshotter.queue(namespace)

    def _first(self, cluster: TFCluster) -> Verdict:
        namespace = cluster.metadata.owner
        if waits := self._short(cluster, self._snapshotter.offer(namespace)):
            return waits
        if not self.pace.is_due(namespace):
            return Waiting(Message("LaunchPace", {"count": AT_ONCE}))
        # Cached quotas may be outdated, so read them from the API. Count the reservations before
        # the quotas are read. Then a pod that is created between the two steps counts twice, as
        # reserved and in the quota, but is never missed. No other run of the namespace is admitted
        # between the two steps, because this run is first in the queue.
        counted = self._snapshotter.reservations(namespace)
        quotas = self._cluster_state.quotas_now(namespace)
        with self._lock:
            if waits := self._short(cluster, self._snapshotter.offer(namespace, quotas, counted)):
                return waits
            self._snapshotter.admit((namespace, cluster.metadata.name), cluster.metadata.uid)
            self.pace.note(namespace)
        return self._granted(cluster)

    def _granted(self, cluster: TFCluster) -> Verdict:
        """Return Admitted, or LeftToGangScheduler if Volcano starts the tasks."""
        return LeftToGangScheduler() if self._together(cluster) else Admitted()

    def _together(self, cluster: TFCluster) -> bool:
        return uses_gangs(self._snapshotter.policy_of(cluster.metadata.owner))

    def _short(self, cluster: TFCluster, there: LaunchFacts) -> Verdict | None:
        """Return the verdict Waiting if resources are missing; None if the run fits. If another
        thread has just admitted this run, return the verdict of the admission without a check,
        because a check would count the run's own reservation as used by others.
        """
        if cluster.metadata.uid in self._snapshotter.admitted:
            return self._granted(cluster)
        asked = task_demands(cluster.spec, there)
        short = _short(asked, there)
        return Waiting(_waits_for(short, asked, there)) if short else None

    def _never(self, cluster: TFCluster) -> tuple[Problem, ...]:
        """Return the problems for which the run can never start. The problems are recomputed only
        when the published options change.
        """
        namespace, uid = cluster.metadata.owner, cluster.metadata.uid
        offer = replace(self._snapshotter.published(namespace), enforced=self._enforced())
        known = self._refusals.get(uid)
        if known is None or known[0] != offer:
            self._forget_others()
            found = launch_problems(cluster.spec, self._with_secrets(offer, cluster))
            known = self._refusals[uid] = offer, tuple(found)
        return known[1]

    def _with_secrets(self, offer: LaunchFacts, cluster: TFCluster) -> LaunchFacts:
        """Return the published options `offer`. If this run names secrets, the names of the secrets
        for tasks are added.
        """
        if not names_secrets(cluster.spec):
            return offer
        secrets = self._cluster_state.secrets(cluster.metadata.owner)
        return replace(offer, names=replace(offer.names, secrets=secrets, asked_for_secrets=True))

    def _forget_others(self) -> None:
        """Forget runs that no longer wait."""
        snapshot = self._snapshotter.current()
        waiting = {each.uid for every in snapshot.queues.values() for each in every}
        self._refusals = {u: k for u, k in list(self._refusals.items()) if u in waiting}
        for kept in (self._new, self._doubted):
            for uid, since in list(kept.items()):
                # A run that is newer than the snapshot is missing in it, but may be waiting.
                if since < snapshot.at and uid not in waiting:
                    kept.pop(uid, None)


def _held_by_pace(place: int) -> Waiting:
    """Return the verdict Waiting for a run that the launch pace delays, with a rounded place.

    Each second, all waiting runs move up by one place, and the status of a run is written when its
    place changes. So distant places are rounded to tens or hundreds, which change less often.
    """
    step = 10 ** (len(str(place)) - 1)
    told = -(-place // step) * step
    return Waiting(Message("LaunchPace", {"count": AT_ONCE}), told, is_coarse=step > 1)


def _short(asked: DemandByType, there: LaunchFacts) -> list[Shortage]:
    place = there.place
    if not there.policy.nodes_are_fixed or uses_gangs(there.policy):
        # Ignore which resources of nodes are free, because nodes may be added, or Volcano finds
        # nodes itself.
        place = replace(place, nodes=None)
    return shortages(asked, place)


def _waits_for(short: Sequence[Shortage], asked: DemandByType, there: LaunchFacts) -> Message:
    """Return a message with the missing resources and the runs of the namespace that use them."""
    told: list[str | Message] = []
    for each in short:
        more = format_amount(each.key, each.asked - each.free) if each.key else ""
        if not each.key:
            largest = max((d.requests for _n, d in asked.values()), key=lambda r: r.get("cpu", 0.0))
            told.append(Message("NodesWithRoom", {"amount": format_amounts(largest)}))
        elif each.quota:
            told.append(
                Message("MoreInQuota", {"more": more, "quota": each.quota, "key": each.key})
            )
        else:
            told.append(Message("MoreOnNodes", {"more": more}))
    held = holders(there.place.held)
    by = Message("HeldBy", {"holders": list(held)}) if held else ""
    return Message("Missing", {"parts": told, "held": by})
