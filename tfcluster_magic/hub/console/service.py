"""The console as a service of the hub: how it starts, and who may open it.

The service's token has only the scopes that the console's pages need, and gives no access to files.
Only administrators may open the pages. A console that fails to start must not stop the hub. The hub
therefore has two services for the console. One has the console's address, and is external, that is,
the hub does not start it. The other has no address, and runs the console's process.
"""

from __future__ import annotations

import atexit
import hashlib
import hmac
import json
import os
import secrets
import socket
import sqlite3
import sys
from collections.abc import MutableMapping
from contextlib import closing, suppress
from pathlib import Path

from jupyterhub.utils import url_path_join
from traitlets.config import Config
from traitlets.log import get_logger

from ... import state_files
from ...i18n import _, mark
from ..shared_settings import CONSOLE, DATABASE, base_url, subdomain_host

PROCESS = "admin-process"
SCOPES = ["admin:users", "admin:groups", "servers"]
"""Scopes of the service's token, to list and import users, manage links and groups, and control
servers.
"""
OWNER, STATE = "TFCLUSTER_CONSOLE_OWNER", "TFCLUSTER_CONSOLE_STATE"
ARCHIVES = "TFCLUSTER_CONSOLE_ARCHIVES"
"""Variable with the folder of archives. By default, the folder is in the state folder."""
PORT, TOKEN = "TFCLUSTER_CONSOLE_PORT", "TFCLUSTER_CONSOLE_TOKEN"
TOKEN_FILE = "console_token"  # noqa: S105
KEPT = ("TFCLUSTER_", "XDG_", "HOME", "LANG", "LC_", "USER", "LOGNAME")
"""Prefixes of the hub's environment variables that the console needs to find the owner's runs."""
LOOPBACK = "127.0.0.1"
PAGES = (
    (mark("Clusters"), ""),
    (mark("Schedules"), "schedules"),
    (mark("Users"), "users"),
    (mark("Archives"), "archives"),
    (mark("Hours"), "hours"),
    (mark("Storage"), "storage"),
    (mark("Audit"), "audit"),
)
"""Title and path of each page, in the order of the navigation bar. The hub's own pages link to them
too.
"""
SHELL = "shell"
"""Name of the service that `tfcluster admin` uses to call the console when the hub's owner runs the
command in a shell.
"""
SHELL_TOKEN_FILE = "shell_token"  # noqa: S105
KEY = "X-TFCluster-Hub-Key"
"""Header in which the hub sends its `home_key`."""
ACCESS = f"access:services!service={CONSOLE}"


def configure(c: Config, *, port: int, owner: str, state: Path) -> None:
    """Configure a console on the loopback port `port`, or on a free port if that is taken. If
    `port` is 0, configure no console.
    """
    if not port:
        return
    try:
        port, token = _hold(port), _token(state / TOKEN_FILE)
        of_shell = _new_shell_token(state)
    except (OSError, sqlite3.Error) as error:
        text = _("the hub starts without its admin console: {why}")
        get_logger().error(text.format(why=error))
        return
    kept = {key: text for key, text in os.environ.items() if key.startswith(KEPT)}
    own = {OWNER: owner, STATE: str(state), PORT: str(port), TOKEN: token}
    process = {
        "name": PROCESS,
        "command": [sys.executable, "-m", "tfcluster_magic.hub.console"],
        "environment": {**kept, **own},
    }
    c.JupyterHub.services.append(process)
    register(c, url=f"http://{LOOPBACK}:{port}", token=token, timeout=10)
    c.JupyterHub.services.append({"name": SHELL, "api_token": of_shell, "display": False})
    role = {"name": "tfcluster-shell", "services": [SHELL], "scopes": [ACCESS]}
    c.JupyterHub.load_roles.append(role)


