"""The audit log.

GET    api/audit                          limit, before
GET    api/audit/export                   JSON lines
"""

from __future__ import annotations

import asyncio

from ..tables import row_limit
from .base import ConsoleHandler, noted
from .page import Page


class AuditPage(Page):
    """Who did what."""

    title = "Audit"
    template = "audit.html"


class Audit(ConsoleHandler):
    """The audit log, newest first."""

    async def get(self) -> None:
        """A page of it; `next` is the `before` of the page after it."""
        limit = row_limit(self.get_query_argument("limit", "100"))
        said = self.get_query_argument("before", "")
        before = int(said) if said.isascii() and said.isdigit() and len(said) < 16 else None
        found = await asyncio.to_thread(self.console.audit.page, limit, before)
        self.reply({"items": found.items, "next": found.next})


class Export(ConsoleHandler):
    """The audit log as it is."""

    async def get(self) -> None:
        """Each line of the file."""
        await noted(self, "export audit log", [("", "")])
        self.set_header("Content-Type", "application/jsonl")
        self.set_header("Content-Disposition", 'attachment; filename="audit.jsonl"')
        for block in self.console.audit.export():
            self.write(block)
            await self.flush()


HANDLERS = (("audit", AuditPage), ("api/audit", Audit), ("api/audit/export", Export))
