"""What the console asks of a site about its users: policy, overrides, what lies on its disks.

Promises the same verbs for this machine and for Kubernetes. What a site does not have it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from ....errors import TFClusterError
from ....i18n import _
from ...allowances import Allowances
from ...tenancy.grants import Policy
from ...tenancy.overrides import Override


class Site(Protocol):
    """One site; every method raises TFClusterErrors only."""

    @property
    def has_claims(self) -> bool:
        """Whether its users have claims, which have a size also where the policy says none."""

    async def policy(self) -> Policy:
        """The policy as it counts."""

    async def overrides(self) -> Mapping[str, Override]:
        """All of them, those that have ended among them."""

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """Set a user's override, or take it away; whether there was one."""

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """Those of them who lack a namespace that could be made beforehand."""

    async def prepare(self, user: str) -> None:
        """Make it."""


class Nowhere:
    """A site that keeps nothing of its users: everybody may have what there is."""

    has_claims = False

    async def policy(self) -> Policy:
        """See `Site.policy`."""
        return Policy()

    async def overrides(self) -> Mapping[str, Override]:
        """See `Site.overrides`."""
        return {}

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `Site.override`."""
        del user, groups, override
        raise TFClusterError(_("this site has no overrides"))

    async def unprepared(self, users: Collection[str]) -> frozenset[str]:
        """See `Site.unprepared`."""
        del users
        return frozenset()

    async def prepare(self, user: str) -> None:
        """See `Site.prepare`."""
        del user


class SiteHere(Nowhere):
    """This machine: files in the hub's own folder."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    async def policy(self) -> Policy:
        """See `Site.policy`."""
        return await asyncio.to_thread(lambda: self._allowances.policy.policy)

    async def overrides(self) -> Mapping[str, Override]:
        """See `Site.overrides`."""
        return await asyncio.to_thread(self._allowances.overrides.all)

    async def override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        """See `Site.override`. A notebook that runs is told at once."""
        return await asyncio.to_thread(self._override, user, groups, override)

    def _override(self, user: str, groups: tuple[str, ...], override: Override | None) -> bool:
        overrides = self._allowances.overrides
        try:
            if override is None:
                there = overrides.clear(user)
            else:
                there = user in overrides.all()
                overrides.set(user, override)
            self._allowances.tell_again(user, groups)
        except OSError as error:
            raise TFClusterError(str(error)) from None
        return there
