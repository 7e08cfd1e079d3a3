"""Snapshots of all runs and nodes, with the reservations of admitted runs.

From its admission until its tasks end, a run counts as using resources: first the requests in its
spec, then the requests of its bound pods. Snapshots are made only from caches.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...kube.api import labels
from ...kube.api.client import Object
from ...kube.api.resource_amounts import PODS, Amounts, plus, pod_resources, times
from ...kube.objects import custom_resource
from ...kube.objects.policy import Policy
from ...launch_checks.capacity_check import (
    BoundPod,
    DemandByType,
    EqualTasks,
    NamespaceCapacity,
    NodeCapacity,
    TaskNode,
    free_after,
    node_capacities,
    node_kinds,
    read_task_node,
)
from ...launch_checks.kubernetes import LaunchFacts, task_demands
from ...launch_checks.quota_objects import (
    ContainerBounds,
    NamespaceQuota,
    TaskDemand,
    namespace_quotas,
)
from ...spec import Phase, Spec, TaskType
from ..cluster_state import ClusterCaches, ClusterState, Key, is_forbidden, owner_uid
from .launch_queue import LaunchQueue, QueuedRun, in_order, is_waiting_run, phase_of
from .volcano import PodGroups

MAX_AGE = 0.5
"""Seconds for which a snapshot is used before a new one is made."""
_HOLDS = (Phase.STARTING.value, Phase.RUNNING.value)
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class ClusterSnapshot:
    """All runs and nodes at one moment."""

    at: float
    nodes: tuple[NodeCapacity, ...] | None
    free: tuple[Amounts, ...] | None = None
    """The resources of each node that no pod uses; reservations are not subtracted."""
    reservations: Mapping[str, Sequence[Reservation]] = field(default_factory=dict)
    queues: Mapping[str, Sequence[QueuedRun]] = field(default_factory=dict)
    kinds: tuple[NodeCapacity, ...] | None = None
    """The kinds of nodes, with their total resources."""


class Snapshotter:
    """Takes snapshots, at most twice a second."""

    def __init__(
        self,
        caches: ClusterCaches,
        cluster_state: ClusterState,
        policy: Policy,
        pod_groups: PodGroups,
    ) -> None:
        self._caches, self._cluster_state = caches, cluster_state
        self.policy, self.pod_groups = policy, pod_groups
        self._lock = threading.RLock()
        self._snapshot: ClusterSnapshot | None = None
        self._specs: dict[str, Spec | None] = {}
        self._demands: dict[str, tuple[ContainerBounds, DemandByType]] = {}
        self._asked: dict[str, Amounts] = {}
        self._task_nodes: dict[str, tuple[Object, TaskNode | None]] = {}
        """By uid of a node: the object that was read, and the facts read from it."""
        self._queue = LaunchQueue()
        self.admitted: set[str] = set()
        """Uids of admitted runs whose records do not show the admission yet."""
        self._published: dict[str, tuple[float, LaunchFacts]] = {}

    @property
    def settled(self) -> bool:
        """Whether each kind of object has been listed once or is known to be forbidden. Before
        that, runs would be refused because nodes that are not listed yet seem not to exist.
        """
        nodes = self._caches.nodes
        settled = self._cluster_state.settled and self.pod_groups.known
        return settled and (nodes.synced.is_set() or is_forbidden(nodes))

    def current(self) -> ClusterSnapshot:
        """Return a snapshot that is at most half a second old."""
        with self._lock:
            known = self._snapshot
            if known is None or time.monotonic() - known.at > MAX_AGE:
                known = self._snapshot = self._take()
            return known

    def offer(
        self,
        namespace: str,
        found: Sequence[Object] | None = None,
        reserved: Sequence[Reservation] | None = None,
    ) -> LaunchFacts:
        """Return the facts that decide on launches in a namespace now.

        `found` are the namespace's ResourceQuotas if the caller has read newer objects than the
        cache; `reserved` are the reservations from just before that read.
        """
        snapshot = self.current()
        limits = self._cluster_state.bounds(namespace)
        reservations = snapshot.reservations.get(namespace, ()) if reserved is None else reserved
        policy = self.policy_of(namespace)
        counted = namespace_quotas(
            self._cluster_state.quotas.of(namespace) if found is None else found,
            policy.priority_class,
        )
        count = None if snapshot.nodes is None else len(snapshot.nodes)
        return LaunchFacts(
            policy=policy,
            names=self._cluster_state.names(namespace, count, limits),
            place=NamespaceCapacity(
                nodes=snapshot.nodes,
                quotas=tuple(with_reservations(quota, reservations) for quota in counted),
                bounds=limits,
                max_tasks=self.policy.max_tasks,
                held={reservation.key[1]: reservation.held for reservation in reservations},
            ),
        )

    def policy_of(self, namespace: str) -> Policy:
        """Return the policy with the settings of a namespace: shared data, queue, priority class,
        and whether images must have a digest.

        If the policy's gang scheduling is `auto`, it is replaced by whether this Kubernetes cluster
        has Volcano.
        """
        policy, marks = self.policy, self._cluster_state.tenant_annotations(namespace)
        return replace(
            policy,
            shared_data=(*policy.shared_data, *self._cluster_state.shared(namespace)),
            gang=self.pod_groups.available if policy.gang == "auto" else policy.gang,
            queue=marks.get(labels.QUEUE) or policy.queue,
            priority_class=marks.get(labels.PRIORITY_CLASS) or policy.priority_class,
            require_digest=policy.require_digest or marks.get(labels.REQUIRE_DIGEST) == "true",
        )

    def published(self, namespace: str) -> LaunchFacts:
        """Return the published options of a namespace as clients see them, computed once for each
        snapshot.
        """
        snapshot = self.current()
        known = self._published.get(namespace)
        if known is None or known[0] != snapshot.at:
            known = self._published[namespace] = (
                snapshot.at,
                self.offer(namespace).published(snapshot.kinds),
            )
        return known[1]

    def admit(self, key: Key, uid: str) -> None:
        """Reserve a run's requests until its record says that it was admitted. The last snapshot is
        updated in place, so that 50 launches at once do not need 50 snapshots.
        """
        with self._lock:
            self.admitted.add(uid)
            found, snapshot = self._caches.runs.get(*key), self.current()
            if found is None or found["metadata"]["uid"] != uid:
                return
            reservation = self._reservation(found, on_nodes=True)
            every = snapshot.reservations.get(key[0], ())
            if reservation is None or any(each.key == key for each in every):
                return  # the snapshot has the reservation already
            waiting = [each for each in snapshot.queues.get(key[0], ()) if each.uid != uid]
            self._snapshot = dataclasses.replace(
                snapshot,
                nodes=without_reserved(snapshot.nodes, {key[0]: (reservation,)}),
                reservations={**snapshot.reservations, key[0]: (*every, reservation)},
                queues={**snapshot.queues, key[0]: waiting},
            )

    def queue(self, namespace: str) -> list[QueuedRun]:
        """Return the waiting runs of a namespace at this moment, in order."""
        with self._lock:
            waiting = filter(None, map(self._queued, self._runs_of(namespace)))
            return in_order(waiting)

    def reservations(self, namespace: str) -> list[Reservation]:
        """Return the reservations of a namespace at this moment."""
        with self._lock:
            return list(filter(None, map(self._reserved_for, self._runs_of(namespace))))

    # -- taking snapshots --------------------------------------------------------------------------

    def _runs_of(self, namespace: str) -> list[Object]:
        return self._caches.runs.of(namespace)

    def _take(self) -> ClusterSnapshot:
        at = time.monotonic()
        runs = self._caches.runs.every()
        reservations: dict[str, list[Reservation]] = {}
        queues: dict[str, list[QueuedRun]] = {}
        uids = {found["metadata"]["uid"] for found in runs}
        for found in runs:
            head = found["metadata"]
            if phase_of(found) != Phase.QUEUED.value:
                self.admitted.discard(head["uid"])
            if reservation := self._reserved_for(found):
                reservations.setdefault(head["namespace"], []).append(reservation)
            elif entry := self._queued(found):
                queues.setdefault(head["namespace"], []).append(entry)
        self.admitted &= uids
        self._queue.keep(uids)
        for uid in self._specs.keys() - uids:
            del self._specs[uid]
            self._demands.pop(uid, None)
        there = self._nodes()
        left = None if there is None else tuple(node.free for node in there)
        return ClusterSnapshot(
            at,
            without_reserved(there, reservations),
            left,
            reservations,
            {namespace: in_order(waiting) for namespace, waiting in queues.items()},
            None if there is None else node_kinds(there),
        )

    def _reserved_for(self, found: Object) -> Reservation | None:
        """Return the reservation of a run; None if it waits or is over."""
        head, queued = found["metadata"], phase_of(found) == Phase.QUEUED.value
        # A queued run with Jobs was left to Volcano, which finds nodes for it, so reserve no nodes.
        made = queued and self._has_jobs(head)
        if phase_of(found) in _HOLDS or made or (queued and head["uid"] in self.admitted):
            return self._reservation(found, on_nodes=not made)
        return None

    def _queued(self, found: Object) -> QueuedRun | None:
        """Return the queue entry of a run; None if it does not wait."""
        head = found["metadata"]
        if not is_waiting_run(found) or head["uid"] in self.admitted or self._has_jobs(head):
            return None
        return self._queue.entry(found)

    def _has_jobs(self, head: Object) -> bool:
        jobs = self._caches.jobs.of((head["namespace"], head["name"]))
        return any(owner_uid(job) == head["uid"] for job in jobs)

    def _reservation(self, found: Object, *, on_nodes: bool) -> Reservation | None:
        """Return the reservation of a run; None if its spec is invalid. If `on_nodes` is false, the
        reservation includes no resources of nodes.
        """
        spec = self._spec(found)
        if spec is None:
            return None
        head, counts = found["metadata"], (found.get("status") or {}).get("counts") or {}
        key = (head["namespace"], head["name"])
        asked = self._demands_of(head, spec)
        alive: dict[str, list[Object]] = {}
        for pod in self._caches.pods.of(key):
            if (pod.get("status") or {}).get("phase") not in _ENDED:
                alive.setdefault(pod["metadata"]["labels"].get(labels.TASK_TYPE, ""), []).append(
                    pod
                )
        holding = {
            t: count - int((counts.get(t.value) or {}).get("succeeded", 0))
            for t, (count, _demand) in asked.items()
        }
        made = {t: len(alive.get(t.value, ())) for t in asked}
        bound = {
            t: sum(1 for pod in alive.get(t.value, ()) if pod["spec"].get("nodeName"))
            for t in asked
        }
        return Reservation(
            key=key,
            demands={t: demand for t, (_count, demand) in asked.items()},
            holding=holding,
            unmade={t: max(0, holding[t] - made[t]) for t in asked},
            unbound={t: max(0, holding[t] - bound[t]) if on_nodes else 0 for t in asked},
        )

    def _demands_of(self, head: Object, spec: Spec) -> DemandByType:
        """Return the requests of a run's tasks, computed again only after its limits changed."""
        limits = self._cluster_state.bounds(head["namespace"])
        known = self._demands.get(head["uid"])
        if known is None or known[0] != limits:
            place = NamespaceCapacity(bounds=limits)
            asked = task_demands(spec, LaunchFacts(policy=self.policy, place=place))
            known = self._demands[head["uid"]] = limits, asked
        return known[1]

    def _spec(self, found: Object) -> Spec | None:
        uid = found["metadata"]["uid"]
        if uid not in self._specs:
            try:
                self._specs[uid] = replace(custom_resource.read(found).spec, program=None)
            except InvalidRequest:
                self._specs[uid] = None  # the run's controller refuses an invalid spec
        return self._specs[uid]

    def _nodes(self) -> tuple[NodeCapacity, ...] | None:
        if any(is_forbidden(each) for each in (self._caches.nodes, self._cluster_state.others)):
            return None
        taken = [each["bound"] for each in self._cluster_state.others.every() if each["bound"]]
        known, self._task_nodes = self._task_nodes, {}
        for found in self._caches.nodes.every():
            uid = found["metadata"]["uid"]
            read = known.get(uid)
            # The cache replaces the object of a node when the node changes, so a node with the same
            # object has not changed.
            if read is None or read[0] is not found:
                read = found, read_task_node(found, self.policy)
            self._task_nodes[uid] = read
        nodes = [node for _found, node in self._task_nodes.values() if node is not None]
        return node_capacities(nodes, [*taken, *self._own()])

    def _own(self) -> list[BoundPod]:
        """Return the requests of all pods of runs that are bound to a node. The requests of each
        pod are computed once.
        """
        asked: dict[str, Amounts] = {}
        taken = []
        for pod in self._caches.pods.every():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            asked[uid] = self._asked.get(uid) or {**pod_resources(pod["spec"]), PODS: 1.0}
            if node and (pod.get("status") or {}).get("phase") not in _ENDED:
                taken.append(BoundPod(node=node, asked=asked[uid]))
        self._asked = asked
        return taken


