"""Routes of schedules: each calls one method of `manager.schedules`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..errors import Conflict, InvalidRequest, Problem
from ..i18n import _
from ..launch.launch_as_command import magic_line, option_texts
from ..launch.options import BY_KEY, Kind
from ..program import is_url
from ..schedules import MOST_OCCURRENCES, LaunchWords, Occurrence, Schedule, ScheduleRules
from ..schedules.cron import CronTimes
from ..schedules.options import RULE_OPTIONS, SCHEDULE_OPTIONS, schedule_argv
from ..spec import Model
from .base import guarded
from .launch import FormHandler, LaunchBody, LaunchRoute
from .service import browsed_path, files_root
from .worker import LAUNCH_WITHIN

if TYPE_CHECKING:
    from ..runs.schedules import ScheduleVerbs

NEXT = 10
"""Number of next due times that an answer has for each schedule."""
LISTED = 10
"""Number of newest past due times of each schedule in a list. A list with all past due times would
be too long, because a thousand schedules may have 500 each.
"""


class ScheduleBody(Model, frozen=True, kw_only=True):
    """A new schedule; `launch` as in `POST /clusters`, without a name."""

    name: str
    rules: ScheduleRules
    launch: LaunchBody
    track: bool = False


class SchedulePlanBody(Model, frozen=True, kw_only=True):
    """A schedule that a user is filling in; `options` are a schedule's options as typed, by the
    keys of `GET /options`. With `updates` it is checked as a change of the whole schedule of that
    name.
    """

    name: str | None = None
    options: dict[str, Any] = {}
    launch: LaunchBody
    updates: bool = False


class ScheduleUpdateBody(Model, frozen=True, kw_only=True):
    """Change a schedule, and take a new snapshot of its program. Absent options keep their values;
    with `whole` they are reset to their defaults.
    """

    rules: ScheduleRules | None = None
    launch: LaunchBody | None = None
    track: bool | None = None
    whole: bool = False


class SchedulePauseBody(Model, frozen=True):
    """Pause a schedule until it is resumed."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class BackfillBody(Model, frozen=True, kw_only=True):
    """Run a schedule for earlier due times, oldest first; those that succeeded are left out."""

    start: Annotated[str, Meta(max_length=64)]
    end: Annotated[str, Meta(max_length=64)]
    parallel: int = 1


class EmptyBody(Model, frozen=True):
    """Nothing."""


SCHEDULE_MODELS = (
    *(Schedule, Occurrence, ScheduleBody, SchedulePlanBody, ScheduleUpdateBody),
    *(SchedulePauseBody, BackfillBody, EmptyBody),
)


