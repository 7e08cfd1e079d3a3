"""The console as a service of the hub: how the hub starts it, and who may open it.

Promises that the service's own token can do nothing but, where the hub runs as root, tell the names
of the hub's users; that its page is offered to administrators alone; and that a hub without a port
for it is a hub without a console.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from traitlets.config import Config

SERVICE = "admin"
SCOPES = ["list:users"]
"""Of the service itself, and only as root: whose runs there may be."""
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
    if os.geteuid() == 0:
        role = {"name": "tfcluster-console", "services": [SERVICE], "scopes": list(SCOPES)}
        c.JupyterHub.load_roles.append(role)
    c.JupyterHub.template_vars.update({"console": f"services/{SERVICE}/"})