# Reservations: the resources that admitted runs still need, and the resources left for other runs.
# Pure.


@dataclass(frozen=True)
class Reservation:
    """The resources that an admitted run still needs: for its tasks without a pod, and for its pods
    without a node.
    """

    key: Key
    demands: Mapping[TaskType, TaskDemand]
    holding: Mapping[TaskType, int]
    unmade: Mapping[TaskType, int]
    unbound: Mapping[TaskType, int]

    def counted_as(self, key: str) -> float:
        """Return the amount of the quota key `key` that the quota does not count yet, but will
        count when all pods of the run exist.
        """
        return sum(n * self.demands[t].counted_as(key) for t, n in self.unmade.items())

    @property
    def held(self) -> Amounts:
        """The sum of the requests of the run's unfinished tasks."""
        return plus(*(times(self.demands[t].requests, n) for t, n in self.holding.items()))


def without_reserved(
    found: tuple[NodeCapacity, ...] | None, reservations: Mapping[str, Sequence[Reservation]]
) -> tuple[NodeCapacity, ...] | None:
    """Assume that the pods of admitted runs that have no node yet are placed. Return the nodes with
    the free resources that are then left.
    """
    groups = [
        EqualTasks(t, count, {**reservation.demands[t].requests, PODS: 1.0})
        for every in reservations.values()
        for reservation in every
        for t, count in reservation.unbound.items()
        if count
    ]
    if not groups or found is None:
        return found
    free = free_after(groups, [node.free for node in found])
    return tuple(replace(node, free=left) for node, left in zip(found, free, strict=True))


def with_reservations(quota: NamespaceQuota, reservations: Sequence[Reservation]) -> NamespaceQuota:
    """Return the quota with the reservations of admitted runs counted as used."""
    reserved = {key: sum(p.counted_as(key) for p in reservations) for key in quota.hard}
    return replace(quota, used=plus(quota.used, reserved))
