"""CPU- and GPU-hours of everyone.

GET    api/hours                          from, to, by (user, group, cluster, day)
GET    api/hours.csv                      the same for a spreadsheet
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from ....errors import InvalidRequest, Problem, TFClusterError
from ....i18n import _
from ....output import hours
from ....quota import budgets, ledger
from ....quota.ledger import By, Days, Row
from ...tenancy.grants import for_groups
from ..sites.base import Missed
from .base import ConsoleHandler
from .page import Page

WEEK = 7


class HoursPage(Page):
    """Who held how much."""

    title = "Hours"
    template = "hours.html"


class Hours(ConsoleHandler):
    """Hours of a window, most first."""

    async def get(self) -> None:
        """Rows, their sum, and whose could not be read."""
        about, rows, missed = await self.asked()
        told = {**about, "items": rows, "total": hours.total(rows), "missed": missed}
        self.reply(told)

    async def asked(self) -> tuple[dict[str, Any], list[Row], tuple[Missed, ...]]:
        """The window, and what was held in it. Raises InvalidRequest."""
        known = {"from", "to", "by"}
        wrong = [
            Problem(name, None, _("use {words}").format(words=", ".join(sorted(known))))
            for name in self.request.query_arguments
            if name not in known
        ]
        by = self.get_query_argument("by", "user")
        if by not in ledger.WAYS:
            rule = _("use {words}").format(words=", ".join(ledger.WAYS))
            wrong.append(Problem("by", by, rule))
        if wrong:
            raise InvalidRequest(wrong, _("that cannot be asked"))
        start, end = (self.get_query_argument(name, "") for name in ("from", "to"))
        first, last = budgets.days_asked(start, end, WEEK, time.time())
        held = await self.console.site.hours()
        users, missed = held.users, held.missed
        if by == "group":
            try:
                groups = await self._groups()
            except TFClusterError as error:
                missed = (*missed, Missed(owner="", detail=str(error)))
            else:
                users = {name: _of(days, groups.get(name, "")) for name, days in users.items()}
        rows = ledger.rows(users, first, last, cast(By, by))
        return {"from": first, "to": last, "by": by}, rows, missed

    async def _groups(self) -> dict[str, str]:
        """The group of each user whose words of the policy count now."""
        console = self.console
        users, policy = await asyncio.gather(console.people.all(), console.site_policy.policy())
        return {user.name: for_groups(policy, user.groups).group for user in users}


class HoursAsCsv(Hours):
    """The same for a spreadsheet."""

    async def get(self) -> None:
        """A line for each row."""
        about, rows, _missed = await self.asked()
        name = f"hours-{about['from']}-{about['to']}-{about['by']}.csv"
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.finish(hours.as_csv(rows, about["by"]) + "\n")


def _of(days: Days, group: str) -> Days:
    """`days` in which what was written down without a group is of this one."""
    found: Days = {}
    for day, groups in days.items():
        named = {name: clusters for name, clusters in groups.items() if name}
        moved = {group: groups[""]} if "" in groups else {}
        found |= ledger.together({day: named}, {day: moved})
    return found


HANDLERS = (("hours", HoursPage), ("api/hours", Hours), (r"api/hours\.csv", HoursAsCsv))
