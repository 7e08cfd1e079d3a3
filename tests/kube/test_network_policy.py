"""Enforcement of NetworkPolicies: whatever the policy grants, pods reach no metadata service, no
DNS server but the cluster's, and not the operator.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import yaml
from kubenode.commands import wait_until
from kubenode.node import Node
from kubenode.paths import ROOT
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import SYSTEM
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest
from support.kube.workloads import WEB, fetch, pod, web

from tfcluster_magic.hub.tenancy.entitlements import Entitlement, Grant
from tfcluster_magic.hub.tenancy.namespace_objects import NOTEBOOK, TenantContext
from tfcluster_magic.hub.tenancy.namespace_objects import tenant_objects as tenants_objects
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.kube.objects.run_objects import objects_of_run as runs_objects
from tfcluster_magic.spec import Metadata, Mode, Spec, TaskType, TFCluster

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


@pytest.mark.long  # test_tenancy.py and test_two_nodes.py cover policies too
@pytest.mark.needs("network-policy")
def test_a_policy_blocks_other_namespaces(
    cluster: UnderTest, new_namespace: Callable[[], Kubectl]
) -> None:
    """A NetworkPolicy blocks pods of another namespace, but not pods of its own namespace. Without
    the policy, both connect.
    """
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
    wait_until(lambda: reached(ours), "its own namespace is not blocked", seconds=90)
    assert not reached(others)
    ours.delete("networkpolicy", "own-namespace-only")
    wait_until(lambda: reached(others), "the other namespace is allowed again", seconds=90)


METADATA = (
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.7.7"),
    *("168.63.129.16", "100.100.100.200"),
)
ORDINARY = "198.51.100.7"


@contextmanager
def answering(node: Node) -> Iterator[None]:
    """Let a node answer on port WEB of the clouds' metadata addresses, and of one unused address.
    Pods reach these addresses through their node, as in a cloud.
    """
    every = (*METADATA, ORDINARY)
    node.run(["sh", "-ec", "; ".join(f"ip address add {each}/32 dev lo" for each in every)])
    try:
        node.start("metadata", ["socat", f"TCP-LISTEN:{WEB},fork,reuseaddr", "SYSTEM:true"])
        node.ready("metadata", ["bash", "-c", f"exec 3<>/dev/tcp/{ORDINARY}/{WEB}"])
        yield
    finally:
        node.stop("metadata")
        node.forget("metadata")
        node.run(["sh", "-c", "; ".join(f"ip address delete {each}/32 dev lo" for each in every)])


Made = tuple[list[Object], dict[str, str]]


def of_a_tenant(namespace: str, *networks: str) -> Made:
    """Return tenancy's NetworkPolicies for a group whose pods may connect to these networks, and
    the labels of a notebook.
    """
    grant = Entitlement(Grant(egress=networks))
    every = tenants_objects(grant, TenantContext("tfcluster-hub"), namespace=namespace)
    return [each for each in every if each["kind"] == "NetworkPolicy"], NOTEBOOK


def of_a_run(namespace: str, *networks: str) -> Made:
    """Return the operator's NetworkPolicies for a run whose tasks may connect to these networks,
    and the labels of a task.
    """
    head = Metadata(name="digits-1", cluster="digits", run=1, uid="u1", created_at=0.0)
    run = TFCluster(metadata=head, spec=Spec(mode=Mode.IN_GRAPH))
    every = runs_objects(run, Policy(egress=networks), namespace=namespace)
    made = [each for each in every if each["kind"] == "NetworkPolicy"]
    for each in made:
        # The run that owns the policy does not exist, so Kubernetes would delete the policy.
        del each["metadata"]["ownerReferences"]
    return made, labels.pod_labels("digits-1", "u1", TaskType.WORKER)


BOTH: dict[str, Callable[..., Made]] = {"notebook": of_a_tenant, "task": of_a_run}
"""Functions that return the policies and labels of each kind of pod. Each kind is tested in its own
namespace.
"""


@pytest.mark.needs("network-policy", "node-inside")
def test_no_grant_opens_a_metadata_service(
    cluster: UnderTest, new_namespace: Callable[[], Kubectl]
) -> None:
    """With egress to 0.0.0.0/0 and ::/0, a notebook and a task reach an unused address but no
    metadata address. Without the policies they reach all of them.
    """
    assert cluster.own
    places = {name: new_namespace() for name in BOTH}
    policies = {}
    for name, kube in places.items():
        policies[name], marks = BOTH[name](kube.namespace, "0.0.0.0/0", "::/0")
        client = pod("client", cluster.busybox)
        client["metadata"]["labels"] |= marks
        client["spec"]["nodeName"] = "node-1"
        kube.apply(client)
    for kube in places.values():
        kube.running("client")
    # In parallel: each closed address takes two seconds.
    connect = "(timeout 5 nc -w2 {0} {1} </dev/null && echo {0}) &"
    tried = " ".join(connect.format(each, WEB) for each in (*METADATA, ORDINARY))

    def open_ones(kube: Kubectl) -> list[str]:
        return kube.exec("client", "sh", "-c", f"{tried} wait").split()

    with answering(cluster.own.first):
        for name, kube in places.items():
            every = len(METADATA) + 1
            wait_until(lambda: len(open_ones(kube)) == every, f"a {name} reaches all", seconds=90)  # noqa: B023
            kube.apply(*policies[name])
        for name, kube in places.items():
            only = f"a {name} reaches only one"
            wait_until(lambda: open_ones(kube) == [ORDINARY], only, seconds=120)  # noqa: B023


ANSWER = """
import socket, threading
listening = socket.create_server(("", 53))
threading.Thread(target=lambda: [listening.accept()[0].close() for _ in iter(int, 1)]).start()
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asked.bind(("", 53))
while True:
    asked.sendto(b"answer", asked.recvfrom(512)[1])
