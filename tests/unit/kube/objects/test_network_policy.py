"""Networks that NetworkPolicies open, and addresses that they never open; tested without a
cluster.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support import doc_pages
from support.project import ROOT

from tfcluster_magic.kube.objects import network_policy
from tfcluster_magic.kube.objects.network_policy import DEFAULT_DNS, DnsResolver

K8S = ROOT / "k8s"
METADATA = [
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254"),  # AWS
    *("168.63.129.16", "100.100.100.200", "169.254.0.23"),  # of Azure, Alibaba and Tencent
    *("169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff::1"),  # link-local
    *("::ffff:169.254.169.254", "::ffff:168.63.129.16", "::ffff:100.100.100.200"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b::100.100.100.200"),  # metadata servers as NAT64 addresses
]
ADDRESSES = [ipaddress.ip_address(each) for each in METADATA]


def opens(block: dict[str, Any], address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an ipBlock lets pods connect to an address."""
    excepts = map(ipaddress.ip_network, block.get("except", ()))
    return address in ipaddress.ip_network(block["cidr"]) and not any(address in e for e in excepts)


def networks_around(text: str) -> Iterator[str]:
    """Yield every network that contains an address, from the single address to all addresses."""
    address = ipaddress.ip_address(text)
    for length in range(address.max_prefixlen + 1):
        yield str(ipaddress.ip_network(f"{text}/{length}", strict=False))


@pytest.mark.parametrize("text", METADATA)
def test_no_network_around_a_closed_address_opens_it(text: str) -> None:
    """Each of the 33 or 129 networks around a closed address is refused, or excepts the address.
    The exceptions lie within the network, as the API server demands.
    """
    for network in networks_around(text):
        if network_policy.network_mistake(network):
            with pytest.raises(ValueError, match=r"never opened|as an IPv4 network"):
                network_policy.ip_block(network)
            continue
        block = network_policy.ip_block(network)
        assert not opens(block, ipaddress.ip_address(text)), network
        around = ipaddress.ip_network(block["cidr"])
        for each in map(ipaddress.ip_network, block["except"]):
            assert each != around and each.subnet_of(around)  # type: ignore[arg-type]


CIDRS = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.integers(0, 32)),
    st.tuples(st.ip_addresses(v=6), st.integers(0, 128)),
    st.sampled_from(ADDRESSES).flatmap(
        lambda a: st.tuples(st.just(a), st.integers(0, a.max_prefixlen))
    ),
).map(lambda pair: f"{pair[0]}/{pair[1]}")


@given(CIDRS)
@example("0.0.0.0/0")
@example("::/0")
@example("::ffff:0:0/96")
def test_whatever_is_granted_no_closed_address_is_open(cidr: str) -> None:
    """Any IPv4 or IPv6 network is refused, or opens all its addresses except the closed
    addresses.
    """
    if network_policy.network_mistake(cidr):
        return
    block = network_policy.ip_block(cidr)
    assert not [each for each in ADDRESSES if opens(block, each)]
    for closed in network_policy.CLOSED_NETWORKS:
        for edge in (closed.network_address, closed.broadcast_address):
            assert not opens(block, edge)
    network = ipaddress.ip_network(cidr, strict=False)
    first = network.network_address
    if not any(first in each for each in network_policy.CLOSED_NETWORKS):
        assert opens(block, first)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("169.254.169.254", "it is part of 169.254.0.0/16"),
        ("169.254.0.0/16", "it is part of 169.254.0.0/16"),
        ("168.63.129.16/32", "never opened"),
        ("fe80::/64", "it is part of fe80::/10"),
        ("::ffff:10.0.0.0/104", "write it as an IPv4 network"),
        ("fe80::1%eth0", "names an interface"),
        ("everywhere", "does not appear to be"),
    ],
)
def test_what_cannot_be_granted_says_why(text: str, why: str) -> None:
    """A network that is closed entirely is refused with the reason."""
    assert why in network_policy.network_mistake(text)


def test_an_ordinary_network_has_no_exceptions() -> None:
    """A network without a closed address is granted unchanged, except for its host bits."""
    assert network_policy.ip_block("10.1.2.3/8") == {"cidr": "10.0.0.0/8"}
    assert network_policy.ip_block("2001:db8::/32") == {"cidr": "2001:db8::/32"}


def test_dns_servers_are_pods_or_single_addresses() -> None:
    """By default, the DNS servers are the pods of kube-dns. A DNS cache that runs on each node is
    given as a single address. OpenShift's DNS pods listen on another port, so they get a rule of
    their own.
    """
    (rule,) = network_policy.dns_rules(DEFAULT_DNS)
    assert rule["to"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ]
    assert [(p["protocol"], p["port"]) for p in rule["ports"]] == [("UDP", 53), ("TCP", 53)]
    openshift = DnsResolver(
        namespace="openshift-dns", pods="dns.operator.openshift.io/daemonset-dns=default", port=5353
    )
    several = (*DEFAULT_DNS, DnsResolver(network="169.254.20.10"), openshift)
    assert network_policy.dns_mistake(several) == ""
    both, other = network_policy.dns_rules(several)
    assert both["to"][1] == {"ipBlock": {"cidr": "169.254.20.10/32"}}
    assert [port["port"] for port in other["ports"]] == [5353, 5353]
    wide = network_policy.dns_rules((DnsResolver(network="0.0.0.0/0"),))[0]["to"][0]["ipBlock"]
    assert not opens(wide, ipaddress.ip_address("169.254.169.254"))


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ((), "one DNS server at least"),
        ((DnsResolver(),), "either namespace and pods, or network"),
        ((DnsResolver(namespace="kube-system"),), "both namespace and pods"),
        ((DnsResolver(pods="a=b"),), "both namespace and pods"),
        ((DnsResolver(namespace="a", pods="a=b", network="10.0.0.1"),), "and not both"),
        ((DnsResolver(network="169.254.0.0/16"),), "only one of its addresses, on port 53"),
        ((DnsResolver(network="169.254.169.254", port=80),), "on port 53"),
        ((DnsResolver(network="::ffff:10.0.0.1"),), "as an IPv4 network"),
        ((DnsResolver(network="there"),), "does not appear to be"),
    ],
)
def test_what_is_no_dns_server_says_why(servers: tuple[DnsResolver, ...], why: str) -> None:
    """A DNS server is refused with the reason if no pod could ask it, or if it would open a
    metadata service.
    """
    assert why in network_policy.dns_mistake(servers)


