"""The verbs of schedules: `manager.schedules`. A verb is a method here, a command, a route.

manager.schedules.create("nightly", "train.py", cron="0 2 * * *", time_zone="Asia/Shanghai")
manager.schedules.pause("nightly", "the data is being repaired")
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ..backends.base import Backend, ClockService
from ..errors import Conflict, InvalidRequest, PreflightRefused, Problem, SetupRefused, one_line
from ..i18n import _
from ..launch import LaunchRequest
from ..schedules import (
    MOST_BACKFILL,
    MOST_OCCURRENCES,
    Backfill,
    CatchUp,
    LaunchWords,
    Occurrence,
    OccurrenceKind,
    Overlap,
    Pause,
    Schedule,
    ScheduledLaunch,
    ScheduleRules,
    ScheduleStatus,
    placeholders,
)
from ..schedules.cron import CronTimes, machine_zone
from ..schedules.due import due
from ..spec import Mode, names
from ..spec.quantities import DURATION_RULE, parse_duration
from ..spec.spec import ASKER_LENGTH, STOP_LENGTH

MOST_SCHEDULES = 1000
"""Schedules of one user."""
_FLAGS = {
    "retry_delays": "--retry-delay",
    **{f.name: f"--{f.name.replace('_', '-')}" for f in msgspec.structs.fields(ScheduleRules)
       if f.name != "retry_delays"},
}  # fmt: skip
RULES = tuple(_FLAGS)
"""The keys of what `create` and `update` take of a schedule's rules."""


