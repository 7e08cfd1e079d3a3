"""Killed servers of the cluster: objects survive the API server's death, and a node without kubelet
is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubenode import control_plane
from kubenode.commands import wait_until
from kubenode.node import Node
from support.kube.kubectl import Kubectl, Object, condition, is_ready
from support.kube.under_test import UnderTest
from support.kube.workloads import pod, spec

# Only `--long` runs these tests, because test_upgrade.py kills the API server too, and
# test_recovery.py a whole node.
pytestmark = [pytest.mark.alone, pytest.mark.long]

KINDS = "configmaps,pods,serviceaccounts,clusterroles,nodes"
AFTER = {"effect": "NoExecute", "tolerationSeconds": 1}
AT_ONCE = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", **AFTER}
    for what in ("unreachable", "not-ready")
]


@pytest.mark.needs("node-inside")
def test_an_api_server_that_was_killed_keeps_every_object(
    cluster: UnderTest, kube: Kubectl
) -> None:
    """After a kill and a restart, the API server has every object, and no pod was restarted."""
    assert cluster.own
    node = cluster.own.first
    kube("create", "configmap", "kept", "--from-literal=word=before")
    kube.apply(pod("kept", cluster.busybox))
    kube.running("kept")
    before = _uids(kube)
    node.stop("kube-apiserver", "KILL")
    try:
        assert not kube.answers()
    finally:
        node.start_again("kube-apiserver")
        control_plane.ready(node)
    assert before <= _uids(kube)
    assert kube.get("configmap", "kept")["data"] == {"word": "before"}
    assert kube.running("kept")["status"]["containerStatuses"][0]["restartCount"] == 0
    kube("create", "configmap", "new", "--from-literal=word=after")
    for server in ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"):
        assert node.alive(server), server


def _uids(kube: Kubectl) -> set[str]:
    """Return the UIDs of objects of the test's namespace and of the cluster; other namespaces are
    still changing.
    """
    return set(kube("get", KINDS, "-o=jsonpath={.items[*].metadata.uid}").split())


@pytest.fixture
def without_kubelet(cluster: UnderTest) -> Iterator[Node]:
    """The second node, whose kubelet a test may kill; it is started again afterwards."""
    assert cluster.own
    node = cluster.own.second
    yield node
    if not node.alive("kubelet"):
        node.start_again("kubelet")
    cluster.kubectl.wait("node", node.name, is_ready, "it is ready again")


@pytest.mark.needs("two-nodes", "node-inside")
def test_a_lost_node_is_noticed(cluster: UnderTest, kube: Kubectl, without_kubelet: Node) -> None:
    """A node whose kubelet dies is noticed. Its pods are replaced, and end once the kubelet is
    back.
    """
    lost = without_kubelet.name
    kube.apply(_preferring(lost, cluster.busybox))
    kube.wait("deployment", "web", _is_available, "its pod is available")
    (first,) = kube.every("pod", "app=web")
    assert first["spec"]["nodeName"] == lost

    without_kubelet.stop("kubelet", "KILL")
    cluster.kubectl.wait("node", lost, _is_unknown, "its loss is noticed", seconds=90)

    def replaced() -> bool:
        pods = kube.every("pod", "app=web")
        return any(is_ready(each) and each["spec"]["nodeName"] != lost for each in pods)

    wait_until(replaced, "the pod is replaced on another node", seconds=90)
    assert "deletionTimestamp" in kube.get("pod", first["metadata"]["name"])["metadata"]

    without_kubelet.start_again("kubelet")
    cluster.kubectl.wait("node", lost, is_ready, "it is ready again")
    kube.gone("pod", first["metadata"]["name"])


def _preferring(node: str, image: str) -> Object:
    """Return a Deployment of one pod that prefers `node`."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    preference = {"weight": 100, "preference": {"matchExpressions": [here]}}
    template = spec(image) | {"restartPolicy": "Always", "tolerations": AT_ONCE}
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    template["affinity"] = {"nodeAffinity": {key: [preference]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": template},
        },
    }


def _is_available(found: Object) -> bool:
    return condition(found, "Available") == "True"


def _is_unknown(found: Object) -> bool:
    return condition(found, "Ready") == "Unknown"