def shipped() -> list[tuple[str, dict[str, Any]]]:
    """Return every NetworkPolicy below k8s/, with its file."""
    return [
        (f"{file.relative_to(K8S)}: {found['metadata']['name']}", found["spec"])
        for file in sorted(K8S.rglob("*.yaml"))
        for found in yaml.safe_load_all(file.read_text())
        if isinstance(found, dict) and found.get("kind") == "NetworkPolicy"
    ]


def test_the_policies_that_are_shipped_say_the_same() -> None:
    """Each network in k8s/ has the exceptions that the code's list of closed networks gives. Each
    DNS rule leads to the default DNS servers, and no rule opens all addresses.
    """
    blocks, dns = [], []
    for name, spec in shipped():
        for rule in spec.get("egress", ()):
            assert rule.get("to"), f"{name} leads everywhere"
            blocks += [(name, to["ipBlock"]) for to in rule["to"] if "ipBlock" in to]
            if any(port["port"] == 53 for port in rule["ports"]):
                dns.append(rule)
    assert len(blocks) == 12
    for name, block in blocks:
        assert block == network_policy.ip_block(block["cidr"]), name
    assert dns == network_policy.dns_rules(DEFAULT_DNS) * 3


def test_admission_keeps_the_same_closed() -> None:
    """The admission policy against a stolen operator token has the code's list of closed
    networks.
    """
    (found,) = [
        variable["expression"]
        for policy in yaml.safe_load_all((K8S / "base/admission-operator.yaml").read_text())
        for variable in policy["spec"].get("variables", ())
        if variable["name"] == "closed"
    ]
    assert yaml.safe_load(found) == [str(each) for each in network_policy.CLOSED_NETWORKS]


@pytest.mark.parametrize("folder", ["base", "hub"])
def test_namespaces_of_ours_are_closed(folder: str) -> None:
    """The namespaces of the operator and the hub deny everything that no policy allows, and every
    policy names its ports.
    """
    found = [spec for name, spec in shipped() if name.startswith(f"{folder}/")]
    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} in found
    for spec in found:
        for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
            assert rule["ports"]


OPENSHIFT = "dns.operator.openshift.io/daemonset-dns=default"
ELSEWHERE = {
    "NodeLocal DNSCache": [
        *DEFAULT_DNS,
        DnsResolver(network="169.254.20.10"),
        DnsResolver(network="10.96.0.10"),
    ],
    "OpenShift": [DnsResolver(namespace="openshift-dns", pods=OPENSHIFT, port=5353)],
    "GKE with Cloud DNS": [DnsResolver(network="169.254.169.254")],
    "a DNS server on the nodes": [DnsResolver(network="192.0.2.10")],
}


def test_the_patch_on_the_page_of_policies_replaces_the_dns_servers() -> None:
    """The patch in policy.md replaces the DNS servers of operator and hub, and the values in its
    table are the rules that TFCluster itself makes for these servers.
    """
    page = ROOT / "docs" / "reference" / "policy.md"
    (block,) = (each for each in doc_pages.blocks(page) if each.text.startswith("patches:"))
    (patch,) = yaml.safe_load(block.text)["patches"]
    assert patch["target"] == {"kind": "NetworkPolicy", "name": "dns"}
    (said,) = yaml.safe_load(patch["patch"])
    assert (said["op"], said["path"]) == ("replace", "/spec/egress/0/to")
    (rule,) = network_policy.dns_rules(ELSEWHERE["a DNS server on the nodes"])
    assert said["value"] == rule["to"]
    for folder in ("base", "hub"):
        policies = yaml.safe_load_all((K8S / folder / "network.yaml").read_text())
        (dns,) = (each for each in policies if each["metadata"]["name"] == "dns")
        assert dns["spec"]["egress"] == network_policy.dns_rules(DEFAULT_DNS)
    rows = page.read_text("utf-8").partition("#### DNS of the operator and the hub")[2]
    for cluster, servers in ELSEWHERE.items():
        (rule,) = network_policy.dns_rules(servers)
        found = re.search(rf"^\| {cluster} \| (.*) \|$", rows, re.MULTILINE)
        assert found is not None, cluster
        values = [yaml.safe_load(each) for each in re.findall(r"`([^`]+)`", found[1])]
        assert values[0] == rule["to"]
        ports = [each["value"] for each in values[1:]]
        assert ports == ([rule["ports"]] if servers[0].port != 53 else [])
