"""JupyterHub's proxy, and HTTP servers that recognise its requests by a secret path.

Hub and console each have a secret first path segment. The proxy keeps the segments in memory,
readable only with the proxy's token. It adds the hub's segment only to requests for the hub, and
the console's only to requests for the console. A server trusts the forwarded client address of a
request only if the request has the server's segment.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Awaitable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, cast

from jupyterhub.proxy import ConfigurableHTTPProxy
from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)

from ..web import MOST_BYTES
from .page_language import choose_language
from .shared_settings import CONSOLE, Network, trusted_networks

NEVER_BELIEVED = ("X-Real-Ip", "X-Scheme", "Forwarded", "X-Forwarded-For")
"""Headers that are always removed: the first three are unused, and the last has been read before
its removal.
"""
ONLY_FROM_PROXY = ("X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port")


def secret_segment(token: str) -> str:
    """Return the secret first path segment of the server that owns this token. k8s/hub/proxy.yaml
    computes the hub's segment too, for requests that arrive before the hub sets routes.
    """
    return hmac.new(token.encode(), b"path of the proxy", hashlib.sha256).hexdigest()


class Proxy(ConfigurableHTTPProxy):
    """A configurable-http-proxy that uses secret paths to reach the hub and the console."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        # JupyterHub creates its server later, through the configurable class HTTPServer.
        HTTPServer.configure(
            ForwardedServer,
            route=secret_segment(self.auth_token),
            believed=trusted_networks(os.environ),
            speaks=True,
            # The hub reads a body before it authenticates the sender; Tornado would accept 100 MB.
            max_body_size=MOST_BYTES,
        )

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        """Route addresses below `routespec` to `target`, with its secret path if it has one."""
        await super().add_route(routespec, target + self._path(data), data)

    async def get_all_routes(self) -> dict[str, Any]:
        """Return the routes as JupyterHub set them, without secret paths. A route that lacks its
        secret path gets an empty target, so that JupyterHub sets it again.
        """
        routes: dict[str, Any] = await super().get_all_routes()
        for route in routes.values():
            path, target = self._path(route["data"]), str(route["target"])
            route["target"] = target.removesuffix(path) if target.endswith(path) else ""
        return routes

    def _path(self, data: Mapping[str, Any]) -> str:
        if data.get("hub"):
            return f"/{secret_segment(self.auth_token)}"
        service = self.app._service_map.get(data.get("service"))
        if service is not None and service.name == CONSOLE:
            return f"/{secret_segment(service.api_token)}"
        return ""


# -- servers behind the proxy


def client_address(peer: str, forwarded: str, believed: Sequence[Network]) -> str:
    """Return the address of the client whose request our proxy forwarded.

    Args:
        peer: the address of the connection, which is returned if nothing else is known.
        forwarded: `X-Forwarded-For`; its last address is the one that our proxy saw.
        believed: networks whose proxies are trusted to name their clients.
    """
    found = peer
    for hop in reversed(forwarded.split(",")):
        address = _address(hop.strip())
        if address is None:
            break
        found = str(address)
        if not any(address in network for network in believed):
            break
    return found


class ForwardedServer(HTTPServer):
    """A Tornado server that recognises our proxy by its secret path.

    Besides Tornado's arguments, `initialize` takes `route`, the secret segment; `believed` (see
    `client_address`); and `speaks`, whether to set the language of each request. Tornado's own
    handling of forwarded headers is off.
    """

    def initialize(  # type: ignore[override]
        self,
        *args: Any,
        route: str,
        believed: Sequence[Network],
        speaks: bool = False,
        **words: Any,
    ) -> None:
        """Store `route`, `believed` and `speaks`, and pass the other arguments to Tornado."""
        words.update(xheaders=False, trusted_downstream=None)
        super().initialize(*args, **words)
        self._route, self._believed, self._speaks = f"/{route}", believed, speaks

    def start_request(
        self, server_conn: object, request_conn: HTTPConnection
    ) -> HTTPMessageDelegate:
        """Wrap the handler of a request so that the headers are checked here first."""
        delegate = super().start_request(server_conn, request_conn)
        return _Request(delegate, request_conn, self._route, self._believed, self._speaks)


class _Request(HTTPMessageDelegate):
    """A request whose headers are checked; `route` begins with a slash."""

    def __init__(
        self,
        delegate: HTTPMessageDelegate,
        connection: HTTPConnection,
        route: str,
        believed: Sequence[Network],
        speaks: bool,
    ) -> None:
        self._delegate, self._route, self._believed = delegate, route, believed
        self._speaks = speaks
        self._context = cast(Any, connection).context

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Set the client's address and protocol, separately for each request of a connection."""
        line = cast(RequestStartLine, start_line)
        begin, rest = line.path[: len(self._route)], line.path[len(self._route) :]
        peer = _address(str(self._context.address[0]))
        address, protocol = str(peer or "0.0.0.0"), "http"  # noqa: S104  Tornado's "unknown"
        if hmac.compare_digest(begin.encode(), self._route.encode()):
            # The proxy turns `GET foo://h?x` into `/SEGMENT?x`; no handler may see the segment.
            line = line._replace(path=rest if rest.startswith("/") else f"/{rest}")
            address = client_address(address, headers.get("X-Forwarded-For", ""), self._believed)
            # The browser's protocol; a client that sends a wrong one misleads only itself.
            protocol = headers.get("X-Forwarded-Proto", protocol).split(",")[0].strip().lower()
            headers["X-Forwarded-Proto"] = protocol = "https" if protocol == "https" else "http"
        else:
            _remove(headers, ONLY_FROM_PROXY)
        _remove(headers, NEVER_BELIEVED)
        self._context.remote_ip, self._context.protocol = address, protocol
        if self._speaks:
            choose_language(headers)
        return self._delegate.headers_received(line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass a part of the body to the handler."""
        return self._delegate.data_received(chunk)

    def finish(self) -> None:
        """Tell the handler that the request has ended."""
        self._delegate.finish()

    def on_connection_close(self) -> None:
        """Tell the handler that the connection was closed."""
        self._delegate.on_connection_close()


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    # A dual-stack socket reports 10.0.0.1 as ::ffff:10.0.0.1.
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _remove(headers: HTTPHeaders, names: Sequence[str]) -> None:
    for name in names:
        headers.pop(name, None)
