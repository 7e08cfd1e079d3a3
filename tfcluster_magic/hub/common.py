"""Parts that the hub on this machine and the hub on Kubernetes share.

Both show the same pages, keep their state in one folder, give a notebook's token no more rights
than the hub itself says a notebook needs, and let nobody sign up alone. Both believe the address
that a request came from only if their own proxy says it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import sys
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from traitlets.config import Config

from ..errors import InvalidRequest, Problem
from ..i18n import _

Network = IPv4Network | IPv6Network
TRUSTED = "TFCLUSTER_HUB_TRUSTED_PROXIES"
"""Networks of proxies in front of ours, such as an ingress controller's, separated by commas."""
NEVER_BELIEVED = ("X-Real-Ip", "X-Scheme", "Forwarded", "X-Forwarded-For")
"""Neither our proxy nor this server uses the first three; the last one has been read by then."""
ONLY_FROM_PROXY = ("X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port")


def secret_segment(token: str) -> str:
    """Return the first part of the paths by which the proxy reaches the owner of this token."""
    return hmac.new(token.encode(), b"the proxy's path", hashlib.sha256).hexdigest()


def trusted_networks(environ: Mapping[str, str]) -> tuple[Network, ...]:
    """Return the networks in TFCLUSTER_HUB_TRUSTED_PROXIES.

    Raises:
        InvalidRequest: one of them is not a network.
    """
    words = [word for part in environ.get(TRUSTED, "").split(",") if (word := part.strip())]
    try:
        return tuple(ip_network(word) for word in words)
    except ValueError as why:
        rule = _("list addresses or networks, separated by commas: 10.1.0.0/16,fd00::/64")
        raise InvalidRequest([Problem(TRUSTED, str(why), rule)]) from None


def client_address(peer: str, forwarded: str, believed: Sequence[Network]) -> str:
    """Return the address of the client for which our proxy connected.

    Args:
        peer: the address of the connection; returned if nothing else is known.
        forwarded: `X-Forwarded-For`; its last address is the one that our proxy saw.
        believed: networks whose proxies are trusted to say for whom they connected.
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
    """Tornado's server, which knows our proxy by its path.

    `initialize` takes two arguments beside Tornado's: `route`, the proxy's segment, and `believed`,
    see `client_address`. It turns off what Tornado believes of every client.
    """

    def initialize(  # type: ignore[override]
        self, *args: Any, route: str, believed: Sequence[Network], **words: Any
    ) -> None:
        """Set what tells our proxy, and pass the rest to Tornado."""
        words.update(xheaders=False, trusted_downstream=None)
        super().initialize(*args, **words)
        self._route, self._believed = f"/{route}", believed

    def start_request(
        self, server_conn: object, request_conn: HTTPConnection
    ) -> HTTPMessageDelegate:
        """Wrap the handler of a request, so that its headers are read here first."""
        delegate = super().start_request(server_conn, request_conn)
        return _Request(delegate, request_conn, self._route, self._believed)


class _Request(HTTPMessageDelegate):
    """A request; `route` begins with a slash."""

    def __init__(
        self,
        delegate: HTTPMessageDelegate,
        connection: HTTPConnection,
        route: str,
        believed: Sequence[Network],
    ) -> None:
        self._delegate, self._route, self._believed = delegate, route, believed
        self._context = cast(Any, connection).context

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Set where the request came from, anew for each request of a connection."""
        line = cast(RequestStartLine, start_line)
        begin, rest = line.path[: len(self._route)], line.path[len(self._route) :]
        peer = _address(str(self._context.address[0]))
        address, protocol = str(peer or "0.0.0.0"), "http"  # noqa: S104  as Tornado says unknown
        if hmac.compare_digest(begin.encode(), self._route.encode()):
            # Of `GET foo://h?x` the proxy makes `/SEGMENT?x`: nothing may show a handler its path.
            line = line._replace(path=rest if rest.startswith("/") else f"/{rest}")
            address = client_address(address, headers.get("X-Forwarded-For", ""), self._believed)
            # What the browser used: a client that claims another misleads only itself.
            protocol = headers.get("X-Forwarded-Proto", protocol).split(",")[0].strip().lower()
            headers["X-Forwarded-Proto"] = protocol = "https" if protocol == "https" else "http"
        else:
            _remove(headers, ONLY_FROM_PROXY)
        _remove(headers, NEVER_BELIEVED)
        self._context.remote_ip, self._context.protocol = address, protocol
        return self._delegate.headers_received(line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass it on."""
        return self._delegate.data_received(chunk)

    def finish(self) -> None:
        """Pass it on."""
        self._delegate.finish()

    def on_connection_close(self) -> None:
        """Pass it on."""
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


# -- settings of both hubs

DATABASE = "jupyterhub.sqlite"
"""JupyterHub's own state, in the hub's folder."""
HERE = Path(__file__).parent
PAGES = HERE / "templates"
COOKIE_DAYS = 14
"""How long a browser stays signed in."""
SUBDOMAIN_HOST = "TFCLUSTER_HUB_SUBDOMAIN_HOST"
_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
SERVER_SCOPES = ["users:activity!user", "access:servers!server"]
"""What a notebook's own token may do: tell that it is used, and ask who its visitors are."""
RECHECK = "hub-sign-outs"
"""Path below a notebook's address where the hub tells it to forget visitors (see `visitors`)."""


def configure(c: Config, *, state: Path) -> None:
    """Set what both worlds share; `state` is the hub's own folder, readable by it alone.

    Everything may be set again afterwards.

    Raises:
        InvalidRequest: the list of trusted proxies is not valid.
    """
    programs = str(Path(sys.executable).parent)  # JupyterHub calls alembic by its name
    if programs not in (found := os.environ.get("PATH", os.defpath)).split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, found])
    trusted_networks(os.environ)  # reports a mistake at once
    c.JupyterHub.proxy_class = "tfcluster_magic.hub.proxy.Proxy"
    c.JupyterHub.base_url = base_url()
    if host := subdomain_host():
        c.JupyterHub.subdomain_host = host
        c.JupyterHub.subdomain_hook = host_of
    c.JupyterHub.db_url = f"sqlite:///{state / DATABASE}"
    c.JupyterHub.upgrade_db = True  # a newer hub opens an older one's, after saving a copy
    c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
    c.JupyterHub.cookie_max_age_days = COOKIE_DAYS
    c.JupyterHub.template_paths = [str(PAGES)]
    c.JupyterHub.logo_file = str(HERE / "logo.svg")
    c.JupyterHub.allow_named_servers = False
    c.JupyterHub.authenticate_prometheus = True
    c.Spawner.server_token_scopes = list(SERVER_SCOPES)
    c.Spawner.http_timeout = 120  # a first start on a busy machine takes longer than 30 s


