"""NetworkPolicy: a namespace closed to others stays open to itself, and opens again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import UnderTest
from kubectl import Kubectl
from kubenode.commands import wait_until
from workloads import fetch, pod, web

OWN_NAMESPACE_ONLY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "own-namespace-only"},
    "spec": {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {}}]}],
    },
}


@pytest.mark.needs("network-policy")
def test_a_policy_blocks_other_namespaces(
    cluster: UnderTest, new_namespace: Callable[[], Kubectl]
) -> None:
    """A NetworkPolicy blocks another namespace and allows its own; removed, it allows all."""
    ours, others = new_namespace(), new_namespace()
    ours.apply(web("server", cluster.busybox), pod("client", cluster.busybox))
    others.apply(pod("client", cluster.busybox))
    address = ours.running("server")["status"]["podIP"]
    ours.running("client")
    others.running("client")

    def reached(kube: Kubectl) -> bool:
        return kube.succeeds("client", *fetch(address))

    wait_until(lambda: reached(ours) and reached(others), "both reach the server", seconds=90)
    ours.apply(OWN_NAMESPACE_ONLY)
    wait_until(lambda: not reached(others), "the other namespace is blocked", seconds=90)
    wait_until(lambda: reached(ours), "its own is not", seconds=90)
    assert not reached(others)
    ours.delete("networkpolicy", "own-namespace-only")
    wait_until(lambda: reached(others), "the other namespace is allowed again", seconds=90)