"""
ASK = """
import socket, sys
for address in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        link = socket.socket(socket.AF_INET, kind)
        link.settimeout(2)
        try:
            link.connect((address, 53))
            if kind == socket.SOCK_DGRAM:
                link.send(b"question")
                link.recv(512)
            print(address)
        except OSError:
            pass
"""


@pytest.mark.needs("network-policy")
def test_only_the_clusters_dns_pods_answer(
    cluster: UnderTest, new_namespace: Callable[[], Kubectl]
) -> None:
    """A notebook and a task get DNS answers, by TCP and UDP, only from kube-system pods with the
    DNS label.

    They reach neither pods of another namespace with that label nor kube-system pods without it.
    """
    image, name = cluster.description.images["notebook"], f"dns-{uuid.uuid4().hex[:6]}"
    places, others = {kind: new_namespace() for kind in BOTH}, new_namespace()
    system = cluster.kubectl.within("kube-system")
    servers = (
        (system, name, {"k8s-app": "kube-dns"}),
        (system, f"{name}-plain", {}),
        (others, name, {"k8s-app": "kube-dns"}),
    )
    low_ports = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
    policies = {}
    try:
        for kind, kube in places.items():
            policies[kind], marks = BOTH[kind](kube.namespace)
            client = pod("client", image)
            client["metadata"]["labels"] |= marks
            kube.apply(client)
        for place, server, more in servers:
            made = pod(server, image, "python3", "-c", ANSWER)
            made["metadata"]["labels"] |= more
            made["spec"]["securityContext"]["sysctls"] = [low_ports]
            place.apply(made)
        addresses = [place.running(server)["status"]["podIP"] for place, server, _ in servers]
        for kube in places.values():
            kube.running("client")

        def answers(kube: Kubectl) -> list[str]:
            return kube.exec("client", "python3", "-c", ASK, *addresses).split()

        for kind, kube in places.items():
            all_of = f"a {kind} reaches all servers by TCP and UDP"
            wait_until(lambda: len(answers(kube)) == 6, all_of, seconds=90)  # noqa: B023
            kube.apply(*policies[kind])
        for kind, kube in places.items():
            alone = f"a {kind} reaches only the DNS pod"
            wait_until(lambda: answers(kube) == addresses[:1] * 2, alone, seconds=120)  # noqa: B023
    finally:
        system("delete", "pod", name, f"{name}-plain", "--wait=false", "--ignore-not-found")


@pytest.mark.needs("network-policy")
def test_nobody_but_prometheus_reaches_the_operator(
    cluster: UnderTest,
    installed: Installed | None,
    new_namespace: Callable[[], Kubectl],
) -> None:
    """Pods cannot reach port 8080 of the operator, except Prometheus once its policy is applied.
    The operator stays ready.
    """
    if installed is None:
        pytest.skip("the operator runs beside the tests")
    kube, system = new_namespace(), cluster.kubectl.within(SYSTEM)
    client, prometheus = (pod(name, cluster.busybox) for name in ("client", "prometheus"))
    prometheus["metadata"]["labels"]["app.kubernetes.io/name"] = "prometheus"
    kube.apply(client, prometheus)
    for name in ("client", "prometheus"):
        kube.running(name)
    (operator,) = system.every("pod", "app=tfcluster-operator")
    url = f"http://{operator['status']['podIP']}:8080/metrics"

    def reads(name: str) -> bool:
        return kube.succeeds(name, "timeout", "3", "wget", "-qO-", url)

    policy = yaml.safe_load((ROOT / "k8s" / "monitoring" / "network.yaml").read_text())
    assert not reads("client") and not reads("prometheus")
    system.apply(policy)
    try:
        wait_until(lambda: reads("prometheus"), "Prometheus reads", seconds=90)
        assert not reads("client")
    finally:
        system.delete("networkpolicy", policy["metadata"]["name"])
    system("rollout", "status", "deployment/operator", "--timeout=60s")
