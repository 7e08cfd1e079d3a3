"""Decisions of an operator whose caches are not complete yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.kube_server import KubeServer, Refusal
from support.polling import wait_until

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator.cluster_state import ClusterCaches, ClusterState
from tfcluster_magic.operator.scheduling.admission import Admission, Admitted, Verdict, Waiting
from tfcluster_magic.operator.scheduling.published_options import OptionsPublisher
from tfcluster_magic.operator.scheduling.snapshot import Snapshotter
from tfcluster_magic.operator.scheduling.volcano import PodGroups
from tfcluster_magic.spec import Mode, Replicas, ReplicaSet, Resources, Spec

NODES, SPACE = "/api/v1/nodes", "/api/v1/namespaces/alice"
RUN = "/apis/tfcluster.dev/v1beta1/namespaces/alice/tfclusters/a-1"


class Beginner:
    """An operator that starts on a cluster with enough resources for the waiting run of alice."""

    def __init__(self) -> None:
        self.server = server = KubeServer()
        ready = {"type": "Ready", "status": "True"}
        room = {"cpu": "4", "memory": "64Gi", "pods": "110"}
        status = {"allocatable": room, "conditions": [ready]}
        server.put(f"{NODES}/node-1", {"spec": {}, "status": status})
        server.put(SPACE, {"metadata": {"labels": {"tfcluster.dev/tenant": "true"}}})
        for claim in ("data", "log", "workspace"):
            where = f"{SPACE}/persistentvolumeclaims/{claim}"
            server.put(where, {"spec": {"accessModes": ["ReadWriteMany"]}})
        size = Resources(cpu=1, memory="1Gi")
        tasks = ReplicaSet(worker=Replicas(count=1, resources=size))
        server.put(RUN, custom_resource.write("a", 1, Spec(mode=Mode.IN_GRAPH, replicas=tasks)))
        api = server.api()
        self.caches, self.cluster_state = (
            ClusterCaches(api, "", lambda _key: None),
            ClusterState(api),
        )
        self.pod_groups = PodGroups(api, "", lambda _key: None)
        snapshotter = Snapshotter(self.caches, self.cluster_state, Policy(), self.pod_groups)
        self.admission = Admission(snapshotter, self.cluster_state, lambda: True)
        self.publisher = OptionsPublisher(
            api, "", snapshotter, self.cluster_state, lambda: True, lambda: True
        )

    def begin(self) -> None:
        for each in (self.caches, self.cluster_state, self.pod_groups, self.publisher):
            each.start()

    def decide(self) -> Verdict:
        return self.admission.decide(custom_resource.read(self.server.objects[RUN]))

    def end(self) -> None:
        for each in (self.publisher, self.caches, self.cluster_state, self.pod_groups):
            each.stop()
        self.server.close()


@pytest.fixture
def beginner() -> Iterator[Beginner]:
    made = Beginner()
    yield made
    made.end()


def test_nobody_is_refused_before_the_nodes_were_seen(beginner: Beginner) -> None:
    """While the list of nodes is missing, a launch waits; then the operator decides on the
    launch.
    """
    away = Refusal(503, "ServiceUnavailable", "away")
    beginner.server.refuses = lambda _method, path: away if path == NODES else None
    beginner.begin()
    nodes = beginner.caches.nodes
    others = [
        each for each in (*beginner.caches.all, *beginner.cluster_state.all) if each is not nodes
    ]
    wait_until(lambda: all(each.synced.is_set() for each in others) and nodes.problem is not None)
    verdict = beginner.decide()
    assert isinstance(verdict, Waiting)
    assert "the operator to read the state of the cluster" in str(verdict.sentence)
    beginner.server.refuses = lambda _method, _path: None
    wait_until(nodes.synced.is_set)
    wait_until(lambda: beginner.decide() == Admitted())


def test_an_operator_that_may_not_see_nodes_decides_without(beginner: Beginner) -> None:
    """If the operator has no right to list nodes, launches do not wait for them."""
    forbidden = Refusal(403, "Forbidden")
    beginner.server.refuses = lambda _method, path: forbidden if path == NODES else None
    beginner.begin()
    wait_until(lambda: beginner.decide() == Admitted())
