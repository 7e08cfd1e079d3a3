"""Admission: which runs may begin, and which can never run.

One run is admitted at a time, and its resources are reserved until its record shows them, so that
two launches never share the last free resources. A run that can never begin is refused with every
problem at once. A waiting run gets the reason why it waits and its place in the launch queue. A
brief change of the published options does not refuse it. This module writes nothing, and no run
waits for another run's API requests.
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
from ...spec import Message, TFCluster
from ..cluster_state import ClusterState
from .launch_queue import AT_ONCE, LaunchPace, QueuedRun, runs_ahead
from .snapshot import Snapshotter

PATIENCE = 600.0
"""Seconds for which a waiting run stays Queued although it can never fit into the published
options: a restarting node or device plugin reports no resources for a while.
"""


@dataclass(frozen=True)
class Admitted:
    """The run may begin; its resources are reserved."""


@dataclass(frozen=True)
class Waiting:
    """The run must wait, for this reason and at this place in the queue (1 is next)."""

    sentence: Message
    place: int = 1
    is_coarse: bool = False
    """Whether `place` is an upper bound."""


@dataclass(frozen=True)
class Held:
    """The run waits for other runs, and is in no queue until they are done."""


@dataclass(frozen=True)
class Refused:
    """The run can never begin; every problem is listed."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class LeftToGangScheduler:
    """The tasks may be created; the run begins when a scheduler has room for all of them."""


Verdict = Admitted | Waiting | Held | Refused | LeftToGangScheduler
BudgetCheck = Callable[[TFCluster, Callable[[TFCluster], float]], Sequence[Problem] | None]
"""Returns a budget's objections to a run; the second argument returns the run's CPU cores."""


class Admission:
    """Decides on queued runs.

    Args:
        snapshotter: the current state and the reservations.
        cluster_state: reads quotas once more before a run is admitted.
        enforced: whether NetworkPolicies are enforced; None if unknown.
        spent: why the user's budget does not allow the run; None if unknown.
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
        """For each run that was never found possible: the time since which it is known."""
        self._doubted: dict[str, float] = {}
        """For each run that was possible before: the time since which it is not."""

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
        """Return Held for a run that waits for others. A new run that can never begin is refused at
        once instead of after hours.
        """
        is_judged = not cluster.status.message and self._snapshotter.settled
        never = self._never(cluster) if is_judged else ()
        return Refused(never) if never else Held()

    def _cores(self, cluster: TFCluster) -> float:
        """Return the CPU cores that the tasks request, with the API server's defaults."""
        asked = task_demands(cluster.spec, self._snapshotter.published(cluster.metadata.owner))
        return sum(count * demand.requests.get(CPU, 0.0) for count, demand in asked.values())

    def _doubt(self, cluster: TFCluster, never: tuple[Problem, ...]) -> Verdict:
        """Refuse an impossible run; if it was possible before, let it wait for a while."""
        namespace, uid = cluster.metadata.owner, cluster.metadata.uid
        since = self._doubted.setdefault(uid, time.monotonic())
        if uid in self._new or time.monotonic() >= since + PATIENCE:
            self._new.pop(uid, None)
            del self._doubted[uid]
            return Refused(never)
        told = Message("EarlierOffer", {"problems": [each.message for each in never]})
        return Waiting(told, runs_ahead(self._queue(namespace, uid), uid) + 1)

    def _queue(self, namespace: str, uid: str) -> Sequence[QueuedRun]:
        """Return the waiting runs including this one, which may be newer than the snapshot."""
        queue = self._snapshotter.current().queues.get(namespace, ())
        known = any(each.uid == uid for each in queue)
        return queue if known else self._snapshotter.queue(namespace)

    def _first(self, cluster: TFCluster) -> Verdict:
        namespace = cluster.metadata.owner
        if waits := self._short(cluster, self._snapshotter.offer(namespace)):
            return waits
        if not self.pace.is_due(namespace):
            return Waiting(Message("LaunchPace", {"count": AT_ONCE}))
        # The cache may be outdated: count the pods first, then read the quotas. No other run of the
        # namespace is admitted meanwhile, because this one is the first.
        counted = self._snapshotter.reservations(namespace)
        quotas = self._cluster_state.quotas_now(namespace)
        with self._lock:
            if waits := self._short(cluster, self._snapshotter.offer(namespace, quotas, counted)):
                return waits
            self._snapshotter.admit((namespace, cluster.metadata.name), cluster.metadata.uid)
            self.pace.note(namespace)
        return self._granted(cluster)

    def _granted(self, cluster: TFCluster) -> Verdict:
        """Return Admitted, or leave the start to the gang scheduler."""
        return LeftToGangScheduler() if self._together(cluster) else Admitted()

    def _together(self, cluster: TFCluster) -> bool:
        return uses_gangs(self._snapshotter.policy_of(cluster.metadata.owner))

    def _short(self, cluster: TFCluster, there: LaunchFacts) -> Verdict | None:
        """Return what the run must wait for; a run that was just admitted uses its own
        reservation.
        """
        if cluster.metadata.uid in self._snapshotter.admitted:
            return self._granted(cluster)
        asked = task_demands(cluster.spec, there)
        short = _short(asked, there)
        return Waiting(_waits_for(short, asked, there)) if short else None

    def _never(self, cluster: TFCluster) -> tuple[Problem, ...]:
        """Return why the run can never start; recomputed only when the published options change."""
        namespace, uid = cluster.metadata.owner, cluster.metadata.uid
        offer = replace(self._snapshotter.published(namespace), enforced=self._enforced())
        known = self._refusals.get(uid)
        if known is None or known[0] != offer:
            self._forget_others()
            found = launch_problems(cluster.spec, self._with_secrets(offer, cluster))
            known = self._refusals[uid] = offer, tuple(found)
        return known[1]

    def _with_secrets(self, offer: LaunchFacts, cluster: TFCluster) -> LaunchFacts:
        """Return the published options with the secrets for tasks, if this run names any."""
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
                # The snapshot may be older than a run that another thread decides on.
                if since < snapshot.at and uid not in waiting:
                    kept.pop(uid, None)


def _held_by_pace(place: int) -> Waiting:
    """Return a wait caused by the launch pace, with a rounded place.

    All waiting runs move up each second, and each change is a write. So distant places are rounded
    to tens or hundreds.
    """
    step = 10 ** (len(str(place)) - 1)
    told = -(-place // step) * step
    return Waiting(Message("LaunchPace", {"count": AT_ONCE}), told, is_coarse=step > 1)


def _short(asked: DemandByType, there: LaunchFacts) -> list[Shortage]:
    place = there.place
    if not there.policy.nodes_are_fixed or uses_gangs(
        there.policy
    ):  # the gang scheduler counts nodes itself
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
