"""Names in the cluster: CoreDNS on node-1, behind the Service `kube-dns`.

It is at an address of the node, as with NodeLocal DNSCache: a NetworkPolicy that limits egress
names that address (`operators.dns`) and not labels of pods. It answers only names of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import build, manifests
from .config import filled, flags
from .node import Node

ADDRESS = "10.96.0.10"
CACHING, CACHING_PORT = "coredns-caching", 5353

# As a pod asks: the name server is the Service, through kube-proxy's rules.
ASK = f"""
echo 'nameserver {ADDRESS}\noptions timeout:1 attempts:1' >/run/dns-check
mount --bind /run/dns-check /etc/resolv.conf
getent hosts kubernetes.default.svc.cluster.local
"""


def start(node: Node) -> None:
    """Start CoreDNS on node-1; returns when a name is resolved through the Service.

    Raises:
        NodeError: it ended, or gave no answer in time; kube-proxy must run for that.
    """
    manifests.apply(node, "dns.yaml")
    node.write("/etc/coredns/Corefile", filled("Corefile", node))
    node.start("coredns", [build.binary("coredns"), *flags("coredns", node)])
    node.ready("coredns", ["unshare", "--mount", "sh", "-ec", ASK])


@contextmanager
def caching(node: Node) -> Iterator[None]:
    """Another CoreDNS, that keeps for a while what it said is not there, at the node's own address
    and CACHING_PORT.
    """
    node.write("/etc/coredns/Corefile.caching", filled("Corefile.caching", node))
    node.start(CACHING, [build.binary("coredns"), "-conf=/etc/coredns/Corefile.caching"])
    try:
        yield
    finally:
        node.stop(CACHING)
        node.forget(CACHING)