def schedule_view(schedule: Schedule, most: int = MOST_OCCURRENCES) -> dict[str, Any]:
    """Return a schedule for a page: without the files of its program, with its next due times and
    at most `most` of its newest past due times.
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
        except InvalidRequest:  # the system no longer has this time zone
            coming = []
    return {"schedule": told, "next": coming}


def _rules(rules: ScheduleRules | None) -> dict[str, Any]:
    if rules is None:
        return {}
    return {key: msgspec.to_builtins(each) for key, each in msgspec.structs.asdict(rules).items()}


class ScheduleRoute(LaunchRoute):
    """The base class of schedule routes; some of their request bodies describe a launch."""

    async def verbs(self) -> ScheduleVerbs:
        """Return `manager.schedules`. The attribute is read in a thread, because the first access
        imports many modules.
        """
        return await self.call(lambda: self.service.manager.schedules)

    async def launch_words(self, body: LaunchBody) -> dict[str, Any]:
        """Return a launch as arguments of `ScheduleVerbs.create`. Raises InvalidRequest."""
        asked = await self.resolve(body)
        if asked.problems:
            raise InvalidRequest(asked.problems)
        words = {key: value for key, value in asked.words.items() if key != "name"}
        return {"program": asked.program, **words}


class SchedulesHandler(ScheduleRoute):
    """`/schedules`."""

    @guarded
    async def get(self) -> None:
        """Answer with all schedules, by name, each with its newest due times."""
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
            **(_rules(body.rules) | words),
        )
        self.reply(schedule_view(made), 201)


class ScheduleHandler(ScheduleRoute):
    """`/schedules/{name}`."""

    @guarded
    async def get(self, name: str) -> None:
        """Answer with one schedule."""
        self.reply(schedule_view(await self.call((await self.verbs()).show, name)))

    @guarded
    async def delete(self, name: str) -> None:
        """Remove a schedule with its history; its runs stay."""
        await self.call((await self.verbs()).delete, name)
        self.set_status(204)
        self.finish()


class SchedulePlanHandler(ScheduleHandler):
    """`/schedules/plan`: POST describes a planned schedule. Any other HTTP method treats `plan` as
    the name of a schedule.
    """

    @guarded
    async def post(self, _name: str) -> None:
        """Answer with the next due times, all problems, and the command line of the schedule."""
        body = self.read(SchedulePlanBody)
        asked = await self.resolve(body.launch)
        unknown = [
            Problem(key, None, _("there is no such option of a schedule"))
            for key in sorted(body.options.keys() - {each.key for each in SCHEDULE_OPTIONS})
        ]
        asked = dataclasses.replace(asked, problems=(*asked.problems, *unknown))
        said = {o.key: body.options[o.key] for o in SCHEDULE_OPTIONS if o.key in body.options}
        words = {key: value for key, value in asked.words.items() if key != "name"} | said
        words |= {"track": said.get("track") is True, "updates": body.updates}
        plan = (await self.verbs()).plan
        made = await self.call(plan, body.name, asked.program, **words)
        argv = schedule_argv(body.name, said, self.argv(asked, body.launch, None))
        line = magic_line(argv, cell=body.launch.cell is not None)
        inputs = {each.flag: each.key for each in SCHEDULE_OPTIONS}
        view = await self.plan_view(asked, made.launch, line, inputs)
        schedule = {"rules": msgspec.to_builtins(made.rules), "next": list(made.coming)}
        schedule["firstRun"] = made.first
        self.reply(view | {"name": body.name, "schedule": schedule})


class ScheduleFormHandler(FormHandler):
    """`/schedules/{name}/form`."""

    @guarded
    async def get(self, name: str) -> None:
        """Answer with the values that fill the form to change a schedule.

        Raises:
            Conflict: a form cannot express the schedule.
        """
        schedule = await self.call(lambda: self.service.manager.schedules.show(name))
        words = schedule.launch.words
        if not words.folder:
            raise Conflict(_("{name} was written by hand: change its manifest").format(name=name))
        if words.file is not None:
            text = _(
                "{name} was created from the cluster file {file}, for which the form has no "
                "field: change it with `tfcluster schedule update {name}`"
            )
            raise Conflict(text.format(name=name, file=words.file))
        kernel = await self.kernel_of(schedule.launch.spec.interpreter)
        options = _as_typed(words.options, () if kernel is None else ("python",))
        if after := schedule.rules.after:
            options["after"] = [each.words for each in after]
        launch = LaunchBody(
            program=self._browsed(words, words.program),
            cell=words.cell,
            folder=self._browsed(words, "."),
            name=name,
            arguments=words.arguments,
            sha256=words.sha256,
            kernelspec=kernel,
            config=words.config,
            options=options,
        )
        self.reply(
            {
                "name": name,
                "launch": msgspec.to_builtins(launch),
                "options": _rules_as_typed(schedule),
                "notes": [_("When you save it, a new snapshot of the program is taken.")],
            }
        )

    def _browsed(self, words: LaunchWords, program: str | None) -> str | None:
        """Return the path of the file `program` in the file browser; `program` itself if the file
        browser does not show it.
        """
        if program is None or is_url(program):
            return program
        path = os.path.join(words.folder, os.path.expanduser(program))
        root = files_root(self.service.serverapp)
        return browsed_path(root, os.path.normpath(path), hidden=True)


def _as_typed(options: Mapping[str, Any], without: Sequence[str]) -> dict[str, Any]:
    """Return options of a launch as values of a form's inputs."""
    found = dict[str, Any]()
    for key, value in options.items():
        option = BY_KEY.get(key)
        if option is None or key in without or value is None:
            continue
        if option.kind is Kind.SWITCH:
            found[key] = bool(value)
        else:
            texts = option_texts(option, value)
            found[key] = texts if option.kind.repeats else texts[0]
    return found


