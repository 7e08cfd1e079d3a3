"""Routes of schedules: each calls one method of `manager.schedules`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..errors import InvalidRequest
from ..schedules import MOST_OCCURRENCES, Occurrence, Schedule, ScheduleRules
from ..schedules.cron import CronTimes
from ..spec import Model
from .base import guarded
from .launch import LaunchBody, LaunchRoute
from .worker import LAUNCH_WITHIN

if TYPE_CHECKING:
    from ..runs.schedules import ScheduleVerbs

NEXT = 10
"""Due times to come that a schedule is shown with."""
LISTED = 10
"""Newest past due times that a list shows of each schedule; a thousand may have 500 each."""


class ScheduleBody(Model, frozen=True, kw_only=True):
    """A new schedule; `launch` as in `POST /clusters`, without a name."""

    name: str
    rules: ScheduleRules
    launch: LaunchBody
    track: bool = False


class ScheduleUpdateBody(Model, frozen=True, kw_only=True):
    """Change a schedule, and take a new snapshot of its program; what is absent stays."""

    rules: ScheduleRules | None = None
    launch: LaunchBody | None = None
    track: bool | None = None


class SchedulePauseBody(Model, frozen=True):
    """Let a schedule launch nothing until it is resumed."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class BackfillBody(Model, frozen=True, kw_only=True):
    """Run past due times, oldest first; those that succeeded are left out."""

    start: Annotated[str, Meta(max_length=64)]
    end: Annotated[str, Meta(max_length=64)]
    parallel: int = 1


class EmptyBody(Model, frozen=True):
    """Nothing."""


SCHEDULE_MODELS = (
    *(Schedule, Occurrence, ScheduleBody, ScheduleUpdateBody, SchedulePauseBody),
    *(BackfillBody, EmptyBody),
)


def schedule_view(schedule: Schedule, most: int = MOST_OCCURRENCES) -> dict[str, Any]:
    """Return a schedule for a page: without the files of its program, with its next due times, and
    with at most `most` past ones, the newest.
    """
    status = replace(schedule.status, occurrences=schedule.status.occurrences[-most:])
    schedule = replace(schedule, status=status)
    told: dict[str, Any] = msgspec.to_builtins(schedule)
    (told["launch"]["spec"].get("program") or {}).pop("files", None)
    coming: list[float] = []
    if schedule.status.paused is None:
        try:
            times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
            coming = [*islice(times.after(time.time()), NEXT)]
        except InvalidRequest:  # a zone that the system no longer has
            coming = []
    return {"schedule": told, "next": coming}


def _rules(rules: ScheduleRules | None) -> dict[str, Any]:
    if rules is None:
        return {}
    return {key: msgspec.to_builtins(each) for key, each in msgspec.structs.asdict(rules).items()}


class ScheduleRoute(LaunchRoute):
    """What the routes share that take a launch."""

    async def verbs(self) -> ScheduleVerbs:
        """Return the verbs of the manager, whose first use imports much."""
        return await self.call(lambda: self.service.manager.schedules)

    async def launch_words(self, body: LaunchBody) -> dict[str, Any]:
        """Return a launch in the manager's words. Raises InvalidRequest."""
        asked = await self.resolve(body)
        if asked.problems:
            raise InvalidRequest(asked.problems)
        words = {key: value for key, value in asked.words.items() if key != "name"}
        return {"program": asked.program, **words}


class SchedulesHandler(ScheduleRoute):
    """`/schedules`."""

    @guarded
    async def get(self) -> None:
        """All schedules, by name, each with its newest due times."""
        found = await self.call((await self.verbs()).list)
        self.reply({"schedules": [schedule_view(each, LISTED) for each in found]})

    @guarded
    async def post(self) -> None:
        """Create a schedule."""
        body = self.read(ScheduleBody)
        words = await self.launch_words(body.launch)
        create = (await self.verbs()).create
        made = await self.call(
            create,
            body.name,
            track=body.track,
            within=LAUNCH_WITHIN,
            **_rules(body.rules),
            **words,
        )
        self.reply(schedule_view(made), 201)


class ScheduleHandler(ScheduleRoute):
    """`/schedules/{name}`."""

    @guarded
    async def get(self, name: str) -> None:
        """One schedule."""
        self.reply(schedule_view(await self.call((await self.verbs()).show, name)))

    @guarded
    async def delete(self, name: str) -> None:
        """Remove a schedule with its history; its runs stay."""
        await self.call((await self.verbs()).delete, name)
        self.set_status(204)
        self.finish()


class ScheduleHistoryHandler(ScheduleRoute):
    """`/schedules/{name}/history`."""

    @guarded
    async def get(self, name: str) -> None:
        """What became of the due times, newest first."""
        found = await self.call((await self.verbs()).history, name)
        self.reply({"occurrences": msgspec.to_builtins(found)})


class ScheduleVerbHandler(ScheduleRoute):
    """`/schedules/{name}/<verb>`."""

    def initialize(self, verb: str) -> None:
        """Serve this verb."""
        self._verb = verb

    @guarded
    async def post(self, name: str) -> None:
        """Do it, and answer with the schedule as it is then."""
        words = await self._words(self.read(SCHEDULE_VERBS[self._verb]))
        method = getattr(await self.verbs(), self._verb.replace("-", "_"))
        done = await self.call(method, name, within=LAUNCH_WITHIN, **words)
        self.reply(schedule_view(done))

    async def _words(self, body: Model) -> dict[str, Any]:
        if not isinstance(body, ScheduleUpdateBody):
            return msgspec.structs.asdict(body)
        launch = {} if body.launch is None else await self.launch_words(body.launch)
        return {"track": body.track, **_rules(body.rules), **launch}


SCHEDULE_VERBS: Mapping[str, type[Model]] = {
    "pause": SchedulePauseBody,
    "resume": EmptyBody,
    "run-now": EmptyBody,
    "update": ScheduleUpdateBody,
    "backfill": BackfillBody,
}

ROUTES = [
    (r"schedules", SchedulesHandler),
    (r"schedules/([^/]+)", ScheduleHandler),
    (r"schedules/([^/]+)/history", ScheduleHistoryHandler),
    *(
        (rf"schedules/([^/]+)/{verb}", ScheduleVerbHandler, {"verb": verb})
        for verb in SCHEDULE_VERBS
    ),
]