class ScheduleVerbs:
    """What one can do with schedules.

    Args:
        backend: where their runs are.
        requested: makes the request of a launch, as `ClusterManager.requested`.
    """

    def __init__(
        self, backend: Backend, requested: Callable[..., AbstractContextManager[LaunchRequest]]
    ) -> None:
        self._backend, self._requested = backend, requested

    def create(
        self,
        name: str,
        program: str | None = None,
        arguments: Sequence[str] = (),
        *,
        track: bool = False,
        cell: str | None = None,
        sha256: str | None = None,
        file: str | None = None,
        folder: Path | None = None,
        config: str | None = None,
        **words: Any,
    ) -> Schedule:
        """Create a schedule, which launches `program` from now on.

        Args:
            name: name of the schedule and of its runs, `nightly-1`.
            program: as for `ClusterManager.launch`.
            arguments: the program's own; placeholders are filled in at each launch.
            track: read the program anew at each due time, instead of a snapshot now.
            cell: as for `launch`.
            sha256: as for `launch`.
            file: as for `launch`.
            folder: as for `launch`.
            config: as for `launch`.
            words: the rules (`RULES`, such as `cron="0 2 * * *"`) and the options of a launch.

        Raises:
            InvalidRequest: a rule or the launch is wrong; every problem is named.
            NameTaken: there is a schedule of this name.
            Conflict: this backend has no schedules.
        """
        if not names.is_valid(name):
            raise _refused([Problem("name", name, names.NAME_RULE)])
        store = self._backend.schedules()
        if len(store.list()) >= MOST_SCHEDULES:
            text = _("you have {most} schedules, the maximum: delete one first")
            raise Conflict(text.format(most=MOST_SCHEDULES))
        rules = {key: words.pop(key) for key in RULES if key in words}
        rules = {key: value for key, value in rules.items() if value is not None}
        rules.setdefault("time_zone", machine_zone())
        checked = read_rules(rules)
        asked = LaunchWords(
            program=program,
            arguments=tuple(map(str, arguments)),
            cell=cell,
            sha256=sha256,
            file=file,
            config=config,
            folder=str(folder or Path.cwd()),
            options=words,
        )
        now = time.time()
        with self._launch_of(name, asked, track) as launch:
            return store.create(
                Schedule(
                    name=name,
                    uid=str(uuid.uuid4()),
                    created_at=now,
                    rules=checked,
                    launch=launch,
                    status=ScheduleStatus(cursor=now),
                )
            )

    def list(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return self._backend.schedules().list()

    def show(self, name: str) -> Schedule:
        """Return a schedule. Raises NotFound, which suggests similar names."""
        return self._backend.schedules().get(name)

    def pause(self, name: str, reason: str = "", *, by: str = "") -> Schedule:
        """Let a schedule launch nothing until `resume`; runs go on. Paused, it stays as it is."""
        text = one_line(reason).encode("utf-8", "replace").decode()[:STOP_LENGTH]
        pause = Pause(at=time.time(), by=by[:ASKER_LENGTH], reason=text)
        return self._change(
            name, lambda status: status if status.paused else replace(status, paused=pause)
        )

    def resume(self, name: str) -> Schedule:
        """Let a paused schedule go on. Due times of the pause are not caught up."""
        now = time.time()

        def go_on(status: ScheduleStatus) -> ScheduleStatus:
            if status.paused is None:
                return status
            cursor = max(status.cursor, now) if status.cursor < now else now
            return replace(status, paused=None, failures=0, cursor=cursor)

        return self._change(name, go_on)

    def run_now(self, name: str) -> Schedule:
        """Make a schedule due now, also beside its times. Its rules hold.

        Raises:
            Conflict: it is paused, or a run goes on and may not be overlapped.
        """
        now = time.time()

        def ask(schedule: Schedule) -> Schedule:
            status = schedule.status
            if status.paused is not None:
                text = _("{name} is paused: `tfcluster schedule resume {name}` first")
                raise Conflict(text.format(name=name))
            manual = Occurrence(due=now, kind=OccurrenceKind.MANUAL, changed_at=now)
            status = replace(status, occurrences=(*status.occurrences, manual))
            turn = due(schedule.rules, status, now)
            (made,) = [each for each in turn.status.occurrences if each.key == manual.key]
            if made.state.is_settled:
                text = _("nothing was launched: {why}")
                raise Conflict(text.format(why=made.reason))
            return replace(schedule, status=status)

        return self._backend.schedules().change(name, ask)

    def update(
        self,
        name: str,
        program: str | None = None,
        arguments: Sequence[str] | None = None,
        *,
        track: bool | None = None,
        cell: str | None = None,
        sha256: str | None = None,
        file: str | None = None,
        folder: Path | None = None,
        config: str | None = None,
        **words: Any,
    ) -> Schedule:
        """Change a schedule's rules or launch, and take a new snapshot of its program.

        What is not given stays. Arguments are those of `create`. Runs that go on are not touched.

        Raises:
            InvalidRequest: a rule or the launch is wrong, or its files are no program any more.
            NotFound: there is no such schedule.
        """
        store = self._backend.schedules()
        old = store.get(name)
        given = {key: words.pop(key) for key in RULES if key in words}
        given = {key: value for key, value in given.items() if value is not None}
        rules = read_rules({**_rule_values(old.rules), **given})
        before = old.launch.words
        fresh = program is not None or cell is not None or file is not None
        asked = replace(
            before,
            program=program if fresh else before.program,
            cell=cell if fresh else before.cell,
            file=file if fresh else before.file,
            sha256=sha256 if fresh or sha256 else before.sha256,
            config=config if fresh or config else before.config,
            arguments=before.arguments if arguments is None else tuple(map(str, arguments)),
            folder=str(folder or (Path.cwd() if fresh else before.folder)),
            options={**before.options, **words},
        )
        tracks = old.launch.track if track is None else track
        moved = (rules.cron, rules.time_zone) != (old.rules.cron, old.rules.time_zone)
        by_hand = not before.folder and not fresh
        if by_hand and (words or arguments is not None):
            allowed = _("it was written by hand: change its manifest, or name the program, too")
            raise _refused([Problem("program", None, allowed)])
        launches = (
            nullcontext(old.launch)
            if by_hand
            else self._launch_of(old.launch.cluster, asked, tracks)
        )
        with launches as launch:

            def change(now: Schedule) -> Schedule:
                # Due times of the new expression in the past were never due.
                status = replace(now.status, cursor=time.time()) if moved else now.status
                return replace(now, rules=rules, launch=launch, status=status)

            return store.change(name, change)

    def delete(self, name: str) -> None:
        """Remove a schedule with its history. Its runs stay, and go on. Raises NotFound."""
        self._backend.schedules().delete(name)

    def install(self, *, remove: bool = False) -> ClockService | None:
        """Let systemd start the clock at login, or no longer; see `Backend.install_clock`.

        Raises:
            Conflict: there is no systemd here, or clusters are on Kubernetes.
            BackendUnavailable: systemd refused.
        """
        return self._backend.install_clock(remove)

    def history(self, name: str, most: int = MOST_OCCURRENCES) -> tuple[Occurrence, ...]:
        """Return the occurrences of a schedule, newest first. Raises NotFound."""
        found = self.show(name).status.occurrences
        return tuple(sorted(found, key=lambda each: each.due, reverse=True))[:most]

    def plan_backfill(
        self, name: str, start: str | datetime, end: str | datetime, parallel: int = 1
    ) -> Backfill:
        """Return the backfill that `backfill` with the same arguments would ask for, with its
        number of due times. Asks for nothing. Raises the errors of `backfill`.
        """
        schedule = self.show(name)
        times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
        first, last = _moment(times, "--from", start), _moment(times, "--to", end)
        now, problems = time.time(), []
        if last > now:
            allowed = _("use a past time: the schedule itself runs future ones")
            problems.append(Problem("--to", str(end), allowed))
        if first > last:
            problems.append(Problem("--from", str(start), _("use a time before --to")))
        if not 1 <= parallel <= 100:
            problems.append(Problem("--parallel", parallel, _("use a whole number from 1 to 100")))
        if problems:
            raise _refused(problems)
        total = times.count(first - 1, last, MOST_BACKFILL + 1)
        if not total:
            allowed = _("{cron} has no due time in this span").format(cron=schedule.rules.cron)
            raise _refused([Problem("--from", str(start), allowed)])
        if total > MOST_BACKFILL:
            allowed = _("at most {most} due times at once: use a shorter span")
            raise _refused([Problem("--from", str(start), allowed.format(most=MOST_BACKFILL))])
        number = 1 + max((each.number for each in schedule.status.backfills), default=0)
        return Backfill(
            number=number,
            start=first,
            end=last,
            parallel=parallel,
            cursor=first - 1,
            total=total,
            created_at=now,
        )

    def backfill(
        self, name: str, start: str | datetime, end: str | datetime, parallel: int = 1
    ) -> Schedule:
        """Run the past due times from `start` to `end`, oldest first; return at once.

        Due times that succeeded, as far as the history knows, are left out. The clock process goes
        on with it after a restart.

        Args:
            name: the schedule.
            start: a time in ISO 8601; without an offset in the schedule's zone.
            end: likewise.
            parallel: how many of its runs go on at once.

        Raises:
            InvalidRequest: the times are wrong, or more than `MOST_BACKFILL` due times lie there.
            Conflict: the schedule is paused, or a backfill of it has not ended.
        """
        asked = self.plan_backfill(name, start, end, parallel)

        def add(status: ScheduleStatus) -> ScheduleStatus:
            if status.paused is not None:
                text = _("{name} is paused: `tfcluster schedule resume {name}` first")
                raise Conflict(text.format(name=name))
            if any(each.finished_at is None for each in status.backfills):
                text = _("a backfill of {name} has not ended; `tfcluster schedule show {name}`")
                raise Conflict(text.format(name=name))
            return replace(status, backfills=(*status.backfills, asked))

        return self._change(name, add)

    def _change(self, name: str, change: Callable[[ScheduleStatus], ScheduleStatus]) -> Schedule:
        return self._backend.schedules().change(
            name, lambda schedule: replace(schedule, status=change(schedule.status))
        )

    @contextmanager
    def _launch_of(
        self, cluster: str, words: LaunchWords, track: bool
    ) -> Iterator[ScheduledLaunch]:
        """Yield the launch for these words; its snapshot is kept unless the code inside fails."""
        backend = self._backend
        asked = {key: value for key, value in asdict(words).items() if key != "options"}
        asked |= {"folder": Path(words.folder), "name": cluster, **words.options}
        program, arguments = asked.pop("program"), asked.pop("arguments")
        with self._requested(program, arguments, **asked) as request:
            spec = request.spec
            if spec.mode is Mode.IN_GRAPH:
                allowed = _("a schedule runs a program: in-graph, a notebook is the client")
                raise _refused([Problem("--mode", spec.mode.value, allowed)])
            if spec.after:
                after = " ".join(each.run for each in spec.after)
                allowed = _("a run of a schedule cannot wait for another run: leave it out")
                raise _refused([Problem("--after", after, allowed)])
            taken = spec.program.arguments if spec.program else ()
            if wrong := placeholders.problems(taken, spec.env):
                raise _refused(wrong)
            verdict, warnings = backend.preflight(spec), list(request.warnings)
            try:
                verdict.check()
            except SetupRefused:
                raise
            except PreflightRefused as error:  # there may be room when it is due
                warnings.append(str(error))
            here = backend.options()
            if spec.interpreter is None and here.interpreter:
                spec = replace(spec, interpreter=here.interpreter)
                words = replace(words, options={"python": here.interpreter, **words.options})
            yield ScheduledLaunch(
                cluster=cluster,
                spec=spec,
                words=words,
                track=track,
                taken_at=time.time(),
                warnings=(*warnings, *verdict.warnings),
                inferred=request.inferred,
                data_dir=here.data_dir,
                log_dir=here.log_dir,
            )


def read_rules(given: Mapping[str, Any]) -> ScheduleRules:
    """Return the rules of these values, as they are typed or as they are.

    Raises:
        InvalidRequest: with every problem, by its option.
    """
    problems, values = list[Problem](), dict[str, Any]()
    for key, value in given.items():
        try:
            values[key] = _READ.get(key, lambda each: each)(value)
        except ValueError:  # noqa: PERF203 - each has its own problem
            problems.append(Problem(_FLAGS[key], value, DURATION_RULE))
    if "cron" not in given:
        problems.append(Problem("--cron", None, _("say when, such as `0 2 * * *`")))
    else:
        for cron, zone in ((str(given["cron"]), "UTC"), ("@daily", str(given["time_zone"]))):
            try:
                CronTimes(cron, zone)
            except InvalidRequest as error:  # noqa: PERF203 - each has its own problem
                problems += error.problems
    for key, value in values.items():
        if key in ("cron", "time_zone") or any(p.field == _FLAGS[key] for p in problems):
            continue
        try:
            msgspec.convert({"cron": "@daily", _CAMEL[key]: value}, ScheduleRules)
        except msgspec.ValidationError as error:
            text = _("use {words}").format(words=_RULES_IN_WORDS.get(key, str(error)))
            problems.append(Problem(_FLAGS[key], value, text))
    if problems:
        raise _refused(problems)
    return msgspec.convert({_CAMEL[key]: value for key, value in values.items()}, ScheduleRules)


def _rule_values(rules: ScheduleRules) -> dict[str, Any]:
    """Return the rules by key, as JSON has them."""
    return {key: msgspec.to_builtins(value) for key, value in asdict(rules).items()}


_CAMEL = {f.name: f.encode_name for f in msgspec.structs.fields(ScheduleRules)}


_RULES_IN_WORDS = {
    "overlap": ", ".join(each.value for each in Overlap),
    "catch_up": ", ".join(each.value for each in CatchUp),
    "max_parallel": "1 … 100",
    "retries": "0 … 20",
    "pause_after": "1 … 1000",
}


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "deadline": _seconds,
    "retry_delays": lambda values: [
        _seconds(each) for each in ([values] if isinstance(values, (str, float, int)) else values)
    ],
}


def _moment(times: CronTimes, flag: str, said: str | datetime) -> float:
    """Return a time that a person wrote; without an offset it is in the schedule's zone."""
    try:
        at = datetime.fromisoformat(said) if isinstance(said, str) else said
        return (at if at.tzinfo else at.replace(tzinfo=times.zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        allowed = _("write a time, such as 2026-11-01 or 2026-11-01T02:00")
        raise _refused([Problem(flag, str(said), allowed)]) from None


def _refused(problems: Sequence[Problem]) -> InvalidRequest:
    return InvalidRequest(problems, _("the schedule was refused"))
