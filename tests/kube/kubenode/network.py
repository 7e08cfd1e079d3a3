"""The network between nodes: a bridge on node-1; it exists only in the nodes' own namespaces."""

from __future__ import annotations

from .node import Node

BRIDGE = "nodes"


def make_bridge(node: Node) -> None:
    """Give node-1 its address, on a bridge that other nodes are plugged into."""
    ip(node, f"link add {BRIDGE} type bridge")
    ip(node, f"address add {node.ip}/24 dev {BRIDGE}")
    ip(node, f"link set {BRIDGE} up")


def ip(node: Node, arguments: str) -> None:
    """Change the network of a node by its own ip(8)."""
    node.run(["ip", *arguments.split()])
