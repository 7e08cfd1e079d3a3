"""Measured usage of pods, an option: metrics-server on node-1, behind `metrics.k8s.io`.

It asks each kubelet every 15 seconds; a pod's value is the mean between two readings. Its roles
come from its own installer.
"""

from __future__ import annotations

from . import build, manifests
from .config import flags
from .node import Node
from .pki import Pki

SERVER = "metrics-server"


def start(node: Node) -> None:
    """Start metrics-server on node-1; return when the API server serves its values for a node.

    Raises:
        NodeError: metrics-server ended, or served nothing in time.
    """
    served = "metrics-server.kube-system.svc"
    Pki(node).user(SERVER, f"/CN={SERVER}", [f"DNS:{served}"])
    manifests.apply(node, "metrics.yaml")
    node.start(SERVER, [build.binary(SERVER), *flags(SERVER, node)])
    admin = f"--kubeconfig={node.state}/pki/admin.kubeconfig"
    where = f"/apis/metrics.k8s.io/v1beta1/nodes/{node.name}"
    node.ready(SERVER, [build.binary("kubectl"), admin, "get", "--raw", where])
