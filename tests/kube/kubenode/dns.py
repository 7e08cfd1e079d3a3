"""DNS of the cluster: CoreDNS on node-1, behind the Service `kube-dns`.

It has an address of the node, as NodeLocal DNSCache does. A NetworkPolicy that limits egress
therefore names this address (`dns` in the operator's policy) instead of pod labels. It answers only
for names of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import build, manifests
from .config import filled, flags
from .node import Node

ADDRESS = "10.96.0.10"
CACHING, CACHING_PORT = "coredns-caching", 5353

# This script resolves a name as a pod does: through the Service and kube-proxy's rules.
ASK = f"""
echo 'nameserver {ADDRESS}\noptions timeout:1 attempts:1' >/run/dns-check
mount --bind /run/dns-check /etc/resolv.conf
getent hosts kubernetes.default.svc.cluster.local
"""


def start(node: Node) -> None:
    """Start CoreDNS on node-1; return when a name resolves through the Service.

    Raises:
        NodeError: CoreDNS ended, or gave no answer in time; kube-proxy must be running.
    """
    manifests.apply(node, "dns.yaml")
    node.write("/etc/coredns/Corefile", filled("Corefile", node))
    node.start("coredns", [build.binary("coredns"), *flags("coredns", node)])
    node.ready("coredns", ["unshare", "--mount", "sh", "-ec", ASK])


@contextmanager
def caching(node: Node) -> Iterator[None]:
    """Run another CoreDNS at the node's address and CACHING_PORT. It remembers for a while that a
    name is missing.
    """
    node.write("/etc/coredns/Corefile.caching", filled("Corefile.caching", node))
    node.start(CACHING, [build.binary("coredns"), "-conf=/etc/coredns/Corefile.caching"])
    try:
        yield
    finally:
        node.stop(CACHING)
        node.forget(CACHING)
