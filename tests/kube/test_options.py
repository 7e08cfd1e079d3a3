"""Optional servers of the project's own node, kwok and Volcano. They are built and started only on
request: `make test-kube WITH=kwok,volcano`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from kubenode import kwok
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest
from support.kube.workloads import job, spec

TOLERATIONS = [{"key": kwok.KEY, "operator": "Exists"}]


def on_fake_nodes(template: Object) -> Object:
    """Return a pod's spec restricted to fake nodes."""
    return {**template, "nodeSelector": {"type": "kwok"}, "tolerations": TOLERATIONS}


@pytest.fixture
def fake_nodes(cluster: UnderTest) -> Iterator[int]:
    """Forty fake nodes of 8 CPUs during a test."""
    assert cluster.own
    kwok.fake_nodes(cluster.own.first, 40, "8", "32Gi")
    yield 40
    cluster.kubectl("delete", "node", "-l", kwok.LABEL)


@pytest.mark.needs("kwok", "node-inside")
def test_fake_nodes_run_many_pods(cluster: UnderTest, kube: Kubectl, fake_nodes: int) -> None:
    """A Job of 200 pods runs on 40 fake nodes, ends as its annotations say, and is deleted."""
    nodes = cluster.kubectl.every("node", kwok.LABEL)
    assert [each["status"]["capacity"]["cpu"] for each in nodes] == ["8"] * fake_nodes
    kube.apply(job("many", on_fake_nodes(spec(cluster.busybox)), 200))
    kube.wait("job", "many", lambda found: found["status"].get("ready") == 200, "all run")
    pods = kube.every("pod", "app=many")
    assert len({each["spec"]["nodeName"] for each in pods}) == fake_nodes
    assert all(each["status"]["containerStatuses"][0]["started"] for each in pods)
    kube("annotate", "pod", "-l", "app=many", "kwok.tfcluster/exit-code=0")
    kube.wait("job", "many", lambda found: found["status"].get("succeeded") == 200, "all ended")
    kube.apply(job("stopped", on_fake_nodes(spec(cluster.busybox)), 50))
    kube.wait("job", "stopped", lambda found: found["status"].get("ready") == 50, "all run")
    kube.delete("job", "stopped")
    wait_until(lambda: not kube.every("pod", "app=stopped"), "its pods are gone", seconds=120)


@pytest.mark.needs("volcano", "kwok", "node-inside")
def test_volcano_starts_a_gang_whole_or_not_at_all(
    cluster: UnderTest, kube: Kubectl, fake_nodes: int
) -> None:
    """If two gangs do not fit together, Volcano starts all of one and nothing of the other."""

    def gang(name: str) -> list[Object]:
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": 30, "queue": "default"},
        }
        template = on_fake_nodes(spec(cluster.busybox)) | {"schedulerName": "volcano"}
        template["containers"][0]["resources"] = {"requests": {"cpu": "7"}}
        members = job(name, template, 30)
        labels = members["spec"]["template"]["metadata"]
        labels["annotations"] = {"scheduling.k8s.io/group-name": name}
        return [group, members]

    def running(name: str) -> int:
        return sum(
            each["status"]["phase"] == "Running" for each in kube.every("pod", f"app={name}")
        )

    def phase(name: str) -> str:
        # A new PodGroup has no status.
        return str(kube.get("podgroup", name).get("status", {}).get("phase"))

    kube.apply(*gang("one"))
    wait_until(lambda: running("one") == 30, "one gang runs", seconds=120)
    kube.apply(*gang("two"))
    wait_until(
        lambda: phase("two") in {"Pending", "Inqueue"}, "Volcano has seen the other", seconds=120
    )
    wait_until(
        lambda: "NotEnoughResources" in json.dumps(kube.get("podgroup", "two")["status"]),
        "Volcano says why the other waits",
        seconds=120,
    )
    assert running("two") == 0
    kube.delete("job", "one")
    wait_until(lambda: running("two") == 30, "the other gang runs", seconds=120)


@pytest.mark.needs("volcano", "node-inside")
def test_volcano_refuses_a_wrong_queue(cluster: UnderTest) -> None:
    """Volcano's admission refuses a queue with a negative weight, and says why."""
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": f"test-{uuid.uuid4().hex[:8]}"},
        "spec": {"weight": -1},
    }
    assert "weight" in cluster.kubectl.refused(queue)
