"""Two nodes: their pods reach each other, and NetworkPolicies are enforced on both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl, Object, is_ready
from support.kube.under_test import UnderTest
from support.kube.workloads import WEB, fetch, pod, service, web

CLOSED = {"closed": "true"}
NOTHING_IN: Object = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "policy"},
    "spec": {"podSelector": {"matchLabels": CLOSED}, "policyTypes": ["Ingress"]},
}
# Allows only DNS queries; the API server, for example, is out of reach.
ONLY_NAMES_OUT: Object = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "policy"},
    "spec": {
        "podSelector": {},
        "policyTypes": ["Egress"],
        "egress": [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}],
    },
}


def on(node: str, manifest: Object) -> Object:
    """Return the pod assigned to a node."""
    selector = {"kubernetes.io/hostname": node}
    return {**manifest, "spec": {**manifest["spec"], "nodeSelector": selector}}


def reached(kube: Kubectl, client: str, host: str) -> bool:
    """Return whether a pod gets a page from a host."""
    return kube.succeeds(client, *fetch(host))


@pytest.fixture
def two(cluster: UnderTest) -> tuple[str, str]:
    """The names of two ready nodes."""
    names = [each["metadata"]["name"] for each in cluster.kubectl.every("node") if is_ready(each)]
    assert len(names) >= 2, names
    return names[0], names[1]


@pytest.mark.needs("two-nodes")
def test_pods_of_two_nodes_reach_each_other(
    cluster: UnderTest, kube: Kubectl, two: tuple[str, str]
) -> None:
    """A pod reaches a pod on the other node by its address and by the name of its Service."""
    for here, there in (two, two[::-1]):
        server, client = f"server-{there}", f"client-{here}"
        kube.apply(on(there, web(server, cluster.busybox)), service(server, server, WEB))
        kube.apply(on(here, pod(client, cluster.busybox)))
        address = kube.running(server)["status"]["podIP"]
        kube.running(client)
        wait_until(lambda: reached(kube, client, address), "by address", seconds=90)  # noqa: B023
        wait_until(lambda: reached(kube, client, server), "by name", seconds=90)  # noqa: B023


@pytest.mark.needs("two-nodes", "network-policy")
def test_policies_hold_on_every_node(
    cluster: UnderTest, kube: Kubectl, two: tuple[str, str]
) -> None:
    """A NetworkPolicy closes pods on both nodes to clients on the same and on the other node."""
    for node in two:
        server = on(node, web(f"server-{node}", cluster.busybox))
        server["metadata"]["labels"] |= CLOSED
        kube.apply(server, on(node, pod(f"client-{node}", cluster.busybox)))
    addresses = [kube.running(f"server-{node}")["status"]["podIP"] for node in two]
    clients = [f"client-{node}" for node in two]
    for client in clients:
        kube.running(client)
    pairs = [(client, address) for client in clients for address in addresses]

    def wait_for(is_reached: bool, what: str) -> None:
        def is_so(client: str, address: str) -> bool:
            return reached(kube, client, address) is is_reached

        # In parallel, because a blocked client waits two seconds.
        with ThreadPoolExecutor(len(pairs)) as pool:
            every = [
                pool.submit(wait_until, partial(is_so, *pair), f"{pair} {what}", seconds=90)
                for pair in pairs
            ]
        for each in every:
            each.result()

    wait_for(True, "open at first")
    kube.apply(NOTHING_IN)
    wait_for(False, "closed")
    kube.delete("networkpolicy", "policy")
    wait_for(True, "open again")


@pytest.mark.needs("network-policy")
def test_a_policy_keeps_a_pod_from_servers_of_the_node(cluster: UnderTest, kube: Kubectl) -> None:
    """A pod that may only send DNS queries resolves names, but does not reach the API server."""
    kube.apply(pod("client", cluster.busybox))
    kube.running("client")

    def connects() -> bool:
        connect = "timeout 2 nc kubernetes.default.svc.cluster.local 443 </dev/null"
        return kube.succeeds("client", "sh", "-c", connect)

    wait_until(connects, "the API server is reached", seconds=90)
    kube.apply(ONLY_NAMES_OUT)
    wait_until(lambda: not connects(), "the API server is not reached", seconds=90)
    assert kube.succeeds("client", "nslookup", "kubernetes.default.svc.cluster.local")
    kube.delete("networkpolicy", "policy")
    wait_until(connects, "the API server is reached again", seconds=90)
