"""A site on Kubernetes: what tenancy accepted of the policy, and the overrides that it follows.

Promises to write one ConfigMap and nothing else: namespaces are made by the hub, which may, and
what an override gives is applied by tenancy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from urllib.parse import quote

from ....errors import BackendUnavailable, TFClusterError
from ....i18n import _
from ....kube.api.client import Api, ApiError, path
from ....kube.api.gone import find
from ...tenancy import names, overriding
from ...tenancy.accepted import ACCEPTED, KEY
from ...tenancy.grants import Policy
from ...tenancy.overrides import Override
from ...tenancy.policy import PolicyMistake, parse
from ..hub_users import HubUsers

FRESH = 5.0
"""Seconds for which policy and overrides are believed: a page asks every five."""
T = TypeVar("T")


class SiteInCluster:
    """One hub's site.

    Args:
        api: the connection.
        home: the hub's namespace.
        prefix: how users' namespaces begin.
        hub: the hub's API.
        seen: tells the namespaces of all tenants, as far as they are known.
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
        self._kept: tuple[float, Policy, dict[str, Override]] = (float("-inf"), Policy(), {})

    async def policy(self) -> Policy:
        """See `Site.policy`."""
        return (await self._read())[1]

    async def overrides(self) -> Mapping[str, Override]:
        """See `Site.overrides`."""
        return (await self._read())[2]

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `Site.override`. Tenancy makes it so."""
        del groups

        def change() -> bool:
            return overriding.change(self._api, self._home, user, override, time.time())

        had = await self._asked(change)
        self._kept = (float("-inf"), *self._kept[1:])
        return had

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """See `Site.unprepared`."""
        there = set(self._seen())
        return frozenset(u for u in users if names.namespace(u, self._prefix) not in there)

    async def prepare(self, user: str) -> None:
        """See `Site.prepare`."""
        await self._hub.ask("POST", f"prepare/{quote(user, safe='')}")

    async def _read(self) -> tuple[float, Policy, dict[str, Override]]:
        if time.monotonic() - self._kept[0] > FRESH:
            self._kept = await self._asked(self._look)
        return self._kept

    def _look(self) -> tuple[float, Policy, dict[str, Override]]:
        began = time.monotonic()
        found = find(self._api, path("configmaps", self._home, ACCEPTED)) or {}
        policy = parse(str((found.get("data") or {}).get(KEY, "")))
        return began, policy, overriding.every(self._api, self._home)

    async def _asked(self, act: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(act)
        except ApiError as error:
            text = _("the API server says: {why}")
            raise BackendUnavailable(text.format(why=error.message or error.reason)) from None
        except PolicyMistake as mistake:
            text = _("the policy that counts cannot be read here: {why}")
            raise TFClusterError(text.format(why=mistake)) from None
        except ValueError as error:
            text = _("the overrides in {file} cannot be read: {why}")
            raise TFClusterError(text.format(file=overriding.NAME, why=error)) from None
