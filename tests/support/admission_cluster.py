"""A simulated Kubernetes cluster with nodes and namespaces, and its admission of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.kube_server import KubeServer
from support.polling import wait_until
from tfcluster_magic.kube.api.labels import TENANT, run_labels
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator.cluster_state import ClusterCaches, ClusterState
from tfcluster_magic.operator.scheduling import snapshot
from tfcluster_magic.operator.scheduling.admission import Admission, Verdict
from tfcluster_magic.operator.scheduling.published_options import OptionsPublisher
from tfcluster_magic.operator.scheduling.snapshot import ClusterSnapshot, Snapshotter
from tfcluster_magic.operator.scheduling.volcano import PodGroups
from tfcluster_magic.spec import (
    Mode,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    TaskType,
    resource_form,
)

NODES, PODS, RUNS = (
    "/api/v1/nodes",
    "/api/v1/namespaces/{}/pods",
    "/apis/tfcluster.dev/v1beta1/namespaces/{}/tfclusters",
)


class Place:
    """A simulated Kubernetes cluster with nodes and namespaces, and the operator's admission of
    runs to it.
    """

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008
        self.server = KubeServer()
        self.api = self.server.api()
        self.caches = ClusterCaches(self.api, "", lambda _key: None)
        self.cluster_state = ClusterState(self.api)
        self.pod_groups = PodGroups(self.api, "", lambda _key: None)
        self.snapshotter = Snapshotter(self.caches, self.cluster_state, policy, self.pod_groups)
        self.enforced: bool | None = True
        self.admission = Admission(self.snapshotter, self.cluster_state, lambda: self.enforced)
        self.publisher = OptionsPublisher(
            self.api, "", self.snapshotter, self.cluster_state, lambda: self.enforced, lambda: True
        )

    def begin(self) -> None:
        """Start the caches and wait until they have all objects."""
        self.caches.start()
        self.cluster_state.start()
        self.pod_groups.start()
        self.seen()

    def seen(self) -> None:
        """Wait until the caches have all objects of the server."""

        def marks(found: Any) -> set[tuple[str, str]]:
            return {(o["metadata"]["uid"], o["metadata"]["resourceVersion"]) for o in found}

        def everything() -> bool:
            caches = (*self.caches.all, *self.cluster_state.all)
            wanted = [o for path, o in self.server.objects.items() if "/configmaps/" not in path]
            have = marks(each for cache in caches for each in cache.every())
            told = self.pod_groups.known and all(c.synced.is_set() for c in caches)
            return told and marks(wanted) <= have

        wait_until(everything)
        self.look()

    def look(self) -> ClusterSnapshot:
        """Read all runs and nodes now instead of after half a second."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshot, "MAX_AGE", -1.0)
            return self.snapshotter.current()

    def end(self) -> None:
        """Stop the caches and the server."""
        self.caches.stop()
        self.cluster_state.stop()
        self.pod_groups.stop()
        self.server.close()

    def node(self, name: str, cpu: int) -> None:
        """Create a node."""
        status = {
            "allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.put(f"{NODES}/{name}", {"spec": {}, "status": status})

    def tenant(self, name: str, quota: str = "") -> None:
        """Create a user's namespace with the three claims that every run uses, and a quota of this
        many cores.
        """
        self.server.put(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {TENANT: "true"}}})
        for claim in ("data", "log", "workspace"):
            where = f"/api/v1/namespaces/{name}/persistentvolumeclaims/{claim}"
            self.server.put(where, {"spec": {"accessModes": ["ReadWriteMany"]}})
        if quota:
            hard = {"requests.cpu": quota, "requests.memory": f"{quota}Gi"}
            where = f"/api/v1/namespaces/{name}/resourcequotas/tasks"
            self.server.put(where, {"spec": {"hard": hard}, "status": {"hard": hard}})

    def run(self, namespace: str, name: str, workers: int, cpu: float, **more: Any) -> None:
        """Create the object of a run, as a launch does."""
        size = Resources(cpu=cpu, memory="1Gi")
        tasks = ReplicaSet(worker=Replicas(count=workers, resources=size))
        spec = Spec(mode=Mode.IN_GRAPH, replicas=tasks, **more)
        cluster, _dash, number = name.rpartition("-")
        path = f"{RUNS.format(namespace)}/{name}"
        self.server.put(path, custom_resource.write(cluster, int(number), spec))

    def say(self, namespace: str, name: str, **status: Any) -> None:
        """Write a run's status, as the operator does."""
        path = f"{RUNS.format(namespace)}/{name}"
        told = resource_form.write(Status, status)
        self.server.put(path, {**self.server.objects[path], "status": told})
        self.seen()

    def pod(self, namespace: str, run: str, index: int, node: str, cpu: str, **status: str) -> None:
        """Create a pod of a run."""
        name = f"{run}-worker-{index}"
        head = {"labels": run_labels(run, "u", TaskType.WORKER)}
        container = {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        spec = {"containers": [container], **({"nodeName": node} if node else {})}
        path = f"{PODS.format(namespace)}/{name}"
        self.server.put(path, {"metadata": head, "spec": spec, "status": status})

    def decide(self, namespace: str, name: str) -> Verdict:
        """Return the operator's decision on a run."""
        found = self.server.objects[f"{RUNS.format(namespace)}/{name}"]
        return self.admission.decide(custom_resource.read(found))


def two_nodes() -> Place:
    """Yield a cluster with two nodes of four cores, and two users."""
    made = Place()
    for name in ("node-1", "node-2"):
        made.node(name, 4)
    for name in ("alice", "bob"):
        made.tenant(name)
    return made


@pytest.fixture
def there() -> Iterator[Place]:
    """Yield a cluster with two nodes and two users, without PodGroups."""
    made = two_nodes()
    yield made
    made.end()