def _rules_as_typed(schedule: Schedule) -> dict[str, str | bool]:
    """Return the options of a schedule, by key, as values of a form's inputs. Options with their
    default are left out, because their input is empty.
    """
    absent = ScheduleRules(cron="", time_zone="")
    found: dict[str, str | bool] = {"track": True} if schedule.launch.track else {}
    for option in RULE_OPTIONS.values():
        value = getattr(schedule.rules, option.key)
        if value == getattr(absent, option.key):
            continue
        found[option.key] = True if value is True else " ".join(option.texts(value))
    return found


class ScheduleHistoryHandler(ScheduleRoute):
    """`/schedules/{name}/history`."""

    @guarded
    async def get(self, name: str) -> None:
        """Answer with the due times and their results, newest first, and the phases of their
        runs.
        """
        start, end = self._seconds("from", float("-inf")), self._seconds("to", float("inf"))
        found = await self.call((await self.verbs()).history, name, start=start, end=end)
        known = self.service.watcher.known()
        names = {run for each in found for run in (each.run, *each.earlier) if run in known}
        runs = {name: known[name].cluster.status for name in sorted(names)}
        self.reply(
            {
                "occurrences": msgspec.to_builtins(found),
                "runs": {
                    name: {
                        "phase": status.phase.value,
                        "startedAt": status.started_at,
                        "finishedAt": status.finished_at,
                        "message": status.message,
                        "messages": msgspec.to_builtins(status.messages),
                    }
                    for name, status in runs.items()
                },
            }
        )

    def _seconds(self, name: str, default: float) -> float:
        """Return the time `name` of the query, in seconds since 1970. Raises InvalidRequest if it
        is not a number.
        """
        said = self.get_query_argument(name, None)
        if said is None:
            return default
        try:
            return float(said)
        except ValueError:
            allowed = _("use seconds since 1970")
            raise InvalidRequest([Problem(name, said, allowed)]) from None


class ScheduleVerbHandler(ScheduleRoute):
    """`/schedules/{name}/<verb>`."""

    def initialize(self, verb: str) -> None:
        """Let this handler apply `verb`, a key of `SCHEDULE_VERBS`."""
        self._verb = verb

    @guarded
    async def post(self, name: str) -> None:
        """Apply the verb to a schedule, and answer with the changed schedule."""
        words = await self._words(self.read(SCHEDULE_VERBS[self._verb]))
        method = getattr(await self.verbs(), self._verb.replace("-", "_"))
        done = await self.call(method, name, within=LAUNCH_WITHIN, **words)
        self.reply(schedule_view(done))

    async def _words(self, body: Model) -> dict[str, Any]:
        if not isinstance(body, ScheduleUpdateBody):
            return msgspec.structs.asdict(body)
        launch = {} if body.launch is None else await self.launch_words(body.launch)
        words = {"track": body.track, **_rules(body.rules), **launch}
        return words | {"whole": True} if body.whole else words


SCHEDULE_VERBS: Mapping[str, type[Model]] = {
    "pause": SchedulePauseBody,
    "resume": EmptyBody,
    "run-now": EmptyBody,
    "update": ScheduleUpdateBody,
    "backfill": BackfillBody,
}

ROUTES = [
    (r"schedules", SchedulesHandler),
    (r"schedules/(plan)", SchedulePlanHandler),
    (r"schedules/([^/]+)", ScheduleHandler),
    (r"schedules/([^/]+)/form", ScheduleFormHandler),
    (r"schedules/([^/]+)/history", ScheduleHistoryHandler),
    *(
        (rf"schedules/([^/]+)/{verb}", ScheduleVerbHandler, {"verb": verb})
        for verb in SCHEDULE_VERBS
    ),
]
