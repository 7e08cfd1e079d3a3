"""The NetworkPolicy of a run's tasks: granted networks, DNS, and networks that stay closed. Pure.

`CLOSED_NETWORKS` is the only list of addresses that no grant opens: the metadata services of
clouds, which give any caller its node's credentials, and everything link-local. Every NetworkPolicy
that grants a network leaves out the addresses in this list. For the static NetworkPolicies in k8s/,
`tests/unit/kube/objects/test_network_policy.py` checks this.

Ref: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta

from ...i18n import _, mark
from ...quota.policy_file import Wrong
from ...spec import Model
from ..api import labels

Object = dict[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = (
    "169.254.169.254",  # AWS, Azure, Google, Oracle, OpenStack and most others
    "169.254.170.2",  # AWS: credentials of ECS tasks
    "169.254.170.23",  # AWS: EKS Pod Identity
    "169.254.0.23",  # Tencent
    "168.63.129.16",  # Azure: WireServer
    "100.100.100.200",  # Alibaba
    "fd00:ec2::254",  # AWS
    "fd00:ec2::23",  # AWS: EKS Pod Identity
    "fd20:ce::254",  # Google
    "fd00:c1::a9fe:a9fe",  # Oracle
    "fd00:42::42",  # Scaleway
)
LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
EMBEDDED = "::/80"
"""IPv4 addresses written as IPv6 (`::a.b.c.d`, `::ffff:a.b.c.d`). The API server refuses
`::ffff:a.b.c.d` in the field `except` of an ipBlock, although a socket that connects to such an
address sends IPv4. A policy must therefore grant IPv4 networks in IPv4 form.
"""
NAT64 = "64:ff9b::"
"""Prefix of gateways that translate IPv6 to IPv4 (RFC 6052)."""


def _closed() -> tuple[Network, ...]:
    every = [ipaddress.ip_network(each) for each in (*METADATA, *LINK_LOCAL)]
    old = list(
        ipaddress.collapse_addresses(n for n in every if isinstance(n, ipaddress.IPv4Network))
    )
    new = [each for each in every if isinstance(each, ipaddress.IPv6Network)]
    prefix = int(ipaddress.IPv6Address(NAT64))
    new += [ipaddress.IPv6Network((prefix + int(n.network_address), 96 + n.prefixlen)) for n in old]
    new.append(ipaddress.IPv6Network(EMBEDDED))
    return (*old, *ipaddress.collapse_addresses(new))


CLOSED_NETWORKS = _closed()
"""Addresses that no grant opens: disjoint, sorted networks of both families."""


class DnsResolver(Model, frozen=True):
    """A DNS server of the cluster. It runs in pods (`namespace` and `pods`), or outside of pods at
    the addresses of `network`.
    """

    namespace: str = ""
    """The namespace of the DNS server's pods."""
    pods: Annotated[
        str,
        Meta(
            pattern=r"^([^=,\s]+=[^=,\s]*(,[^=,\s]+=[^=,\s]*)*)?$",
            description=mark("labels as key=value, separated by commas"),
        ),
    ] = ""
    """The labels of these pods: `key=value`, separated by commas."""
    network: str = ""
    """The network of a DNS server that is not a pod, such as `169.254.20.10`."""
    port: Annotated[
        int, Meta(ge=1, le=65535, description=mark("the port of the pods, from 1 to 65535"))
    ] = 53
    """The port at which the pods listen. OpenShift's is 5353."""


DEFAULT_DNS = (DnsResolver(namespace="kube-system", pods="k8s-app=kube-dns"),)
"""The DNS of most clusters, both CoreDNS and kube-dns."""


def task_network_policy(
    metadata: Object,
    selector: dict[str, str],
    *,
    in_graph: bool,
    dns: Sequence[DnsResolver],
    egress: Sequence[str],
) -> Object:
    """Return the NetworkPolicy that lists the connections that a run's pods may accept and make.
    The servers of an In-Graph run may reach the notebook that drives them.
    """
    from . import templates  # jinja2 is slow to import, and most commands render nothing

    return templates.render_object(
        "kubernetes/network-policy.yaml.j2",
        metadata=metadata,
        selector=selector,
        notebook={labels.NOTEBOOK: "true"},
        port=labels.PORT,
        client=labels.CLIENT_PORTS if in_graph else None,
        dns=dns_rules(dns),
        networks=[ip_block(each) for each in egress],
    )


