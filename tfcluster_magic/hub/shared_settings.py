"""Settings that the hub on one machine and the hub on Kubernetes share.

Both show the same pages, keep their state in one folder, give notebook tokens only the scopes that
JupyterHub requires, and have no self-registration.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from traitlets.config import Config

from ..errors import InvalidRequest, Problem
from ..i18n import _

Network = IPv4Network | IPv6Network
TRUSTED = "TFCLUSTER_HUB_TRUSTED_PROXIES"
"""Variable with the networks of proxies in front of ours, such as an ingress controller's,
separated by commas.
"""
CONSOLE = "admin"
"""Name of the admin console's service."""
DATABASE = "jupyterhub.sqlite"
"""JupyterHub's database in the hub's folder."""
HERE = Path(__file__).parent
PAGES = HERE / "templates"
COOKIE_DAYS = 14
"""Days for which a browser stays signed in."""
SUBDOMAIN_HOST = "TFCLUSTER_HUB_SUBDOMAIN_HOST"
PUBLIC_URL = "TFCLUSTER_HUB_URL"
SIGN_IN = "TFCLUSTER_HUB_SIGN_IN"
_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+")
SERVER_SCOPES = ["users:activity!user", "access:servers!server"]
"""Scopes of a notebook's own token: report activity, and identify visitors."""
RECHECK = "hub-sign-outs"
"""Path in a notebook that the hub calls to make it check its visitors again (see `visitors`)."""


def configure(c: Config, *, state: Path) -> None:
    """Set the settings that both hubs share; `state` is the hub's private folder.

    The caller may override any setting afterwards.

    Raises:
        InvalidRequest: the list of trusted proxies or the subdomain host is invalid.
    """
    programs = str(Path(sys.executable).parent)  # JupyterHub looks for alembic in PATH
    if programs not in (found := os.environ.get("PATH", os.defpath)).split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, found])
    trusted_networks(os.environ)  # raises InvalidRequest now if the list is invalid
    c.JupyterHub.proxy_class = "tfcluster_magic.hub.proxy.Proxy"
    c.JupyterHub.base_url = base_url()
    if host := subdomain_host():
        c.JupyterHub.subdomain_host = host
        c.JupyterHub.subdomain_hook = host_of
    c.JupyterHub.db_url = f"sqlite:///{state / DATABASE}"
    c.JupyterHub.upgrade_db = True  # a newer hub migrates an older database and keeps a copy
    c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
    c.JupyterHub.cookie_max_age_days = COOKIE_DAYS
    c.JupyterHub.template_paths = [str(PAGES)]
    texts = "tfcluster_magic.hub.page_language.PageTexts"
    c.JupyterHub.jinja_environment_options = {"extensions": [texts]}
    c.JupyterHub.logo_file = str(HERE / "logo.svg")
    c.JupyterHub.allow_named_servers = False
    c.JupyterHub.authenticate_prometheus = True
    c.Spawner.server_token_scopes = list(SERVER_SCOPES)
    c.Spawner.http_timeout = 120  # seconds; a first start on a busy machine takes longer than 30 s


def trusted_networks(environ: Mapping[str, str]) -> tuple[Network, ...]:
    """Return the networks in TFCLUSTER_HUB_TRUSTED_PROXIES.

    Raises:
        InvalidRequest: an entry is not a network.
    """
    words = [word for part in environ.get(TRUSTED, "").split(",") if (word := part.strip())]
    try:
        return tuple(ip_network(word) for word in words)
    except ValueError as why:
        rule = _("list addresses or networks, separated by commas: 10.1.0.0/16,fd00::/64")
        raise InvalidRequest([Problem(TRUSTED, str(why), rule)]) from None


def is_open(file: Path) -> bool:
    """Return whether a process of this machine has the file open. A running hub has its database
    open.
    """
    name = str(file.resolve())
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if os.readlink(link) == name:
                return True
    return False


def base_url(environ: Mapping[str, str] | None = None) -> str:
    """Return the hub's base path with slashes at both ends (TFCLUSTER_HUB_BASE_URL)."""
    env = os.environ if environ is None else environ
    inner = env.get("TFCLUSTER_HUB_BASE_URL", "").strip("/")
    return f"/{inner}/" if inner else "/"


def subdomain_host(environ: Mapping[str, str] | None = None) -> str:
    """Return the hub's address, https://NAME[:PORT]; each notebook gets a subdomain of it.

    Return an empty text if TFCLUSTER_HUB_SUBDOMAIN_HOST is not set.

    Raises:
        InvalidRequest: the variable has another form.
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
            "use the hub's address without a path, such as https://hub.example.com;"
            " all subdomains of its name must lead to this hub"
        )
        problem = Problem(SUBDOMAIN_HOST, said, rule)
        raise InvalidRequest([problem], _("the hub cannot be set up"))
    return host


def public_url(environ: Mapping[str, str] | None = None) -> str:
    """Return the hub's address in a browser with its base path (TFCLUSTER_HUB_URL).

    Return an empty text if the variable is not set.

    Raises:
        InvalidRequest: the variable is not a URL of http or https, or has a path other than the
            hub's base path.
    """
    env = os.environ if environ is None else environ
    said = env.get(PUBLIC_URL, "").strip()
    if not said:
        return ""
    base = base_url(env)
    try:
        parts = urlsplit(said)
        usable = parts.scheme in ("http", "https") and parts.hostname
    except ValueError:
        parts, usable = urlsplit(""), None
    paths = ("/", base)
    if not usable or f"{parts.path.rstrip('/')}/" not in paths or parts.query or parts.fragment:
        rule = _("use the hub's address in a browser, such as {example}")
        allowed = rule.format(example=f"https://hub.example.com{base}")
        raise InvalidRequest([Problem(PUBLIC_URL, said, allowed)], _("the hub cannot be set up"))
    return f"{parts.scheme}://{parts.netloc}{base}"


def host_of(name: str, domain: str, kind: str) -> str:
    """Return the host name of a user's notebook; for a service such as the console, the host name
    of the hub.
    """
    from jupyterhub.utils import subdomain_hook_idna

    return domain if kind == "service" else str(subdomain_hook_idna(name, domain, kind))
