"""The ingress controller, traefik on node-1, which serves Ingress and HTTPRoute objects on port 80,
and with certificates on port 443.

Its classes are called `traefik`; HTTPRoutes of any namespace attach to the Gateway `traefik` in
kube-system. It connects to pods from the node's address, which the NetworkPolicy of a pod on
another node must allow.
"""

from __future__ import annotations

from . import build, manifests
from .config import flags
from .node import Node

PORT, TLS_PORT = 80, 443


def start(node: Node) -> None:
    """Start traefik on node-1; return when it serves the Gateway.

    Raises:
        NodeError: it ended, or did not accept the Gateway in time.
    """
    definitions = [file.read_text() for file in build.resources("traefik", "gateway-api")]
    manifests.apply_texts(node, definitions)
    manifests.kubectl(
        node, "wait", "--for=condition=Established", "--timeout=120s",
        "crd/gatewayclasses.gateway.networking.k8s.io", "crd/gateways.gateway.networking.k8s.io",
        "crd/httproutes.gateway.networking.k8s.io", "crd/grpcroutes.gateway.networking.k8s.io",
    )  # fmt: skip
    manifests.apply(node, "ingress.yaml")
    kubeconfig = {"KUBECONFIG": f"{node.state}/pki/traefik.kubeconfig"}
    node.start("traefik", [build.binary("traefik"), *flags("traefik", node)], kubeconfig)
    answers = f'exec 3<>"/dev/tcp/{node.ip}/{PORT}"'
    node.ready("traefik", ["bash", "-c", answers])
    manifests.kubectl(
        node, "wait", "gateway/traefik", "--namespace=kube-system", "--timeout=120s",
        "--for=condition=Programmed",
    )  # fmt: skip
