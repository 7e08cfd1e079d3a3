"""Fake nodes, an option: kwok acts as the kubelet of nodes and pods that do not run anywhere.

They show how the control plane handles hundreds of pods. A fake node takes only pods that tolerate
`kwok.x-k8s.io/node=fake`, unless it is made without this taint. Nothing runs in a fake pod: it is
Running until it is deleted or told to exit (config/kwok-stages.yaml).
"""

from __future__ import annotations

import json

from . import build, manifests
from .config import CONFIG, flags
from .errors import NodeError
from .node import Node
from .pki import Pki

SERVER = "kwok"
LABEL = "type=kwok"
KEY = "kwok.x-k8s.io/node"
# from kwok; the other stages are the project's own
STAGES = ("node-initialize.yaml", "pod-ready.yaml")


def start(node: Node) -> None:
    """Start kwok on node-1; return when it has made a fake node Ready, which is then deleted.

    Raises:
        NodeError: it ended, or did nothing in time.
    """
    Pki(node).user("kwok", "/CN=kwok")
    manifests.apply(node, "kwok.yaml")
    node.write("/etc/kwok/stages.yaml", stages())
    node.start("kwok", [build.binary("kwok"), *flags("kwok", node)])
    make(node, ["fake-check"])
    manifests.kubectl(node, "delete", "node", "fake-check")


def stages() -> str:
    """Return the stages of fake nodes and pods: kwok's own and the project's.

    Raises:
        NodeError: kwok is not built, or its stage of a running pod has changed.
    """
    found = {f.name: f.read_text() for f in build.resources("kwok", "stages") if f.name in STAGES}
    # Add `started: true` to each container, as kubelet does: kwok's own stage sets it only on some
    # init containers.
    before, ready, after = found["pod-ready.yaml"].partition("        ready: true\n")
    if not ready:
        raise NodeError("kwok's stage pod-ready.yaml does not say `ready: true` any more")
    found["pod-ready.yaml"] = f"{before}{ready}        started: true\n{after}"
    return "\n---\n".join([*found.values(), (CONFIG / "kwok-stages.yaml").read_text()])


def fake_nodes(node: Node, count: int, cpu: str, memory: str, *, taint: bool = True) -> None:
    """Make sure that fake-1 to fake-COUNT exist; new ones get the given size.

    Raises:
        NodeError: kwok did not make them Ready.
    """
    there = manifests.kubectl(node, "get", "node", "-l", LABEL, "-o", "name").split()
    wanted = [f"fake-{number}" for number in range(1, count + 1)]
    missing = [name for name in wanted if f"node/{name}" not in there]
    if missing:
        make(node, missing, cpu, memory, taint=taint)


def make(
    node: Node, names: list[str], cpu: str = "1", memory: str = "1Gi", *, taint: bool = True
) -> None:
    """Make fake nodes, and wait until they are Ready."""
    size = {"cpu": cpu, "memory": memory, "pods": "1000"}
    taints = [{"key": KEY, "value": "fake", "effect": "NoSchedule"}] if taint else []
    labels = {"type": "kwok", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {KEY: "fake"},
                "labels": {**labels, "kubernetes.io/hostname": name},
            },
            "spec": {"taints": taints},
            "status": {"capacity": size, "allocatable": size},
        }
        for name in names
    ]
    # Created instead of applied, because apply would omit the status, which has the nodes' size.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
    manifests.kubectl(node, "create", "-f-", stdin=text)
    ready = ["--for=condition=Ready", "--timeout=60s"]
    manifests.kubectl(node, "wait", *(f"node/{name}" for name in names), *ready)