def register(c: Config, *, url: str, token: str, timeout: int) -> None:
    """Register the console in the hub. A hub that starts waits up to `timeout` seconds until the
    console answers.
    """
    service = {
        "name": CONSOLE,
        "url": url,
        "api_token": token,
        "oauth_no_confirm": True,  # no confirmation page, because the console is part of the hub
        "display": False,  # not in the list of services, because pages link to it
        "timeout": timeout,
    }
    c.JupyterHub.services.append(service)
    role = {"name": "tfcluster-console", "services": [CONSOLE], "scopes": list(SCOPES)}
    c.JupyterHub.load_roles.append(role)
    c.JupyterHub.template_vars.update({"console": f"services/{CONSOLE}/", "console_pages": PAGES})
    asking = {"console": f"{url}{service_prefix(base_url())}", "key": home_key(token)}
    page = "tfcluster_magic.hub.console.home.ClustersOfUser"
    c.JupyterHub.extra_handlers.append((r"/home/clusters", page, asking))


def service_prefix(base: str) -> str:
    """Return the console's path below the hub's `base`."""
    return f"{url_path_join(base, 'services', CONSOLE)}/"


def home_key(token: str) -> str:
    """Return the key by which the console recognises the hub's requests for a user's clusters. Hub
    and console derive the key from `token`, the console's own token.
    """
    return hmac.new(token.encode(), b"clusters of the home page", hashlib.sha256).hexdigest()


def run_as_service(environ: MutableMapping[str, str]) -> None:
    """Make JupyterHub's classes in this process act as the service that `register` registered."""
    base = environ.setdefault("JUPYTERHUB_BASE_URL", base_url(environ))
    for name in [each for each in environ if each.startswith("JUPYTERHUB_OAUTH_")]:
        # The hub set this variable for PROCESS, the service that started this process.
        del environ[name]
    environ["JUPYTERHUB_OAUTH_ACCESS_SCOPES"] = json.dumps([ACCESS])
    environ["JUPYTERHUB_SERVICE_NAME"] = CONSOLE
    environ["JUPYTERHUB_SERVICE_PREFIX"] = service_prefix(base)
    if host := subdomain_host(environ):  # the console is on the hub's host, not on a subdomain
        environ["JUPYTERHUB_HOST"] = host
        callback = url_path_join(environ["JUPYTERHUB_SERVICE_PREFIX"], "oauth_callback")
        environ["JUPYTERHUB_OAUTH_CALLBACK_URL"] = f"{host}{callback}"
    environ["JUPYTERHUB_CLIENT_ID"] = f"service-{CONSOLE}"
    environ["JUPYTERHUB_API_TOKEN"] = environ.pop(TOKEN)


def _hold(wanted: int) -> int:
    """Bind a port, keep it bound until the hub ends, and return its number: `wanted`, or a free
    port if `wanted` is taken.

    No other account can then take the port, even while the console restarts. A program that had the
    port would receive administrators' requests. The console listens on the same port
    (SO_REUSEPORT). Raises OSError.
    """
    for port in (wanted, 0):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            one.bind((LOOPBACK, port))
        except OSError:
            one.close()
            if port:
                continue
            raise
        atexit.register(one.close)
        return int(one.getsockname()[1])
    raise AssertionError


def _new_shell_token(state: Path) -> str:
    """Return a new token for SHELL, valid until the hub ends. Raises OSError or sqlite3.Error.

    JupyterHub keeps earlier tokens of an existing service, so they are deleted from its database,
    which no process has open yet.
    """
    if (database := state / DATABASE).exists():
        with closing(sqlite3.connect(database)) as db, db:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'api_tokens'").fetchone():
                db.execute(
                    "DELETE FROM api_tokens WHERE service_id IN "
                    "(SELECT id FROM services WHERE name = ?)",
                    (SHELL,),
                )
    token = secrets.token_hex(32)
    state_files.write(state / SHELL_TOKEN_FILE, token.encode())
    return token


def _token(file: Path) -> str:
    """Return the token in a file; create the file if it does not exist. Raises OSError."""
    with suppress(FileExistsError):
        number = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "w") as out:
            out.write(secrets.token_hex(32))
    try:
        token = state_files.read_bytes(file, most=4096).decode("ascii", "replace")
    except state_files.Unreadable as why:
        raise OSError(_("{file} cannot be read: {why}").format(file=file, why=why)) from None
    if len(token) != 64:  # incomplete, for example because the disk was full
        file.unlink()
        raise OSError(
            _("{file} was incomplete and has been deleted: start the hub again").format(file=file)
        )
    return token