def is_open(file: Path) -> bool:
    """Whether a process of this machine has the file open, as a hub has its database."""
    name = str(file.resolve())
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if os.readlink(link) == name:
                return True
    return False


def base_url(environ: Mapping[str, str] | None = None) -> str:
    """The path below which the hub is served, with slashes at both ends: TFCLUSTER_HUB_BASE_URL."""
    env = os.environ if environ is None else environ
    inner = env.get("TFCLUSTER_HUB_BASE_URL", "").strip("/")
    return f"/{inner}/" if inner else "/"


def subdomain_host(environ: Mapping[str, str] | None = None) -> str:
    """Return the hub's own host as a browser sees it, https://NAME[:PORT], if each notebook has a
    host of its own below that name; otherwise nothing. It is TFCLUSTER_HUB_SUBDOMAIN_HOST.

    Raises:
        InvalidRequest: it is not such an address.
    """
    env = os.environ if environ is None else environ
    said = env.get(SUBDOMAIN_HOST, "").strip().rstrip("/")
    if not said:
        return ""
    try:
        parts = urlsplit(said)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        parts, port = urlsplit(""), ""
    name = parts.hostname or ""
    is_name = _HOST_NAME.fullmatch(name) and not name.rpartition(".")[2].isdigit()
    host = f"{parts.scheme}://{name}{port}"
    if parts.scheme not in ("http", "https") or not is_name or host != said.lower():
        rule = _(
            "write the hub's address without a path, such as https://hub.example.com: a name with "
            "a dot, below which every name leads to this hub"
        )
        problem = Problem(SUBDOMAIN_HOST, said, rule)
        raise InvalidRequest([problem], _("the hub cannot be set up"))
    return host


def host_of(name: str, domain: str, kind: str) -> str:
    """Return the host name of a user's notebook; the console, a service, stays on the hub's own."""
    from jupyterhub.utils import subdomain_hook_idna

    return domain if kind == "service" else str(subdomain_hook_idna(name, domain, kind))
