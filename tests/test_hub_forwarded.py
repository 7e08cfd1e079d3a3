"""Whose address a request has, without a hub: what is believed of the headers that say so."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.hub import forwarded

INGRESS = [ip_network("10.1.0.0/16"), ip_network("fd00::/64")]


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("", "127.0.0.1"),
        ("203.0.113.7", "203.0.113.7"),
        ("1.2.3.4, 203.0.113.7", "203.0.113.7"),
        ("1.2.3.4, 203.0.113.7, 10.1.0.9", "203.0.113.7"),
        ("1.2.3.4, 203.0.113.7, 10.1.0.8, 10.1.0.9", "203.0.113.7"),
        ("203.0.113.7,::ffff:10.1.0.9", "203.0.113.7"),
        ("2001:db8::1,fd00::9", "2001:db8::1"),
        ("1.2.3.4, 203.0.113.7, not an address", "127.0.0.1"),
        ("1.2.3.4, 203.0.113.7:4711, 10.1.0.9", "10.1.0.9"),
        ("10.1.0.7", "10.1.0.7"),
    ],
)
def test_only_hops_of_our_own_proxies_are_believed(said: str, address: str) -> None:
    """From the last one back, as long as each is known; what a client wrote before is not."""
    assert forwarded.source("127.0.0.1", said, INGRESS) == address


def test_networks_of_proxies_are_checked_at_the_start() -> None:
    """A word that is none is named; without any the last hop alone is believed."""
    assert forwarded.trusted({}) == ()
    given = {forwarded.TRUSTED: " 10.1.0.0/16, 192.0.2.1,"}
    assert [str(one) for one in forwarded.trusted(given)] == ["10.1.0.0/16", "192.0.2.1/32"]
    with pytest.raises(InvalidRequest, match=r"10\.1\.0\.0/99"):
        forwarded.trusted({forwarded.TRUSTED: "10.1.0.0/99"})
    assert forwarded.source("127.0.0.1", "1.2.3.4, 10.1.0.9", ()) == "10.1.0.9"
