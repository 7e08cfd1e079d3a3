"""The console as a service of the hub: how the hub starts it, and who may open it.

Promises that the service's own token can do with users, groups and servers what its page offers,
and reads nobody's files; that its page is offered to administrators alone; and that a hub without a port
for it is a hub without a console.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from traitlets.config import Config

SERVICE = "admin"
SCOPES = ["admin:users", "admin:groups", "servers"]
"""Of the service itself: who there is, to import a class (users, links, groups), and servers."""
OWNER, STATE = "TFCLUSTER_CONSOLE_OWNER", "TFCLUSTER_CONSOLE_STATE"
KEPT = ("TFCLUSTER_", "XDG_", "HOME", "LANG", "LC_", "USER", "LOGNAME")
"""Beginnings of what of the hub's environment says where the owner's runs are."""


def configure(c: Config, *, port: int, owner: str, state: Path) -> None:
    """Have the hub start the console on this port of loopback; 0: none."""
    if not port:
        return
    kept = {key: text for key, text in os.environ.items() if key.startswith(KEPT)}
    service = {
        "name": SERVICE,
        "command": [sys.executable, "-m", "tfcluster_magic.hub.console"],
        "url": f"http://127.0.0.1:{port}",
        "oauth_no_confirm": True,  # it is a part of the hub
        "display": False,  # the hub's pages have a link of their own
        "environment": {**kept, OWNER: owner, STATE: str(state)},
    }
    c.JupyterHub.services.append(service)
    role = {"name": "tfcluster-console", "services": [SERVICE], "scopes": list(SCOPES)}
    c.JupyterHub.load_roles.append(role)
    c.JupyterHub.template_vars.update({"console": f"services/{SERVICE}/"})
