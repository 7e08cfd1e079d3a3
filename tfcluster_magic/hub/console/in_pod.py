"""The console as a pod beside the hub: k8s/hub/console.yaml says what it is told.

Promises to answer probes by a thread of its own: alive while its loop turns and whoever follows the
cluster has not died, ready once it has seen everything. Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tornado.httpserver import HTTPServer

from ...errors import TFClusterError
from ...kube.api import access, account
from ...kube.controller import logs
from ...kube.controller.health import Answer, Health
from ..common import base_url
from ..tenancy import names
from . import service
from .hub_users import HubUsers
from .sites.base import World
from .sites.kubernetes import Kubernetes, Names
from .sites.kubernetes_policy import SiteInCluster
from .sites.site import Site

PORT, HEALTH_PORT = 8090, 8080
HOME = "tfcluster-hub"
HUB = "TFCLUSTER_CONSOLE_HUB"
"""Where the hub is, without its base_url."""
BEAT, LATE = 1.0, 30.0
"""Seconds between two turns of the loop that are noted; after which it hangs."""

log = logging.getLogger("tfcluster")


async def serve_pod(
    server: Callable[[World, Path, Site], HTTPServer],
    users: Names,
    asked_to_end: Callable[[], Awaitable[bool]],
) -> None:
    """Serve until somebody says that it is enough."""
    logs.begin(as_json=True)
    for name in ("tornado.access", "tornado.application"):  # a page asks every two seconds
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ["JUPYTERHUB_API_URL"] = f"{os.environ[HUB]}{base_url()}hub/api"
    try:
        api, own = access.connect()
    except TFClusterError as error:
        raise SystemExit(str(error)) from None
    home = own if account.in_pod() else HOME
    site = Kubernetes(api, home, names.prefix(), users)
    turned = [time.monotonic()]

    def healthy() -> Answer:
        if time.monotonic() - turned[0] > LATE:
            return False, "its loop hangs"
        return (True, "ok") if site.alive else (False, "a thread has died")

    def ready() -> Answer:
        return site.synced, "; ".join(site.problems) or "ok"

    site.start()
    health = Health(HEALTH_PORT, {"/healthz": healthy, "/readyz": ready})
    health.start()
    tenants = site.tenants
    policy = SiteInCluster(
        api,
        home,
        names.prefix(),
        HubUsers(),
        lambda: [each["metadata"]["name"] for each in tenants.every()],
    )
    site.policy = policy.policy
    answers = server(site, Path(os.environ[service.STATE]), policy)
    answers.listen(PORT)
    log.info("following %s; console on port %d", api.server, PORT)
    asked = asyncio.ensure_future(asked_to_end())
    while not asked.done():
        turned[0] = time.monotonic()
        await asyncio.wait([asked], timeout=BEAT)
    log.info("ending")
    answers.stop()
    health.stop()
    site.close()
