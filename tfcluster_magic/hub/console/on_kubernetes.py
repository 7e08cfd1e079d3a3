"""The console on Kubernetes: the site's policy, probes, and serving.

This module is separate from `__main__`, because the Kubernetes client is optional. The console
itself writes only the ConfigMap of overrides, which the service `tenancy` then applies. To create a
namespace, the console asks the hub.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from tornado.httpserver import HTTPServer

from ...errors import BackendUnavailable, TFClusterError
from ...i18n import _
from ...kube.api import access
from ...kube.api.client import Api, ApiError, find_object, path
from ...kube.controller import process
from ...kube.controller.process import ProbeAnswer, ProbeServer
from ...quota.policy_file import InvalidPolicy
from ..shared_settings import base_url
from ..tenancy import entitlement_sources, namespace_objects
from ..tenancy.entitlement_sources import ACCEPTED_POLICY_MAP, POLICY_KEY
from ..tenancy.entitlements import HubPolicy
from ..tenancy.overrides import Override
from ..tenancy.policy import parse_policy
from ..user_limits import SitePolicy
from . import service
from .hub_users import HubUsers
from .sites.base import Site
from .sites.kubernetes import KubernetesSite, UserNames

POLICY_FRESH = 5.0
"""Seconds for which policy and overrides are cached. A page requests them every five seconds."""
T = TypeVar("T")


class KubernetesSitePolicy:
    """Policy and overrides of a hub's site on Kubernetes.

    Args:
        api: the connection to the API server.
        home: the hub's namespace.
        prefix: prefix of users' namespaces.
        hub: the hub's API.
        seen: returns the names of all existing namespaces of tenants.
    """

    has_claims = True

    def __init__(
        self,
        api: Api,
        home: str,
        prefix: str,
        hub: HubUsers,
        seen: Callable[[], Collection[str]],
    ) -> None:
        self._api, self._home, self._prefix = api, home, prefix
        self._hub, self._seen = hub, seen
        self._kept: tuple[float, HubPolicy, dict[str, Override]] = (float("-inf"), HubPolicy(), {})

    async def policy(self) -> HubPolicy:
        """See `SitePolicy.policy`."""
        return (await self._read())[1]

    async def overrides(self) -> Mapping[str, Override]:
        """See `SitePolicy.overrides`."""
        return (await self._read())[2]

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `SitePolicy.override`: this only stores the override, which tenancy then applies."""
        del groups

        def change() -> bool:
            return entitlement_sources.change_override(
                self._api, self._home, user, override, time.time()
            )

        had = await self._asked(change)
        self._kept = (float("-inf"), *self._kept[1:])
        return had

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """See `SitePolicy.unprepared`."""
        there = set(self._seen())
        return frozenset(
            u for u in users if namespace_objects.namespace_of_user(u, self._prefix) not in there
        )

    async def prepare(self, user: str) -> None:
        """See `SitePolicy.prepare`."""
        await self._hub.ask("POST", f"prepare/{quote(user, safe='')}")

    async def _read(self) -> tuple[float, HubPolicy, dict[str, Override]]:
        if time.monotonic() - self._kept[0] > POLICY_FRESH:
            self._kept = await self._asked(self._look)
        return self._kept

    def _look(self) -> tuple[float, HubPolicy, dict[str, Override]]:
        began = time.monotonic()
        found = find_object(self._api, path("configmaps", self._home, ACCEPTED_POLICY_MAP)) or {}
        policy = parse_policy(str((found.get("data") or {}).get(POLICY_KEY, "")))
        return began, policy, entitlement_sources.stored_overrides(self._api, self._home)

    async def _asked(self, act: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(act)
        except ApiError as error:
            text = _("the API server says: {why}")
            raise BackendUnavailable(text.format(why=error.message or error.reason)) from None
        except InvalidPolicy as mistake:
            text = _("the policy in force cannot be read here: {why}")
            raise TFClusterError(text.format(why=mistake)) from None
        except ValueError as error:
            text = _("the overrides in {file} cannot be read: {why}")
            raise TFClusterError(
                text.format(file=entitlement_sources.OVERRIDES_MAP, why=error)
            ) from None


# -- process

PORT, HEALTH_PORT = 8090, 8080
HOME = "tfcluster-hub"
HUB = "TFCLUSTER_CONSOLE_HUB"
"""Variable with the hub's address, without the base path."""
BEAT, LATE = 1.0, 30.0
"""A pair of times in seconds: the interval between heartbeats of the event loop, and the age of
the last heartbeat at which the probe fails.
"""

log = logging.getLogger("tfcluster")


async def serve_pod(
    server: Callable[[Site, Path, SitePolicy], HTTPServer],
    users: UserNames,
    asked_to_end: Callable[[], Awaitable[bool]],
) -> None:
    """Run the console of a Kubernetes cluster until `asked_to_end` is done."""
    process.start_logging(as_json=True)
    # Pages send requests all the time; do not log each.
    for name in ("tornado.access", "tornado.application"):
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ["JUPYTERHUB_API_URL"] = f"{os.environ[HUB]}{base_url()}hub/api"
    try:
        api, own = access.connect()
    except TFClusterError as error:
        raise SystemExit(str(error)) from None
    home = own if access.in_pod() else HOME
    site = KubernetesSite(api, home, namespace_objects.namespace_prefix(), users)
    turned = [time.monotonic()]

    def healthy() -> ProbeAnswer:
        if time.monotonic() - turned[0] > LATE:
            return False, "its loop hangs"
        return (True, "ok") if site.alive else (False, "a thread has died")

    def ready() -> ProbeAnswer:
        return site.synced, "; ".join(site.problems) or "ok"

    site.start()
    health = ProbeServer(HEALTH_PORT, {"/healthz": healthy, "/readyz": ready})
    health.start()
    tenants = site.tenants
    policy = KubernetesSitePolicy(
        api,
        home,
        namespace_objects.namespace_prefix(),
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
