"""Who may begin, by caches of a server that keeps objects; and what is published to whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kube_server import KubeServer

from tfcluster_magic.kube import resource
from tfcluster_magic.kube.labels import MOUNTED_AT, TENANT, labels
from tfcluster_magic.kube.policy import Policy, Shared
from tfcluster_magic.models import (
    Mode,
    Pods,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    TaskType,
)
from tfcluster_magic.operator import survey
from tfcluster_magic.operator.admission import Admission
from tfcluster_magic.operator.caches import Caches
from tfcluster_magic.operator.gangs import Gangs
from tfcluster_magic.operator.ground import Ground
from tfcluster_magic.operator.hooks import Admitted, Refused, Verdict, Waiting
from tfcluster_magic.operator.options import Publisher
from tfcluster_magic.operator.survey import Survey, Surveyor
from tfcluster_magic.preflight import Limit

NODES, PODS, RUNS = (
    "/api/v1/nodes",
    "/api/v1/namespaces/{}/pods",
    "/apis/tfcluster.dev/v1alpha1/namespaces/{}/tfclusters",
)


class Place:
    """A Kubernetes cluster of nodes and namespaces, and who decides there."""

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008
        self.server = KubeServer()
        self.api = self.server.api()
        self.caches = Caches(self.api, "", lambda _key: None)
        self.ground = Ground(self.api)
        self.gangs = Gangs(self.api, "", lambda _key: None)
        self.surveyor = Surveyor(self.caches, self.ground, policy, self.gangs)
        self.enforced: bool | None = True
        self.admission = Admission(self.surveyor, self.ground, lambda: self.enforced)
        self.publisher = Publisher(
            self.api, "", self.surveyor, self.ground, lambda: self.enforced, lambda: True
        )

    def begin(self) -> None:
        """Follow what there is, and go on when it was seen."""
        self.caches.start()
        self.ground.start()
        self.gangs.start()
        self.seen()

    def seen(self) -> None:
        """Go on when the caches have all that the server has."""

        def marks(found: Any) -> set[tuple[str, str]]:
            return {(o["metadata"]["uid"], o["metadata"]["resourceVersion"]) for o in found}

        def everything() -> bool:
            caches = (*self.caches.all, *self.ground.all)
            wanted = [o for path, o in self.server.objects.items() if "/configmaps/" not in path]
            have = marks(each for cache in caches for each in cache.every())
            told = self.gangs.known and all(c.synced.is_set() for c in caches)
            return told and marks(wanted) <= have

        deadline = time.monotonic() + 90
        while not everything():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.look()

    def look(self) -> Survey:
        """All runs and nodes as they are now, not as of half a second ago."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(survey, "AGE", -1.0)
            return self.surveyor.look()

    def end(self) -> None:
        """Stop all of it."""
        self.caches.stop()
        self.ground.stop()
        self.gangs.stop()
        self.server.close()

    def node(self, name: str, cpu: int) -> None:
        """A node."""
        status = {
            "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.put(f"{NODES}/{name}", {"spec": {}, "status": status})

    def tenant(self, name: str, quota: str = "") -> None:
        """A user's namespace with the claims that every run has, and a quota of cores."""
        self.server.put(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {TENANT: "true"}}})
        for claim in ("data", "log", "workspace"):
            where = f"/api/v1/namespaces/{name}/persistentvolumeclaims/{claim}"
            self.server.put(where, {"spec": {"accessModes": ["ReadWriteMany"]}})
        if quota:
            hard = {"requests.cpu": quota, "requests.memory": f"{quota}Gi"}
            where = f"/api/v1/namespaces/{name}/resourcequotas/tasks"
            self.server.put(where, {"spec": {"hard": hard}, "status": {"hard": hard}})

    def run(self, namespace: str, name: str, workers: int, cpu: float, **more: Any) -> None:
        """A run that was posted."""
        size = Resources(cpu=cpu, memory="1Gi")
        tasks = ReplicaSet(worker=Replicas(count=workers, resources=size))
        spec = Spec(mode=Mode.IN_GRAPH, replicas=tasks, **more)
        cluster, _dash, number = name.rpartition("-")
        path = f"{RUNS.format(namespace)}/{name}"
        self.server.put(path, resource.write(cluster, int(number), spec))

    def say(self, namespace: str, name: str, **status: Any) -> None:
        """The status of a run, as the operator writes it."""
        path = f"{RUNS.format(namespace)}/{name}"
        self.server.put(path, {**self.server.objects[path], "status": status})
        self.seen()

    def pod(self, namespace: str, run: str, index: int, node: str, cpu: str, **status: str) -> None:
        """A pod of a run."""
        name = f"{run}-worker-{index}"
        head = {"labels": labels(run, "u", TaskType.WORKER)}
        container = {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        spec = {"containers": [container], **({"nodeName": node} if node else {})}
        path = f"{PODS.format(namespace)}/{name}"
        self.server.put(path, {"metadata": head, "spec": spec, "status": status})

    def decide(self, namespace: str, name: str) -> Verdict:
        """What the operator decides on a run."""
        found = self.server.objects[f"{RUNS.format(namespace)}/{name}"]
        return self.admission.decide(resource.read(found))


@pytest.fixture
def there() -> Iterator[Place]:
    """Two nodes of four cores, and two users."""
    made = Place()
    for name in ("node-1", "node-2"):
        made.node(name, 4)
    for name in ("alice", "bob"):
        made.tenant(name)
    yield made
    made.end()


def test_two_launches_never_both_take_the_last_room(there: Place) -> None:
    """Of launches by two users at the same moment, which the nodes have room for one of, one is
    admitted; asked again, it still is, and the other still waits.
    """
    for user in ("alice", "bob"):
        there.run(user, "digits-1", 2, 3)
    there.begin()
    with ThreadPoolExecutor(8) as pool:
        asked = [user for _i in range(8) for user in ("alice", "bob")]
        told = list(zip(asked, pool.map(lambda u: there.decide(u, "digits-1"), asked), strict=True))
    admitted = {user for user, verdict in told if isinstance(verdict, Admitted)}
    assert len(admitted) == 1
    (waits,) = {v.sentence for _u, v in told if isinstance(v, Waiting)}
    assert waits == "4 CPU more on the nodes"
    assert len({(user, type(verdict)) for user, verdict in told}) == 2


def test_first_in_first_out_with_places(there: Place) -> None:
    """Within a namespace nobody overtakes, though what comes later would fit; each is told its
    place, and the first what it waits for and who has it.
    """
    there.tenant("alice", quota="4")
    there.run("alice", "old-1", 1, 3)
    there.begin()
    assert there.decide("alice", "old-1") == Admitted()
    for name, cpu in (("large-1", 2.0), ("small-1", 0.5)):
        there.run("alice", name, 1, cpu)
        there.seen()
    assert there.decide("alice", "small-1") == Waiting("its turn after large-1", 2)
    first = "1 CPU more in quota tasks (requests.cpu), held by old-1 (3 CPU, 1Gi)"
    assert there.decide("alice", "large-1") == Waiting(first, 1)
    there.say("alice", "old-1", phase="Succeeded", releasedAt=1.0)
    assert there.decide("alice", "large-1") == Admitted()
    assert there.decide("alice", "small-1") == Admitted()


def test_room_is_reserved_until_tasks_end(there: Place) -> None:
    """What was promised counts once: by what was asked for until pods are on nodes, then by these,
    and no more when they have ended; an admitted run keeps its room while a pod is replaced.
    """
    there.run("alice", "a-1", 2, 3)
    there.begin()
    assert there.decide("alice", "a-1") == Admitted()
    there.say("alice", "a-1", phase="Starting")

    def free() -> float:
        nodes = there.look().nodes
        return sum(node.free["cpu"] for node in nodes or ())

    assert free() == 2
    there.pod("alice", "a-1", 0, "node-1", "3")
    there.pod("alice", "a-1", 1, "", "3")
    there.seen()
    assert free() == 2
    there.pod("alice", "a-1", 1, "node-2", "3", phase="Failed")
    there.seen()
    assert free() == 2
    done = {"worker": {"desired": 2, "succeeded": 1, "running": 1}}
    there.pod("alice", "a-1", 1, "node-2", "3", phase="Succeeded")
    there.say("alice", "a-1", phase="Running", counts=done)
    assert free() == 5


def test_what_is_admitted_is_taken_from_what_was_seen(there: Place) -> None:
    """No admission has all runs and nodes counted anew, and the next one has what this one left."""
    there.run("alice", "a-1", 2, 3)
    there.run("bob", "b-1", 1, 3)
    there.begin()
    seen = there.surveyor.look().at
    assert there.decide("alice", "a-1") == Admitted()
    left = there.surveyor.look()
    assert sum(node.free["cpu"] for node in left.nodes or ()) == 2
    assert [each.key for each in left.promises["alice"]] == [("alice", "a-1")]
    assert isinstance(there.decide("bob", "b-1"), Waiting)
    assert left.at - seen < 60


def test_what_can_never_run_is_refused_at_once(there: Place) -> None:
    """Four workers of 3 CPU on two nodes of 4 are refused, also by somebody who is not the first in
    the queue; and a run that names secrets where the operator may not see which it may.
    """
    for name in ("full-1", "first-1"):
        there.run("alice", name, 2, 4)
    there.run("alice", "large-1", 4, 3)
    named = Pods(secrets=(SecretUse(name="s3"),))
    there.run("bob", "named-1", 1, 1, pods=named)
    there.server.refuses = lambda _method, path: _forbidden(path)
    there.begin()
    assert there.decide("alice", "full-1") == Admitted()
    refused = there.decide("alice", "large-1")
    assert isinstance(refused, Refused)
    assert "2 workers of 3 CPU, 1Gi fit, 4 were asked" in str(refused.problems[0])
    blind = there.decide("bob", "named-1")
    assert isinstance(blind, Refused)
    assert "may not see which secrets" in str(blind.problems[0])


def _forbidden(path: str) -> Any:
    from kube_server import Refusal

    return Refusal(403, "Forbidden") if "/secrets" in path else None


def test_network_policies(there: Place) -> None:
    """Launches wait for the answer whether policies are enforced, and are refused when not, unless
    the administrator accepts it.
    """
    there.run("alice", "a-1", 1, 1)
    there.begin()
    there.enforced = None
    waits = there.decide("alice", "a-1")
    assert isinstance(waits, Waiting)
    assert "NetworkPolicies" in waits.sentence
    there.enforced = False
    assert isinstance(there.decide("alice", "a-1"), Refused)
    there.surveyor.policy = Policy(require_network_policy=False)
    there.look()
    assert there.decide("alice", "a-1") == Admitted()


def test_options_are_written_when_they_change() -> None:
    """Many namespaces are written once; nothing when nothing changed, none of those whose quota is
    smaller than what is free when pods come, and the one whose quota is used.
    """
    place = Place()
    try:
        for number in range(20):
            place.node(f"node-{number}", 64)
        for number in range(40):
            place.tenant(f"user-{number}", quota="16")
        place.begin()

        def writes(change: Callable[[], None]) -> int:
            change()
            place.seen()
            before = place.publisher.writes
            place.publisher.publish()
            return place.publisher.writes - before

        place.publisher._enough.wait = lambda _seconds=None: False  # type: ignore[method-assign]
        assert writes(lambda: None) == 40
        assert writes(lambda: None) == 0
        assert writes(lambda: place.pod("user-0", "x-1", 0, "node-1", "40")) == 0
        used = {"requests.cpu": "8"}
        where = "/api/v1/namespaces/user-7/resourcequotas/tasks"
        quota = place.server.objects[where]
        assert writes(lambda: void(place.server.put(where, _used(quota, used)))) == 1
        assert writes(lambda: place.node("node-50", 64)) == 40
    finally:
        place.end()


def void(_value: object) -> None:
    """Nothing."""


def _used(quota: dict[str, Any], used: dict[str, str]) -> dict[str, Any]:
    return {**quota, "status": {**quota["status"], "used": used}}


@pytest.mark.parametrize(
    ("free", "told"), [(100, 100), (99, 87.5), (30, 25), (20, 18.75), (5, 4.6875), (0, 0), (-1, 0)]
)
def test_amounts_are_coarse_where_there_is_plenty(free: float, told: float) -> None:
    """What is free is told in coarse steps while there is much of it, and never as more."""
    from tfcluster_magic.operator.options import coarse

    assert coarse(Limit(total=100, free=free)).free == told


def test_a_claim_that_says_where_is_mounted_in_all_tasks_of_its_namespace(there: Place) -> None:
    """Annotated claims of a namespace are in its policy and in what clients are told, those of
    another namespace and nonsense are not.
    """
    for name, where in (("images", "/mnt/images"), ("odd", "a:b")):
        path = f"/api/v1/namespaces/alice/persistentvolumeclaims/{name}"
        marks = {"annotations": {MOUNTED_AT: where}}
        there.server.put(path, {"metadata": marks, "spec": {"accessModes": ["ReadOnlyMany"]}})
    there.begin()
    told = there.surveyor.published("alice").policy.shared_data
    assert (
        told == there.surveyor.policy_of("alice").shared_data == (Shared("images", "/mnt/images"),)
    )
    assert there.surveyor.policy_of("bob").shared_data == ()
