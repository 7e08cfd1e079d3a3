"""The idle culler: when the hub ends notebooks that nobody uses, and how many a person may have.

Only work in a notebook counts as its use: a running cluster does not, and goes on when its notebook
is ended. Ending is jupyterhub-idle-culler's, a service of the hub with the rights to see when
notebooks were used and to stop them, and no more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from traitlets.config import Config

from ..errors import InvalidRequest, Problem
from ..i18n import _

SERVICE = "idle-culler"
SCOPES = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
OF_THE_POD = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "TFCLUSTER_HUB_NAMESPACE")
"""What the culler of Kubernetes needs of the hub's environment."""
API = "TFCLUSTER_HUB_API"
"""By which the culler of Kubernetes asks the hub."""
LEAST = 5
"""Seconds between two looks, however short the times are."""
IDLE, MAX_AGE, NAMED = "TFCLUSTER_HUB_IDLE", "TFCLUSTER_HUB_MAX_AGE", "TFCLUSTER_HUB_NAMED_SERVERS"


def configure(
    c: Config,
    environ: Mapping[str, str] | None = None,
    *,
    by_policy: bool = False,
    api: str = "",
) -> None:
    """Set how long a notebook may be unused, and how old it may get, both in seconds; 0: no end.

    The environment says it: `TFCLUSTER_HUB_IDLE`, `TFCLUSTER_HUB_MAX_AGE` and, how many notebooks
    a person may have beside the one, `TFCLUSTER_HUB_NAMED_SERVERS`. With `by_policy` the policy on
    Kubernetes says what the first two do not. `api` is the URL of the hub's API for the culler,
    where it is not that for notebooks.

    Raises:
        InvalidRequest: what the environment says is no number from 0; every such.
    """
    env = os.environ if environ is None else environ
    given = {name: env.get(name) or "0" for name in (IDLE, MAX_AGE, NAMED)}
    rule = _("a whole number from 0 is allowed")
    wrong = [Problem(name, text, rule) for name, text in given.items() if not _is_count(text)]
    if wrong:
        raise InvalidRequest(wrong, _("the hub cannot be set up"))
    seconds, oldest, named = (int(given[name]) for name in (IDLE, MAX_AGE, NAMED))
    if named:
        c.JupyterHub.allow_named_servers = True
        c.JupyterHub.named_server_limit_per_user = named
    if seconds or oldest:
        _cull(c, seconds, oldest, api)
    elif by_policy and not (env.get(IDLE) or env.get(MAX_AGE)):
        _cull_by_policy(c, env, api)


def _cull(c: Config, seconds: int, oldest: int, api: str) -> None:
    shortest = min(span for span in (seconds, oldest) if span)
    _tell_every(c, min(300, max(1, shortest // 4)))
    command = [sys.executable, "-m", "jupyterhub_idle_culler"]
    # It knows no "never": who may only get old is never idle for so long.
    command += [f"--timeout={seconds or 10 * oldest}", f"--max-age={oldest}"]
    command += [f"--cull-every={min(60, max(LEAST, shortest // 2))}", *_asking(api)]
    _serve(c, command, SCOPES)


def _cull_by_policy(c: Config, env: Mapping[str, str], api: str) -> None:
    _tell_every(c, 60)
    file = Path(__file__).with_name("idle_by_policy.py")
    command = [sys.executable, "-m", "jupyterhub_idle_culler", f"--config={file}"]
    kept = {name: env[name] for name in OF_THE_POD if name in env} | {API: api}
    command += ["--cull-every=60", *_asking(api)]
    _serve(c, command, [*SCOPES, "read:users:groups"], kept)


def _asking(api: str) -> list[str]:
    return [f"--url={api}"] if api else []


def _tell_every(c: Config, seconds: int) -> None:
    """Notebooks tell every five minutes that they were used: too late for short times."""
    c.Spawner.environment.update({"JUPYTERHUB_ACTIVITY_INTERVAL": str(seconds)})
    c.JupyterHub.last_activity_interval = seconds  # what the proxy has seen


def _serve(
    c: Config, command: list[str], scopes: list[str], environ: Mapping[str, str] | None = None
) -> None:
    service = {"name": SERVICE, "command": command, "environment": dict(environ or {})}
    c.JupyterHub.services.append(service)
    c.JupyterHub.load_roles.append({"name": SERVICE, "services": [SERVICE], "scopes": list(scopes)})


def _is_count(value: object) -> bool:
    return str(value).isascii() and str(value).isdigit()
