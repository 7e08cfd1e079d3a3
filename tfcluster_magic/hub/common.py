"""What the hub on this machine and the hub on Kubernetes have in common.

It promises that both show the same pages, keep their state in one folder, give a notebook's token
no more rights than the hub itself says a notebook needs, and let nobody sign up alone. Who signs in
and where notebooks run is decided elsewhere; nothing here reads a file or starts anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from traitlets.config import Config

from . import forwarded

HERE = Path(__file__).parent
PAGES = HERE / "templates"
COOKIE_DAYS = 14
"""How long a browser stays signed in."""
SERVER_SCOPES = ["users:activity!user", "access:servers!server"]
"""What a notebook's own token may do: tell that it is used, and ask who its visitors are."""
RECHECK = "hub-sign-outs"
"""Below a notebook's address: the hub asks it there to forget whom it knew (see `visitors`)."""


def configure(c: Config, *, state: Path) -> None:
    """Set what both worlds share; `state` is the hub's own folder, readable by it alone.

    Everything may be set again afterwards.

    Raises:
        InvalidRequest: the networks of trusted proxies are none.
    """
    programs = str(Path(sys.executable).parent)  # JupyterHub calls alembic by its name
    if programs not in (found := os.environ.get("PATH", os.defpath)).split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, found])
    forwarded.trusted(os.environ)  # a mistake is told at once
    c.JupyterHub.proxy_class = "tfcluster_magic.hub.proxy.Proxy"
    c.JupyterHub.base_url = base_url()
    c.JupyterHub.db_url = f"sqlite:///{state / 'jupyterhub.sqlite'}"
    c.JupyterHub.upgrade_db = True  # a newer hub opens an older one's, after saving a copy
    c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
    c.JupyterHub.cookie_max_age_days = COOKIE_DAYS
    c.JupyterHub.template_paths = [str(PAGES)]
    c.JupyterHub.logo_file = str(HERE / "logo.svg")
    c.JupyterHub.allow_named_servers = False
    c.JupyterHub.authenticate_prometheus = True
    c.Spawner.server_token_scopes = list(SERVER_SCOPES)
    c.Spawner.http_timeout = 120  # a first start on a busy machine takes longer than 30 s


def base_url(environ: Mapping[str, str] | None = None) -> str:
    """The path below which the hub is served, with slashes at both ends: TFCLUSTER_HUB_BASE_URL."""
    env = os.environ if environ is None else environ
    inner = env.get("TFCLUSTER_HUB_BASE_URL", "").strip("/")
    return f"/{inner}/" if inner else "/"
