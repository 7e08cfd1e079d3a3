"""Fake nodes, an option: kwok plays the kubelet of nodes and pods that run nowhere.

They show what the control plane does with hundreds of pods. A fake node takes only pods that
tolerate `kwok.x-k8s.io/node=fake`, unless it is made without that taint. Nothing runs in a fake
pod: it is Running until it is deleted or told to exit (config/kwok-stages.yaml).
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
STAGES = ("node-initialize.yaml", "pod-ready.yaml")  # those of kwok; the others are ours


def start(node: Node) -> None:
    """Start kwok on node-1; returns when it has made a fake node Ready, which it removes again.

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
    """What becomes of fake nodes and pods: kwok's own words and ours.

    Raises:
        NodeError: kwok is not built, or its words for a pod that runs are not those we know.
    """
    found = {f.name: f.read_text() for f in build.resources("kwok", "stages") if f.name in STAGES}
    # A kubelet says of each container whether it has started, kwok of some init containers alone.
    before, ready, after = found["pod-ready.yaml"].partition("        ready: true\n")
    if not ready:
        raise NodeError("kwok's stage pod-ready.yaml does not say `ready: true` any more")
    found["pod-ready.yaml"] = f"{before}{ready}        started: true\n{after}"
    return "\n---\n".join([*found.values(), (CONFIG / "kwok-stages.yaml").read_text()])


def fake_nodes(node: Node, count: int, cpu: str, memory: str, *, taint: bool = True) -> None:
    """Let there be `count` fake nodes, fake-1 to fake-COUNT, each of that size.

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
    # Not applied: that would leave out the status, which says how large they are.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
    manifests.kubectl(node, "create", "-f-", stdin=text)
    ready = ["--for=condition=Ready", "--timeout=60s"]
    manifests.kubectl(node, "wait", *(f"node/{name}" for name in names), *ready)
