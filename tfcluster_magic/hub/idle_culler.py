"""Settings of the idle culler, which stops unused notebooks, and of the number of named servers.

Only work in a notebook counts as activity. A running cluster does not keep its notebook alive, and
it continues when its notebook is stopped. jupyterhub-idle-culler stops the notebooks. It is a
service of the hub with only the scopes to read activity and stop notebooks.
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
"""Variables of the hub's environment that the culler on Kubernetes needs."""
API = "TFCLUSTER_HUB_API"
"""Variable with the URL of the hub's API, for the culler on Kubernetes."""
LEAST = 5
"""Minimum seconds between two checks of the notebooks."""
IDLE, MAX_AGE, NAMED = "TFCLUSTER_HUB_IDLE", "TFCLUSTER_HUB_MAX_AGE", "TFCLUSTER_HUB_NAMED_SERVERS"


def configure(
    c: Config,
    environ: Mapping[str, str] | None = None,
    *,
    by_policy: bool = False,
    api: str = "",
) -> None:
    """Configure the idle limit and the maximum age of a notebook, in seconds; 0 means none.

    `TFCLUSTER_HUB_IDLE` and `TFCLUSTER_HUB_MAX_AGE` set them. `TFCLUSTER_HUB_NAMED_SERVERS` is the
    number of extra notebooks for each user. With `by_policy`, the policy on Kubernetes applies
    unless `TFCLUSTER_HUB_IDLE` or `TFCLUSTER_HUB_MAX_AGE` is set. `api` is the URL of the hub's API
    for the culler, if it differs from the URL for notebooks.

    Raises:
        InvalidRequest: a variable is not a whole number of at least 0; the message names all such
            variables.
    """
    env = os.environ if environ is None else environ
    given = {name: env.get(name) or "0" for name in (IDLE, MAX_AGE, NAMED)}
    rule = _("use a whole number of at least 0")
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
    # The culler always has an idle timeout. Without an idle limit, make the timeout longer than the
    # maximum age, so that it has no effect.
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
    """Make notebooks report activity often; the default of five minutes is too late for short
    limits.
    """
    c.Spawner.environment.update({"JUPYTERHUB_ACTIVITY_INTERVAL": str(seconds)})
    c.JupyterHub.last_activity_interval = seconds  # seconds; for activity that the proxy has seen


def _serve(
    c: Config, command: list[str], scopes: list[str], environ: Mapping[str, str] | None = None
) -> None:
    service = {"name": SERVICE, "command": command, "environment": dict(environ or {})}
    c.JupyterHub.services.append(service)
    c.JupyterHub.load_roles.append({"name": SERVICE, "services": [SERVICE], "scopes": list(scopes)})


def _is_count(value: object) -> bool:
    return str(value).isascii() and str(value).isdigit()
