"""Enforcement of NetworkPolicies: on every node a server decides about the first packet of each
connection of the node's pods.

It covers connections between pods of one or two nodes, between pods and anything outside, and from
pods to servers of the node (the API server, DNS). It covers neither connections from the node to
its own pods, which Kubernetes always allows for probes, nor pods on the node's network, for which
Kubernetes defines no policy. It fails closed: without the server no new connection passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import build, manifests
from .commands import say, succeeds
from .config import flags
from .node import ENVIRONMENT, Node

# The server's own nftables rule has the action `queue`; without CONFIG_NFT_QUEUE in the kernel, the
# server logs an error every second. The iptables rules `RULES` feed the same queue.
PROBE = "add table inet probe; add chain inet probe p; add rule inet probe p queue num 100"
JUDGE = "-m conntrack --ctstate NEW -j NFQUEUE --queue-num 100"
TABLE = "kube-network-policies"
RULES = (
    f"iptables -w -A FORWARD {JUDGE}",
    f"iptables -w -A INPUT -s 10.244.0.0/16 ! -i lo {JUDGE}",
)

# This client connects from an address that the node never gives to a pod; the connection succeeds
# once the server decides about connections.
CHECK = """
trap 'ip netns delete policy-check' EXIT
ip netns delete policy-check 2>/dev/null || true
ip netns add policy-check
ip link add policy-check type veth peer name eth0 netns policy-check
ip link set policy-check up
ip route replace "$2" dev policy-check
ip -n policy-check link set eth0 up
ip -n policy-check address add "$2/32" dev eth0
ip -n policy-check route add "$1" dev eth0
ip -n policy-check route add default via "$1"
timeout 2 ip netns exec policy-check bash -c 'exec 3<>"/dev/tcp/$0/6443"' "$3"
"""


def start(node: Node, first: Node) -> None:
    """Enforce policies on `node`; return when the server has decided about a connection to the API
    server.

    Raises:
        NodeError: the server ended, or makes no decision.
    """
    manifests.apply(first, "policy.yaml")
    if not can_queue(node):
        say(f"{node.name}: no CONFIG_NFT_QUEUE in this kernel: iptables passes packets to policies")
        node.run(["sh", "-ec", "\n".join(RULES)])
    program = build.binary("kube-network-policies")
    node.start("kube-network-policies", [program, *flags("kube-network-policies", node)])
    never_given = f"10.244.{node.number}.254"  # a node has at most 240 pods (kubelet.yaml)
    check = ["sh", "-ec", CHECK, "sh", node.ip, never_given, first.ip]
    node.ready("kube-network-policies", check)


@contextmanager
def unenforced(node: Node, first: Node) -> Iterator[None]:
    """Let every connection pass in the block, as if NetworkPolicies were not enforced."""
    node.stop("kube-network-policies")
    undone = [f"while {rule.replace(' -A ', ' -D ')}; do :; done" for rule in RULES]
    undone.append(f"nft delete table inet {TABLE}")
    node.run(["sh", "-c", "; ".join(f"{each} 2>/dev/null || true" for each in undone)])
    # No rule may remain, because it would drop packets.
    node.run(["sh", "-c", "! iptables-save | grep NFQUEUE"])
    try:
        yield
    finally:
        start(node, first)


def can_queue(node: Node) -> bool:
    """Return whether the kernel accepts an nftables rule that queues packets. The rule is checked,
    but not added.
    """
    check = node.inside(["nft", "--check", PROBE])
    return succeeds(check, seconds=20, env=ENVIRONMENT)
