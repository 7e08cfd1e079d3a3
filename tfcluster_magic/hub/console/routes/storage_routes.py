"""What lies in everyone's folders or claims.

GET    api/storage                        q, owner, full, sort, limit, offset
"""

from __future__ import annotations

import asyncio
import time

from ....kube.api.amounts import quantity
from ...tenancy.overrides import entitled, limits
from ..tables import STORAGE, storage_page, storage_rows
from .base import ConsoleHandler, words
from .page import Page


class StoragePage(Page):
    """Who has how much, and may have."""

    title = "Storage"
    template = "storage.html"


class Storage(ConsoleHandler):
    """Folders of everyone, fullest first."""

    async def get(self) -> None:
        """Rows that fit; what could not be read is told beside them."""
        asked = STORAGE.query(words(self))
        console, now = self.console, time.time()
        filled, users, policy, overrides = await asyncio.gather(
            console.storage_cache.filled(),
            console.people.all(),
            console.site_policy.policy(),
            console.site_policy.overrides(),
        )
        allowed = {}
        for user in users:
            said = limits(entitled(policy, user.groups, overrides.get(user.name), now)).storage
            allowed[user.name] = {name: round(quantity(text)) for name, text in said.items()}
        page = storage_page(storage_rows(filled, allowed), asked)
        self.reply({**page, "missed": filled.missed})


HANDLERS = (("storage", StoragePage), ("api/storage", Storage))
