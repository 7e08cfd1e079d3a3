"""The servers that run a node's pods: containerd with the pod network, kubelet and kube-proxy."""

from __future__ import annotations

from . import build
from .commands import wait_until
from .config import filled, flags
from .node import Node


def start(node: Node, pause: str) -> None:
    """Start containerd, kubelet and kube-proxy on a node that has its certificate.

    Args:
        node: the node on which they run.
        pause: the image that holds a pod's namespaces.

    Raises:
        NodeError: a server ended or did not answer in time.
    """
    start_containerd(node, pause)
    node.write("/etc/cni/net.d/10-pods.conflist", filled("cni.json", node, pods=node.pods))
    for server in ("kubelet", "kube-proxy"):
        node.write(f"/etc/kubernetes/{server}.yaml", filled(f"{server}.yaml", node))
        node.start(server, [build.binary(server), *flags(server, node)])


def start_containerd(node: Node, pause: str) -> None:
    """Start containerd without containers of earlier runs; its store of images is kept between
    runs.
    """
    node.write("/etc/containerd/config.toml", filled("containerd.toml", node, pause=pause))
    containers = ["ctr", "--namespace=k8s.io", "containers"]
    for _ in range(2):
        before = _begun(node)
        node.start("containerd", ["containerd"])
        node.ready("containerd", ["ctr", "version"])
        _wait_for_cri(node, before)
        left = node.run([*containers, "ls", "-q"]).split()
        if not left:
            return
        node.run([*containers, "rm", *left])
        node.stop("containerd")  # its CRI plugin still knows the removed containers


def _wait_for_cri(node: Node, before: int) -> None:
    """Wait until containerd serves kubelets, because a kubelet that connects earlier exits.
    containerd serves kubelets only some time after its first answer, once it has loaded all images.
    """
    wait_until(
        lambda: _begun(node) > before, f"containerd serves kubelets on {node.name}", seconds=120
    )


def _begun(node: Node) -> int:
    """Return how often containerd has started to serve kubelets."""
    log = node.log("containerd")
    return log.read_text().count('msg="Start streaming server"') if log.exists() else 0
