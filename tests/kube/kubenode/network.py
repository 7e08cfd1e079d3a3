"""The network between nodes: a bridge on node-1, inside the nodes' own namespaces only."""

from __future__ import annotations

from .commands import run, wait_until
from .node import Node

BRIDGE = "nodes"
# The kernel needs a route to Services before kube-proxy's rules see a packet.
SERVICES = "10.96.0.0/16"


def make_bridge(node: Node) -> None:
    """Give node-1 its address on a bridge, to which other nodes are connected."""
    ip(node, f"link add {BRIDGE} type bridge")
    ip(node, f"address add {node.ip}/24 dev {BRIDGE}")
    ip(node, f"link set {BRIDGE} up")
    ip(node, f"route add {SERVICES} dev {BRIDGE}")


def plug_in(node: Node, first: Node) -> None:
    """Connect a second node to the bridge, and route between the pods of both.

    Raises:
        NodeError: the interface of an earlier node of this name does not disappear.
    """
    # Use node-1's tools and network, but the machine's process ids, which `netns` needs.
    enter = ["nsenter", f"--target={first.pid}", "--mount", "--net", "--"]
    add = f"ip link add {node.name} type veth peer name eth0 netns {node.pid}"
    wait_until(
        # The kernel removes a lost node's interface some time after its last process.
        lambda: run([*enter, *add.split()]) == "", f"an interface to {node.name}", seconds=90,
    )  # fmt: skip
    ip(first, f"link set {node.name} up master {BRIDGE}")
    ip(node, f"address add {node.ip}/24 dev eth0")
    ip(node, "link set eth0 up")
    ip(node, f"route add {SERVICES} dev eth0")
    ip(first, f"route replace {node.pods} via {node.ip}")
    ip(node, f"route replace {first.pods} via {first.ip}")


def ip(node: Node, arguments: str) -> None:
    """Change a node's network by the program `ip` of the node itself."""
    node.run(["ip", *arguments.split()])
