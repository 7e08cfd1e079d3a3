"""Access to a run's TensorFlow servers, tried by clients in other pods and namespaces."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.kube.kubectl import Kubectl, is_ready
from support.kube.operator import Tenant
from support.kube.workloads import pod

from tfcluster_magic.spec import Mode, Replicas, ReplicaSet, Resources, Spec

NOTEBOOK = {"tfcluster.dev/notebook": "true"}
ASK = """
import os, signal, sys
import tensorflow as tf

print("asking", sys.argv[1], flush=True)
signal.alarm(int(sys.argv[2]))  # by the kernel: TensorFlow waits without letting Python run
with tf.compat.v1.Session("grpc://" + sys.argv[1]) as session:
    print("reached", sorted({device.name for device in session.list_devices()}), flush=True)
os._exit(0)
"""
CONNECT = """
import signal, socket, sys

print("asking", sys.argv[1], flush=True)
signal.alarm(int(sys.argv[2]))
host, _colon, port = sys.argv[1].rpartition(":")
socket.create_connection((host, int(port)))
print("reached")
"""
"""A client that only connects. It needs no TensorFlow, whose start takes seconds of CPU time; a
client that cannot connect cannot send a request either.
"""
REACHED, REFUSED = "reached ['/job:", f"ended with {128 + signal.SIGALRM}"
PATIENCE, SECONDS = "90", "8"
"""Timeouts in seconds for clients that should reach a server, and for those that should not."""

pytestmark = pytest.mark.needs("rwx", "network-policy")


def in_graph(workers: int, ps: int) -> Spec:
    """Return a spec of bare TensorFlow servers."""
    size = Resources(memory="1Gi")  # a CPU limit would stretch TensorFlow's start to a minute
    counts = {"worker": workers, "ps": ps}
    replicas = {kind: Replicas(count=count, resources=size) for kind, count in counts.items()}
    return Spec(mode=Mode.IN_GRAPH, replicas=ReplicaSet(**replicas))


def client(tenant: Tenant, kube: Kubectl, name: str, **labels: str) -> tuple[Kubectl, str]:
    """Create a pod with TensorFlow in which a test can run a client."""
    made = pod(name, tenant.image, resources={"requests": {"cpu": "10m", "memory": "256Mi"}})
    made["metadata"]["labels"] |= labels
    kube.apply(made)
    return kube, name


def test_only_the_owners_notebook_reaches_the_servers(
    tenant: Tenant, new_namespace: Callable[[], Kubectl]
) -> None:
    """A TensorFlow client in the owner's notebook uses the servers of a run; no other pod reaches
    their port.

    The other pods are a pod in another namespace (even with a notebook's label), a pod in the hub's
    namespace, another pod of the owner, and a task of the owner's other run.
    """
    kube, others, hub = tenant.kubectl, new_namespace(), new_namespace()
    # The policy that the hub makes in a user's namespace: notebooks may send traffic out, tasks and
    # other pods may not.
    kube.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "notebooks-go-out"},
            "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]},
        }
    )
    tenant.launch("shared-1", in_graph(1, 1))
    tenant.launch("other-1", in_graph(1, 0))
    notebook = client(tenant, kube, "notebook", **NOTEBOOK)
    strangers = [
        client(tenant, kube, "pod-of-mine"),
        client(tenant, others, "elsewhere", **NOTEBOOK),
        client(tenant, hub, "hub", component="hub"),
    ]
    for name in ("shared-1", "other-1"):
        tenant.phase(name, "Running", seconds=300)
    for place, name in (notebook, *strangers):
        place.wait("pod", name, is_ready, "it is ready", 90)
    (other,) = tenant.pods("other-1")
    strangers.append((kube, other["metadata"]["name"]))
    worker, ps = (
        f"{each['status']['podIP']}:2222"
        for kind in ("worker", "ps")
        for each in tenant.pods("shared-1", kind)
    )

    def ask(whom: tuple[Kubectl, str], address: str, how: str, seconds: str) -> str:
        place, name = whom
        shell = 'python3 -c "$0" "$@" 2>/dev/null; echo ended with $?'
        return place.exec(name, "sh", "-c", shell, how, address, seconds, seconds=300)

    with ThreadPoolExecutor(6) as pool:
        computes = pool.submit(ask, notebook, worker, ASK, PATIENCE)
        connects = pool.submit(ask, notebook, ps, CONNECT, PATIENCE)
        theirs = {
            name: pool.submit(ask, (place, name), worker, CONNECT, SECONDS)
            for place, name in strangers
        }
    assert REACHED in computes.result(), computes.result()
    assert "reached" in connects.result(), connects.result()
    for name, answer in theirs.items():
        assert "asking" in answer.result(), name
        assert REFUSED in answer.result(), (name, answer.result())
        assert "reached" not in answer.result(), name
    kube("delete", "networkpolicy", "notebooks-go-out")
    kube("delete", "tfcluster", "shared-1", "other-1", "--wait=false")
