"""Routes of everyone's CPU- and GPU-hours and storage, and of the audit log.

GET    api/hours                          from, to, by (user, group, cluster, day),
                                          sort (reserved, unused)
GET    api/hours.csv                      as api/hours, for a spreadsheet
GET    api/storage                        q, owner, full, sort, limit, offset
GET    api/audit                          limit, before
GET    api/audit/export                   JSON lines
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from ....errors import InvalidRequest, Problem, TFClusterError
from ....i18n import _
from ....kube.api.resource_amounts import parse_quantity
from ....output import documents
from ....quota import budgets, ledger
from ....quota.ledger import Grouping, HoursByDay, HoursRow, Order
from ...tenancy.entitlements import entitlement_for_groups
from ...tenancy.overrides import entitled
from ...tenancy.policy import limits_of
from ..sites.base import Missed
from ..tables import STORAGE, row_limit, storage_page, storage_rows
from .base import ConsoleHandler, ConsolePage, query_words, write_audit

WEEK = 7


class HoursPage(ConsolePage):
    """The page of CPU- and GPU-hours."""

    title = "Hours"
    template = "hours.html"


class HoursRoute(ConsoleHandler):
    """The CPU- and GPU-hours in a range of days. The rows with the most reserved or unused hours
    come first.
    """

    async def get(self) -> None:
        """Answer with the rows, their total, and the users whose hours could not be read."""
        about, rows, missed = await self.asked()
        told = {**about, "items": rows, "total": documents.total_hours(rows), "missed": missed}
        self.reply(told)

    async def asked(self) -> tuple[dict[str, Any], list[HoursRow], tuple[Missed, ...]]:
        """Return the checked query, its rows, and the users whose hours could not be read. Raises
        InvalidRequest.
        """
        known = {"from", "to", "by", "sort"}
        wrong = [
            Problem(name, None, _("use {words}").format(words=", ".join(sorted(known))))
            for name in self.request.query_arguments
            if name not in known
        ]
        by = self.get_query_argument("by", "user")
        if by not in ledger.GROUPINGS:
            rule = _("use {words}").format(words=", ".join(ledger.GROUPINGS))
            wrong.append(Problem("by", by, rule))
        order = self.get_query_argument("sort", "reserved")
        if order not in ledger.ORDERS:
            rule = _("use {words}").format(words=", ".join(ledger.ORDERS))
            wrong.append(Problem("sort", order, rule))
        if wrong:
            raise InvalidRequest(wrong, _("the request is invalid"))
        start, end = (self.get_query_argument(name, "") for name in ("from", "to"))
        first, last = budgets.requested_window(start, end, WEEK, time.time())
        held = await self.console.site.hours()
        users, missed = held.users, held.missed
        if by == "group":
            try:
                groups = await self._groups()
            except TFClusterError as error:
                missed = (*missed, Missed(owner="", detail=str(error)))
            else:
                users = {
                    name: _of_group(days, groups.get(name, "")) for name, days in users.items()
                }
        rows = ledger.hours_rows(users, first, last, cast(Grouping, by), cast(Order, order))
        return {"from": first, "to": last, "by": by, "sort": order}, rows, missed

    async def _groups(self) -> dict[str, str]:
        """Return, for each user, the group whose limits apply now."""
        console = self.console
        users, policy = await asyncio.gather(console.people.all(), console.site_policy.policy())
        return {user.name: entitlement_for_groups(policy, user.groups).group for user in users}


class HoursCsvRoute(HoursRoute):
    """The CPU- and GPU-hours as CSV."""

    async def get(self) -> None:
        """Answer with a line for each row."""
        about, rows, _missed = await self.asked()
        name = f"hours-{about['from']}-{about['to']}-{about['by']}.csv"
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.finish(documents.hours_csv(rows, about["by"]) + "\n")


def _of_group(days: HoursByDay, group: str) -> HoursByDay:
    """Return a copy of `days` in which the hours without a group belong to `group`."""
    found: HoursByDay = {}
    for day, groups in days.items():
        named = {name: clusters for name, clusters in groups.items() if name}
        moved = {group: groups[""]} if "" in groups else {}
        found |= ledger.merge_days({day: named}, {day: moved})
    return found


HOURS_HANDLERS = (
    ("hours", HoursPage),
    ("api/hours", HoursRoute),
    (r"api/hours\.csv", HoursCsvRoute),
)


# -- storage


class StoragePage(ConsolePage):
    """The page of storage."""

    title = "Storage"
    template = "storage.html"


class StorageRoute(ConsoleHandler):
    """Everyone's folders, the fullest first."""

    async def get(self) -> None:
        """Answer with the matching rows, and the users whose storage could not be read."""
        asked = STORAGE.query(query_words(self))
        console, now = self.console, time.time()
        filled, users, policy, overrides = await asyncio.gather(
            console.storage_cache.filled(),
            console.people.all(),
            console.site_policy.policy(),
            console.site_policy.overrides(),
        )
        allowed = {}
        for user in users:
            said = limits_of(entitled(policy, user.groups, overrides.get(user.name), now)).storage
            allowed[user.name] = {name: round(parse_quantity(text)) for name, text in said.items()}
        page = storage_page(storage_rows(filled, allowed), asked)
        self.reply({**page, "missed": filled.missed})


STORAGE_HANDLERS = (("storage", StoragePage), ("api/storage", StorageRoute))


# -- the audit log


class AuditPage(ConsolePage):
    """The page of the audit log."""

    title = "Audit"
    template = "audit.html"


class AuditRoute(ConsoleHandler):
    """The audit log, newest first."""

    async def get(self) -> None:
        """Answer with one page of the log. To get the following page, the caller passes `next` of
        the answer as the parameter `before`.
        """
        limit = row_limit(self.get_query_argument("limit", "100"))
        said = self.get_query_argument("before", "")
        before = int(said) if said.isascii() and said.isdigit() and len(said) < 16 else None
        found = await asyncio.to_thread(self.console.audit.page, limit, before)
        self.reply({"items": found.items, "next": found.next})


class AuditExport(ConsoleHandler):
    """The audit log as JSON lines."""

    async def get(self) -> None:
        """Answer with the lines of all files of the audit log."""
        await write_audit(self, "export audit log", [("", "")])
        self.set_header("Content-Type", "application/jsonl")
        self.set_header("Content-Disposition", 'attachment; filename="audit.jsonl"')
        for block in self.console.audit.export():
            self.write(block)
            await self.flush()


AUDIT_HANDLERS = (
    ("audit", AuditPage),
    ("api/audit", AuditRoute),
    ("api/audit/export", AuditExport),
)
