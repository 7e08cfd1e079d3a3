"""etcd, the API server, the controller manager and the scheduler, set up as in a usual distribution
of Kubernetes.

Each server has its own identity, and controllers use their own service accounts, so that a missing
RBAC rule causes a failure here too. Their flags are in `config/`.
"""

from __future__ import annotations

from pathlib import Path

from . import build
from .config import flags
from .node import Node

FIRST = ("etcd", "kube-apiserver")
"""Servers that the others need, in the order of their start."""


def start(node: Node) -> None:
    """Start the control plane on `node`; return when the API server is ready.

    Raises:
        NodeError: a server ended or did not answer in time.
    """
    for server in FIRST:
        node.start(server, [build.binary(server), *flags(server, node)])
    ready(node)
    for server in ("kube-controller-manager", "kube-scheduler"):
        node.start(server, [build.binary(server), *flags(server, node)])


def ready(node: Node) -> None:
    """Wait until the API server of `node` is ready.

    Raises:
        NodeError: it or etcd ended, or 60 seconds have passed.
    """
    admin = f"--kubeconfig={node.state}/pki/admin.kubeconfig"
    question: list[str | Path] = [build.binary("kubectl"), admin, "get", "--raw", "/readyz"]
    node.ready("kube-apiserver", question, seconds=60, needs=["etcd"])
