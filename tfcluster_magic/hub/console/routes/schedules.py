"""Routes of everyone's schedules.

GET    api/schedules                      q, owner, state, sort, limit, offset, kept
POST   api/schedules/pause                {"schedules": [{"owner", "name", "uid"}], "reason"}
POST   api/schedules/resume               {"schedules": [{"owner", "name", "uid"}], "reason"}
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import msgspec

from ....errors import InvalidRequest
from ....i18n import _
from ....launch import validation
from ....schedules import Pause
from ....schedules.cron import read_zone
from ....spec import Model
from .. import tables
from ..sites.base import SiteSchedule
from .base import (
    ChosenObject,
    ConsoleHandler,
    ConsolePage,
    change_each,
    is_known,
    query_words,
)


class SchedulesPage(ConsolePage):
    """The page of schedules."""

    title = "Schedules"
    template = "schedules.html"


class PauseRequest(Model, frozen=True):
    """Schedules to pause, and why."""

    schedules: tuple[ChosenObject, ...]
    reason: str


class ResumeRequest(Model, frozen=True):
    """Schedules to resume; the reason is for the audit log."""

    schedules: tuple[ChosenObject, ...]
    reason: str = ""


class EveryonesSchedules(ConsoleHandler):
    """Everyone's schedules; each request gets one page of the table."""

    async def get(self) -> None:
        """Answer with the matching rows and the time at which they were read; 304 if the caller has
        them already.
        """
        asked = tables.SCHEDULES.query(query_words(self))
        look = await self.console.run_cache.look(kept=asked.kept)
        if is_known(self, asked, look):
            return
        page = tables.SCHEDULES.page(look.seen.schedules, asked)
        fields: dict[str, Any] = {"items": [_told(row) for row in page.items]}
        fields |= {"total": page.total, "all": page.all, "states": page.counts}
        self.reply({**fields, "missed": look.seen.missed, "seenAt": look.at, "note": look.note})


def _told(row: SiteSchedule) -> dict[str, Any]:
    """Return a row with its reason in words, and with the next due time in the schedule's zone."""
    told: dict[str, Any] = msgspec.to_builtins(row)
    try:
        reason = str(row.reason)
    except LookupError:  # a newer version wrote the reason
        reason = ""
    return {**told, "reason": reason, "next": _local(row)}


def _local(row: SiteSchedule) -> str:
    if row.next_at is None:
        return ""
    try:
        zone = read_zone(row.time_zone)
    except InvalidRequest:
        return ""
    return f"{datetime.fromtimestamp(row.next_at, zone):%Y-%m-%d %H:%M}"


class PauseSchedules(ConsoleHandler):
    """Pauses schedules with a reason that each owner sees. Only administrators can resume them."""

    async def post(self) -> None:
        """Answer with the result for each schedule, in the order of the request."""
        asked = validation.read_model(self.body(), PauseRequest)
        by = _("admin {name}").format(name=self.who)

        async def pause(each: ChosenObject, reason: str) -> None:
            pause = Pause(at=time.time(), by=by, reason=reason, locked=True)
            await self.console.site.pause(each.owner, each.name, each.uid, pause)

        await change_each(self, "pause schedule", asked.schedules, asked.reason, pause)


class ResumeSchedules(ConsoleHandler):
    """Resumes schedules that an administrator paused."""

    async def post(self) -> None:
        """Answer with the result for each schedule, in the order of the request."""
        asked = validation.read_model(self.body(), ResumeRequest)

        async def resume(each: ChosenObject, _reason: str) -> None:
            await self.console.site.resume(each.owner, each.name, each.uid)

        await change_each(
            self, "resume schedule", asked.schedules, asked.reason, resume, needs_reason=False
        )


HANDLERS = (
    ("schedules", SchedulesPage),
    ("api/schedules", EveryonesSchedules),
    ("api/schedules/pause", PauseSchedules),
    ("api/schedules/resume", ResumeSchedules),
)
