"""What pods really use, an option: metrics-server, as a server of node-1, behind `metrics.k8s.io`.

It asks each kubelet every 15 seconds; what it tells of a pod is the mean between two of these. Its
roles are those of its own installer.
"""

from __future__ import annotations

from . import build, manifests
from .config import flags
from .node import Node
from .pki import Pki

SERVER = "metrics-server"


def start(node: Node) -> None:
    """Start it on node-1; returns when the API server tells of a node what it tells.

    Raises:
        NodeError: it ended, or told nothing in time.
    """
    served = "metrics-server.kube-system.svc"
    Pki(node).user(SERVER, f"/CN={SERVER}", [f"DNS:{served}"])
    manifests.apply(node, "metrics.yaml")
    node.start(SERVER, [build.binary(SERVER), *flags(SERVER, node)])
    admin = f"--kubeconfig={node.state}/pki/admin.kubeconfig"
    where = f"/apis/metrics.k8s.io/v1beta1/nodes/{node.name}"
    node.ready(SERVER, [build.binary("kubectl"), admin, "get", "--raw", where])
