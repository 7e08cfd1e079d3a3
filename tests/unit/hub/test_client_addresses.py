"""The client address of a request, and the headers that may set it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

import pytest
from support.project import ROOT
from tornado.httpclient import AsyncHTTPClient
from tornado.web import Application, RequestHandler

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.hub import proxy, shared_settings

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
    """The client's address is found from the last hop backwards, as long as each proxy is
    trusted.
    """
    assert proxy.client_address("127.0.0.1", said, INGRESS) == address


def test_networks_of_proxies_are_checked_at_the_start() -> None:
    """An invalid network is reported at the start; if no network is set, only the last hop
    counts.
    """
    assert shared_settings.trusted_networks({}) == ()
    given = {shared_settings.TRUSTED: " 10.1.0.0/16, 192.0.2.1,"}
    assert [str(one) for one in shared_settings.trusted_networks(given)] == [
        "10.1.0.0/16",
        "192.0.2.1/32",
    ]
    with pytest.raises(InvalidRequest, match=r"10\.1\.0\.0/99"):
        shared_settings.trusted_networks({shared_settings.TRUSTED: "10.1.0.0/99"})
    assert proxy.client_address("127.0.0.1", "1.2.3.4, 10.1.0.9", ()) == "10.1.0.9"


class Tell(RequestHandler):
    """A handler that answers with the address and the headers that handlers of the hub see."""

    async def get(self) -> None:
        asked = self.request
        names = sorted(name for name in asked.headers if name.startswith(("X-", "Forwarded")))
        said = {name: asked.headers[name] for name in names}
        self.write({"ip": asked.remote_ip, "by": asked.protocol, "path": asked.uri, "said": said})


async def _told(path: str, headers: Mapping[str, str]) -> Any:
    local = [ip_network("127.0.0.0/8")]
    server = proxy.ForwardedServer(Application([("/.*", Tell)]), route="secret", believed=local)
    server.listen(0, "127.0.0.1")
    port = next(iter(server._sockets.values())).getsockname()[1]
    try:
        asked = AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}{path}", headers=headers)
        return json.loads((await asked).body)
    finally:
        server.stop()


CLAIMS = {
    "X-Forwarded-For": "1.2.3.4, 203.0.113.7, 127.0.0.1",
    "X-Forwarded-Proto": "https,http",
    "X-Forwarded-Host": "hub.example",
    "X-Real-Ip": "1.2.3.4",
    "X-Scheme": "https",
    "Forwarded": "for=1.2.3.4;proto=https",
}


@pytest.mark.parametrize("path", ["/hub/login", "//secret/x", "/x/secret/y"])
def test_a_path_that_is_not_the_proxys_says_nothing_of_an_address(path: str) -> None:
    """Without the proxy's path, the address is that of the connection, and a handler sees no header
    that claims another address.
    """
    told = {"ip": "127.0.0.1", "by": "http", "path": path, "said": {}}
    assert asyncio.run(_told(path, CLAIMS)) == told


def test_the_proxy_is_known_by_its_path() -> None:
    """With the proxy's path, a handler sees the headers that the proxy vouches for, but not that
    path.
    """
    assert asyncio.run(_told("/secret/hub/login?next=%2F", CLAIMS)) == {
        "ip": "203.0.113.7",
        "by": "https",
        "path": "/hub/login?next=%2F",
        "said": {"X-Forwarded-Host": "hub.example", "X-Forwarded-Proto": "https"},
    }


@pytest.mark.parametrize(("path", "seen"), [("/secret", "/"), ("/secret?x", "/?x")])
def test_no_handler_sees_the_proxys_path(path: str, seen: str) -> None:
    """The proxy's path is removed even where no slash follows it, as after `GET foo://h?x`."""
    told = asyncio.run(_told(path, {}))
    assert told["path"] == seen


def test_the_proxy_on_kubernetes_says_where_a_request_came_from() -> None:
    """On Kubernetes, the proxy adds the client's address to the header. It sends no secret, because
    notebooks would see the secret.
    """
    deployed = (ROOT / "k8s" / "hub" / "proxy.yaml").read_text()
    assert "--no-x-forward" not in deployed
    assert "--custom-header" not in deployed
