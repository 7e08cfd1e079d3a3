"""NetworkPolicies: a server on every node judges the first packet of each connection of its pods.

What it sees: connections between pods of one node or of two, between pods and anything outside, and
from pods to servers of the node (the API server, DNS). What it does not: connections from the node
itself to its pods, which Kubernetes always allows (probes), and pods on the node's own network,
for which Kubernetes defines no policy. It is closed: without the server no new connection passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import build, manifests
from .commands import say, succeeds
from .config import flags
from .node import ENVIRONMENT, Node

# The server's own nftables rule has the action `queue`, which a kernel without CONFIG_NFT_QUEUE
# lacks: the server says so in its log, every second. These rules of iptables feed the same queue.
PROBE = "add table inet probe; add chain inet probe p; add rule inet probe p queue num 100"
JUDGE = "-m conntrack --ctstate NEW -j NFQUEUE --queue-num 100"
TABLE = "kube-network-policies"
RULES = (
    f"iptables -w -A FORWARD {JUDGE}",
    f"iptables -w -A INPUT -s 10.244.0.0/16 ! -i lo {JUDGE}",
)

# A connection from the address of a pod that the node never gives away: it passes when judged.
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
    """Enforce policies on `node`; returns when a connection to the API server was judged.

    Raises:
        NodeError: the server ended, or judges nothing.
    """
    manifests.apply(first, "policy.yaml")
    if not can_queue(node):
        say(f"{node.name}: no CONFIG_NFT_QUEUE in this kernel: iptables passes packets to policies")
        node.run(["sh", "-ec", "\n".join(RULES)])
    program = build.binary("kube-network-policies")
    node.start("kube-network-policies", [program, *flags("kube-network-policies", node)])
    never_given = f"10.244.{node.number}.254"  # kubelet.yaml: no more than 240 pods
    check = ["sh", "-ec", CHECK, "sh", node.ip, never_given, first.ip]
    node.ready("kube-network-policies", check)


@contextmanager
def unenforced(node: Node, first: Node) -> Iterator[None]:
    """Inside, every connection passes, as on a cluster whose network knows no policies."""
    node.stop("kube-network-policies")
    undone = [f"while {rule.replace(' -A ', ' -D ')}; do :; done" for rule in RULES]
    undone.append(f"nft delete table inet {TABLE}")
    node.run(["sh", "-c", "; ".join(f"{each} 2>/dev/null || true" for each in undone)])
    node.run(["sh", "-c", "! iptables-save | grep NFQUEUE"])  # a rule that is left would deny
    try:
        yield
    finally:
        start(node, first)


def can_queue(node: Node) -> bool:
    """Whether the kernel takes an nftables rule that queues; the rule is checked, not made."""
    check = node.inside(["nft", "--check", PROBE])
    return succeeds(check, seconds=20, env=ENVIRONMENT)