def parse_network(text: str) -> Network:
    """Parse a network, such as `10.0.0.0/8`; host bits are ignored. Raises ValueError."""
    if "%" in text:
        raise ValueError(
            _("{network} names an interface: leave out % and what follows").format(network=text)
        )
    return ipaddress.ip_network(text, strict=False)


def ip_block(text: str) -> Object:
    """Return the ipBlock of a granted network, with an exception for each closed network in it.

    Raises ValueError if `network_mistake` refuses the network.
    """
    if why := network_mistake(text):
        raise ValueError(why)
    network = parse_network(text)
    inside = [str(each) for each in CLOSED_NETWORKS if _within(each, network)]
    return {"cidr": str(network), **({"except": inside} if inside else {})}


def network_mistake(text: str) -> str:
    """Return why this network cannot be granted; empty if it can be granted."""
    try:
        network = parse_network(text)
    except ValueError as error:
        return str(error)
    closed = _closed_around(network)
    if closed is None:
        return ""
    if str(closed) == EMBEDDED:
        return _("{network} contains only IPv4 addresses: write it as an IPv4 network").format(
            network=text
        )
    return _(
        "{network} is never opened: it is part of {closed}, which has link-local or cloud "
        "metadata addresses; leave it out"
    ).format(network=text, closed=closed)


def egress_mistakes(egress: Sequence[str]) -> Iterator[Wrong]:
    """Yield the networks of a policy's `egress` that cannot be granted."""
    for place, network in enumerate(egress):
        if why := network_mistake(network):
            yield Wrong(("egress", place), why)


def dns_mistake(servers: Sequence[DnsResolver]) -> str:
    """Return why `servers` cannot be the cluster's DNS servers; empty if they can."""
    if not servers:
        return _("there must be one DNS server at least")
    for each in servers:
        if bool(each.network) == bool(each.namespace or each.pods):
            return _("a DNS server needs either namespace and pods, or network, and not both")
        if not each.network and not (each.namespace and each.pods):
            return _("a DNS server needs both namespace and pods")
        if each.network and (why := _dns_network_mistake(each)):
            return why
    return ""


def _dns_network_mistake(server: DnsResolver) -> str:
    try:
        network = parse_network(server.network)
    except ValueError as error:
        return str(error)
    if _closed_around(network) is None:
        return ""
    if str(_closed_around(network)) == EMBEDDED:
        return network_mistake(server.network)
    if network.num_addresses == 1 and server.port == 53:
        # This may be NodeLocal DNSCache, or Google's metadata service, which is also a DNS server.
        return ""
    return _(
        "{network} cannot be opened; only one of its addresses, on port 53, may be a DNS server"
    ).format(network=_closed_around(network))


def dns_rules(servers: Sequence[DnsResolver]) -> list[Object]:
    """Return the egress rules that let pods ask these servers: one rule for each port."""
    ports = dict.fromkeys(each.port for each in servers)
    return [
        {
            "to": [_peer(each) for each in servers if each.port == port],
            "ports": [{"port": port, "protocol": protocol} for protocol in ("UDP", "TCP")],
        }
        for port in ports
    ]


def _peer(server: DnsResolver) -> Object:
    if server.network:
        network = parse_network(server.network)
        own = _closed_around(network) is not None
        return {"ipBlock": {"cidr": str(network)} if own else ip_block(server.network)}
    labels = dict(each.split("=", 1) for each in server.pods.split(","))
    home = {"kubernetes.io/metadata.name": server.namespace}
    return {"namespaceSelector": {"matchLabels": home}, "podSelector": {"matchLabels": labels}}


def _closed_around(network: Network) -> Network | None:
    return next((each for each in CLOSED_NETWORKS if _within(network, each)), None)


def _within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False
