"""All runs and nodes at one moment: what is promised to runs, and the launch queues.

Promises that room counts as taken from the moment a run is admitted until its tasks end: by its
pods once they are bound, before that by what it asked for. Reads caches alone; decides nothing.
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
from ...kube.api.amounts import PODS, Amounts, asked_by
from ...kube.api.client import Object
from ...kube.capacity.fit import Node, Place
from ...kube.capacity.namespace_limits import quotas
from ...kube.capacity.nodes import Bound, nodes
from ...kube.capacity.offer import Offer, wanted
from ...kube.objects import custom_resource
from ...kube.objects.policy import Policy
from ...spec import Phase, Spec
from ..belongings import uid_of
from ..caches import Caches, Key
from ..cluster_state import Ground, is_closed
from .promises import Promise, with_promises, without_promised
from .queue import LaunchQueue, QueuedRun, in_order, phase_of, waits
from .volcano import Gangs

AGE = 0.5
"""Seconds for which a survey is used again."""
_HOLDS = (Phase.STARTING.value, Phase.RUNNING.value)
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Survey:
    """One moment."""

    at: float
    nodes: tuple[Node, ...] | None
    free: tuple[Amounts, ...] | None = None
    """What pods that are there leave of each node, whatever was promised beside them."""
    promises: Mapping[str, Sequence[Promise]] = field(default_factory=dict)
    queues: Mapping[str, Sequence[QueuedRun]] = field(default_factory=dict)


class Surveyor:
    """Looks at all runs and nodes, at most twice a second."""

    def __init__(self, caches: Caches, ground: Ground, policy: Policy, gangs: Gangs) -> None:
        self._caches, self._ground, self.policy, self.gangs = caches, ground, policy, gangs
        self._lock = threading.RLock()
        self._survey: Survey | None = None
        self._specs: dict[str, Spec | None] = {}
        self._asked: dict[str, Amounts] = {}
        self._queue = LaunchQueue()
        self.admitted: set[str] = set()
        """Uids of runs that were admitted, and whose record does not say so yet."""
        self._published: dict[str, tuple[float, Offer]] = {}

    @property
    def settled(self) -> bool:
        """Whether each kind was seen once, or is known to be none of the operator's business.

        Before that, nodes that nobody has listed yet would count as none.
        """
        nodes = self._caches.nodes
        settled = self._ground.settled and self.gangs.known
        return settled and (nodes.synced.is_set() or is_closed(nodes))

    def look(self) -> Survey:
        """All runs and nodes, as of half a second ago at most."""
        with self._lock:
            known = self._survey
            if known is None or time.monotonic() - known.at > AGE:
                known = self._survey = self._look()
            return known

    def offer(
        self,
        namespace: str,
        found: Sequence[Object] | None = None,
        promised: Sequence[Promise] | None = None,
    ) -> Offer:
        """What a namespace offers now; `found` are its ResourceQuotas where they are known better
        than by the cache, and `promised` is what was promised when they were read.
        """
        survey = self.look()
        limits = self._ground.bounds(namespace)
        promises = survey.promises.get(namespace, ()) if promised is None else promised
        policy = self.policy_of(namespace)
        counted = quotas(
            self._ground.quotas.of(namespace) if found is None else found,
            policy.priority_class,
        )
        count = None if survey.nodes is None else len(survey.nodes)
        return Offer(
            policy=policy,
            names=self._ground.names(namespace, count, limits),
            place=Place(
                nodes=survey.nodes,
                quotas=tuple(with_promises(quota, promises) for quota in counted),
                bounds=limits,
                max_tasks=self.policy.max_tasks,
                held={promise.key[1]: promise.held for promise in promises},
            ),
        )

    def policy_of(self, namespace: str) -> Policy:
        """The policy with what all tasks of a namespace read, how they are placed there, and
        whether all are bound together: what the policy leaves to the cluster is decided here.
        """
        policy, marks = self.policy, self._ground.marks(namespace)
        return replace(
            policy,
            shared_data=(*policy.shared_data, *self._ground.shared(namespace)),
            gang=self.gangs.available if policy.gang == "auto" else policy.gang,
            queue=marks.get(labels.QUEUE) or policy.queue,
            priority_class=marks.get(labels.PRIORITY_CLASS) or policy.priority_class,
            require_digest=policy.require_digest or marks.get(labels.REQUIRE_DIGEST) == "true",
        )

    def published(self, namespace: str) -> Offer:
        """What clients are told that it offers; made once for each look."""
        survey = self.look()
        known = self._published.get(namespace)
        if known is None or known[0] != survey.at:
            known = self._published[namespace] = survey.at, self.offer(namespace).published()
        return known[1]

    def admit(self, key: Key, uid: str) -> None:
        """Reserve what a run asks for, until its record says that it was admitted.

        It is taken from what the last look saw: 50 users who launch at once cost no 50 looks.
        """
        with self._lock:
            self.admitted.add(uid)
            found, survey = self._caches.runs.get(*key), self.look()
            if found is None or found["metadata"]["uid"] != uid:
                return
            promise = self._promise(found, on_nodes=True)
            every = survey.promises.get(key[0], ())
            if promise is None or any(each.key == key for each in every):
                return  # the look has it already
            waiting = [each for each in survey.queues.get(key[0], ()) if each.uid != uid]
            self._survey = dataclasses.replace(
                survey,
                nodes=without_promised(survey.nodes, {key[0]: (promise,)}),
                promises={**survey.promises, key[0]: (*every, promise)},
                queues={**survey.queues, key[0]: waiting},
            )

    def queue(self, namespace: str) -> list[QueuedRun]:
        """Who waits in a namespace at this moment, in order."""
        with self._lock:
            waits = filter(None, map(self._queued, self._runs_of(namespace)))
            return in_order(waits)

    def promises(self, namespace: str) -> list[Promise]:
        """What runs of a namespace were promised, at this moment."""
        with self._lock:
            return list(filter(None, map(self._promised_to, self._runs_of(namespace))))

    # -- looking -----------------------------------------------------------------------------------

    def _runs_of(self, namespace: str) -> list[Object]:
        every = self._caches.runs.every()
        return [each for each in every if each["metadata"]["namespace"] == namespace]

    def _look(self) -> Survey:
        at = time.monotonic()
        runs = self._caches.runs.every()
        promises: dict[str, list[Promise]] = {}
        queues: dict[str, list[QueuedRun]] = {}
        uids = {found["metadata"]["uid"] for found in runs}
        for found in runs:
            head = found["metadata"]
            if phase_of(found) != Phase.QUEUED.value:
                self.admitted.discard(head["uid"])
            if promise := self._promised_to(found):
                promises.setdefault(head["namespace"], []).append(promise)
            elif waits := self._queued(found):
                queues.setdefault(head["namespace"], []).append(waits)
        self.admitted &= uids
        self._queue.keep(uids)
        for uid in self._specs.keys() - uids:
            del self._specs[uid]
        there = self._nodes()
        left = None if there is None else tuple(node.free for node in there)
        return Survey(
            at,
            without_promised(there, promises),
            left,
            promises,
            {namespace: in_order(waiting) for namespace, waiting in queues.items()},
        )

    def _promised_to(self, found: Object) -> Promise | None:
        """What a run was promised; None when it waits, or has had all that it needs."""
        head, queued = found["metadata"], phase_of(found) == Phase.QUEUED.value
        # The Jobs of one that is Queued are made: a scheduler decides when it has room for all.
        made = queued and self._has_jobs(head)
        if phase_of(found) in _HOLDS or made or (queued and head["uid"] in self.admitted):
            return self._promise(found, on_nodes=not made)
        return None

    def _queued(self, found: Object) -> QueuedRun | None:
        """A run that waits to be admitted."""
        head = found["metadata"]
        if not waits(found) or head["uid"] in self.admitted or self._has_jobs(head):
            return None
        return self._queue.entry(head)

    def _has_jobs(self, head: Object) -> bool:
        jobs = self._caches.jobs.of((head["namespace"], head["name"]))
        return any(uid_of(job) == head["uid"] for job in jobs)

    def _promise(self, found: Object, *, on_nodes: bool) -> Promise | None:
        """What a run has to get; `on_nodes` whether room on nodes is kept for it."""
        spec = self._spec(found)
        if spec is None:
            return None
        head, counts = found["metadata"], (found.get("status") or {}).get("counts") or {}
        key = (head["namespace"], head["name"])
        limits = self._ground.bounds(head["namespace"])
        asked = wanted(spec, Offer(policy=self.policy, place=Place(bounds=limits)))
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
        return Promise(
            key=key,
            demands={t: demand for t, (_count, demand) in asked.items()},
            holding=holding,
            unmade={t: max(0, holding[t] - made[t]) for t in asked},
            unbound={t: max(0, holding[t] - bound[t]) if on_nodes else 0 for t in asked},
        )

    def _spec(self, found: Object) -> Spec | None:
        uid = found["metadata"]["uid"]
        if uid not in self._specs:
            try:
                self._specs[uid] = replace(custom_resource.read(found).spec, program=None)
            except InvalidRequest:
                self._specs[uid] = None  # the controller refuses it
        return self._specs[uid]

    def _nodes(self) -> tuple[Node, ...] | None:
        if any(is_closed(each) for each in (self._caches.nodes, self._ground.others)):
            return None
        taken = [each["bound"] for each in self._ground.others.every() if each["bound"]]
        return nodes(self._caches.nodes.every(), [*taken, *self._own()], self.policy)

    def _own(self) -> list[Bound]:
        """What pods of runs take of nodes; what one asks for never changes, and is read once."""
        asked: dict[str, Amounts] = {}
        taken = []
        for pod in self._caches.pods.every():
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            asked[uid] = self._asked.get(uid) or {**asked_by(pod["spec"]), PODS: 1.0}
            if node and (pod.get("status") or {}).get("phase") not in _ENDED:
                taken.append(Bound(node=node, asked=asked[uid]))
        self._asked = asked
        return taken
