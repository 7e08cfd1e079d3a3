"""Actions on schedules, such as create, pause and backfill: `manager.schedules`. Each action is a
method here, a command of `tfcluster schedule` and a route of the server.

manager.schedules.create("nightly", "train.py", cron="0 2 * * *", time_zone="Asia/Shanghai")
manager.schedules.pause("nightly", "the data is being repaired")
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from ..backends.base import Backend, ClockService, Schedules
from ..errors import Conflict, InvalidRequest, NotAllowed, PreflightRefused, Problem, one_line
from ..i18n import _
from ..launch import LaunchRequest
from ..launch.options import split_schedule
from ..quota.preflight import Preflight
from ..schedules import (
    MOST_BACKFILL,
    MOST_OCCURRENCES,
    Backfill,
    LaunchWords,
    Occurrence,
    OccurrenceKind,
    Pause,
    Schedule,
    ScheduledLaunch,
    ScheduleRules,
    ScheduleStatus,
    placeholders,
)
from ..schedules.cron import CronTimes, machine_zone
from ..schedules.due import circle_of, due, paused, resumed
from ..schedules.options import RULE_OPTIONS, ScheduleKind
from ..spec import AwaitedOutcome, Mode, Spec, conversion, names
from ..spec.spec import ASKER_LENGTH, STOP_LENGTH

if TYPE_CHECKING:
    from ..launch.planning import (
        DryRun,
    )  # not at run time, because this import is slow and only annotations need it

MOST_SCHEDULES = 1000
"""Maximum schedules of one user."""
RULES = (*RULE_OPTIONS, "after")
"""Keys of the rules that `create` and `update` accept."""
NEXT_PLANNED = 5
"""Number of next due times that a `SchedulePlan` lists."""


@dataclasses.dataclass(frozen=True)
class SchedulePlan:
    """The result of checking a schedule that a user is filling in. Nothing was created.

    `coming` are the next due times. While a rule is wrong, `rules` is None and `coming` is empty.
    `first` is the number of the first run; None for a change of a schedule, and for a name that
    cannot be used.
    `launch` also has the problems and warnings of the schedule.
    """

    rules: ScheduleRules | None
    coming: tuple[float, ...]
    launch: DryRun
    first: int | None = None


class ScheduleVerbs:
    """The actions on the schedules of one backend.

    Args:
        backend: stores the schedules and runs their launches.
        requested: `ClusterManager.requested`, which turns the arguments of a launch into a request.
        dry_run: checks the launch of a schedule that a user is filling in, and launches nothing.
    """

    def __init__(
        self,
        backend: Backend,
        requested: Callable[..., AbstractContextManager[LaunchRequest]],
        dry_run: Callable[..., DryRun],
    ) -> None:
        self._backend, self._requested, self._dry_run = backend, requested, dry_run

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
            arguments: the program's own arguments; placeholders are filled in at each launch.
            track: read the program at each due time, instead of taking a snapshot now.
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
            raise _refused([Problem("name", name, names.name_rule(name))])
        store = self._backend.schedules()
        if len(store.list()) >= MOST_SCHEDULES:
            raise Conflict(_too_many())
        checked = read_rules({"time_zone": machine_zone(), **_given_rules(words)})
        _check_awaited(name, checked, store)
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

    def plan(
        self,
        name: str | None,
        program: str | None = None,
        arguments: Sequence[str] = (),
        *,
        track: bool = False,
        updates: bool = False,
        **words: Any,
    ) -> SchedulePlan:
        """Return the schedule that `create` with the same arguments would make, with all its
        problems. Creates and downloads nothing.

        With `updates`, the arguments are those of `update(…, whole=True)`: they are checked as a
        change of the existing schedule `name`.
        """
        store, problems = self._backend.schedules(), list[Problem]()
        known = [each.name for each in store.list()]
        first = None
        if not name or not names.is_valid(name):
            problems.append(Problem("name", name, names.name_rule(name or "")))
        elif updates and name not in known:
            store.get(name)  # always raises NotFound, whose message lists the existing schedules
        elif not updates and name in known:
            problems.append(Problem("name", name, str(store.taken(name))))
        elif not updates and len(known) >= MOST_SCHEDULES:
            problems.append(Problem("name", name, _too_many()))
        elif not updates:
            first = self._backend.next_number(name)
        rules, wrong = _judge_rules({"time_zone": machine_zone(), **_given_rules(words)})
        problems += wrong
        try:
            _check_awaited(name or "", rules or ScheduleRules(cron="@daily"), store)
        except InvalidRequest as error:
            problems += error.problems
        if track and (unable := store.track_problem()):
            problems.append(unable)
        launch = self._dry_run(program, arguments, name=name, **words)
        problems += [each for each in launch.problems if each.field not in ("name", "--name")]
        warnings, verdict = list(launch.warnings), Preflight()
        if launch.spec is not None:
            problems += _launch_problems(launch.spec)
            verdict = self._backend.preflight(launch.spec)
            refused, passing = _judged(verdict)
            problems += refused
            warnings += [*passing, *verdict.warnings]
        times = rules and CronTimes(rules.cron, rules.time_zone)
        return SchedulePlan(
            rules=rules,
            coming=tuple(islice(times.after(time.time()), NEXT_PLANNED)) if times else (),
            launch=dataclasses.replace(
                launch,
                problems=tuple(problems),
                warnings=tuple(warnings),
                told=verdict.told,
                cautions=(*launch.cautions, *verdict.cautions),
            ),
            first=first,
        )

    def list(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return self._backend.schedules().list()

    def show(self, name: str) -> Schedule:
        """Return a schedule. Raises NotFound, which suggests similar names."""
        return self._backend.schedules().get(name)

    def pause(self, name: str, reason: str = "", *, by: str = "") -> Schedule:
        """Pause a schedule until `resume`; its active runs continue. Does nothing if it is paused
        already.
        """
        text = one_line(reason).encode("utf-8", "replace").decode()[:STOP_LENGTH]
        pause = Pause(at=time.time(), by=by[:ASKER_LENGTH], reason=text)
        return self._change(name, lambda status: paused(status, pause))

    def resume(self, name: str) -> Schedule:
        """Resume a paused schedule. Due times during the pause are not caught up.

        Raises:
            NotAllowed: an administrator paused the schedule, so only an administrator may resume
                it.
        """
        now = time.time()

        def go_on(status: ScheduleStatus) -> ScheduleStatus:
            pause = status.paused
            if pause is not None and pause.locked:
                raise _locked(name, pause)
            return resumed(status, now)

        return self._change(name, go_on)

    def run_now(self, name: str) -> Schedule:
        """Make a schedule due now, in addition to its due times. Its rules for runs that
        overlap apply, as at any due time.

        Raises:
            Conflict: the schedule is paused, or one of its runs is active and its rules forbid
                overlap.
        """
        now = time.time()

        def ask(schedule: Schedule) -> Schedule:
            status = schedule.status
            _check_not_paused(name, status.paused)
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
        whole: bool = False,
        **words: Any,
    ) -> Schedule:
        """Change a schedule's rules or launch, and take a new snapshot of its program.

        Omitted rules and options keep their values; with `whole` they are reset to their defaults.
        Arguments are those of `create`. Active runs do not change.

        Raises:
            InvalidRequest: a rule or the launch is wrong, or the schedule's program is gone.
            NotFound: there is no such schedule.
        """
        store = self._backend.schedules()
        old = store.get(name)
        kept = {"time_zone": old.rules.time_zone} if whole else _rule_values(old.rules)
        rules = read_rules({**kept, **_given_rules(words)})
        if rules.after != old.rules.after:
            _check_awaited(name, rules, store)
        before = old.launch.words
        fresh = program is not None or cell is not None or file is not None
        asked = replace(
            before,
            program=program if fresh else before.program,
            cell=cell if fresh else before.cell,
            file=file if fresh else before.file,
            sha256=sha256 if fresh or sha256 else before.sha256,
            config=config if fresh or config or whole else before.config,
            arguments=before.arguments if arguments is None else tuple(map(str, arguments)),
            folder=str(folder or (Path.cwd() if fresh else before.folder)),
            options=words if whole else {**before.options, **words},
        )
        tracks = old.launch.track if track is None else track
        moved = (rules.cron, rules.time_zone) != (old.rules.cron, old.rules.time_zone)
        by_hand = not before.folder and not fresh
        if by_hand and (words or arguments is not None):
            allowed = _(
                "the schedule was written by hand: change its manifest, or also name the "
                "program here"
            )
            raise _refused([Problem("program", None, allowed)])
        launches = (
            nullcontext(old.launch)
            if by_hand
            else self._launch_of(old.launch.cluster, asked, tracks)
        )
        with launches as launch:

            def change(now: Schedule) -> Schedule:
                # Past due times of the new expression do not count as missed.
                status = replace(now.status, cursor=time.time()) if moved else now.status
                return replace(now, rules=rules, launch=launch, status=status)

            return store.change(name, change)

    def delete(self, name: str) -> None:
        """Remove a schedule with its history. Its runs stay and keep running. Raises NotFound."""
        self._backend.schedules().delete(name)

    def install(self, *, remove: bool = False) -> ClockService | None:
        """Make systemd start the clock process at login, or stop doing so; see
        `Backend.install_clock`.

        Raises:
            Conflict: there is no systemd here, or clusters are on Kubernetes.
            BackendUnavailable: systemd refused.
        """
        return self._backend.install_clock(remove)

    def history(
        self,
        name: str,
        most: int = MOST_OCCURRENCES,
        *,
        start: float = float("-inf"),
        end: float = float("inf"),
    ) -> tuple[Occurrence, ...]:
        """Return the occurrences that were due from `start` until before `end`, newest first, at
        most `most`. Raises NotFound.
        """
        found = [o for o in self.show(name).status.occurrences if start <= o.due < end]
        return tuple(sorted(found, key=lambda each: each.due, reverse=True))[:most]

    def plan_backfill(
        self, name: str, start: str | datetime, end: str | datetime, parallel: int = 1
    ) -> Backfill:
        """Return the backfill that `backfill` with the same arguments would request. Its `total`
        is the number of due times. Requests nothing. Raises the errors of `backfill`.
        """
        schedule = self.show(name)
        times = CronTimes(schedule.rules.cron, schedule.rules.time_zone)
        first, last = _moment(times, "--from", start), _moment(times, "--to", end)
        now, problems = time.time(), []
        if last > now:
            allowed = _("use a past time: the schedule itself runs the future ones")
            problems.append(Problem("--to", str(end), allowed))
        if first > last:
            problems.append(Problem("--from", str(start), _("use a time before --to")))
        if not 1 <= parallel <= 100:
            problems.append(Problem("--parallel", parallel, _("use a whole number from 1 to 100")))
        if problems:
            raise _refused(problems)
        total = times.count(first - 1, last, MOST_BACKFILL + 1)
        if not total:
            allowed = _("{cron} has no due time in this period").format(cron=schedule.rules.cron)
            raise _refused([Problem("--from", str(start), allowed)])
        if total > MOST_BACKFILL:
            allowed = _("a backfill has at most {most} due times: use a shorter period")
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

        Due times that succeeded according to the history are left out. After a restart, the clock
        process continues the backfill.

        Args:
            name: the schedule.
            start: a time in ISO 8601; without an offset, in the schedule's time zone.
            end: a time, written like `start`.
            parallel: maximum number of the backfill's runs that are active at the same time.

        Raises:
            InvalidRequest: the times are wrong, or there are more than `MOST_BACKFILL` due times
                between them.
            Conflict: the schedule is paused, or a backfill of it has not ended.
        """
        asked = self.plan_backfill(name, start, end, parallel)

        def add(status: ScheduleStatus) -> ScheduleStatus:
            _check_not_paused(name, status.paused)
            if any(each.finished_at is None for each in status.backfills):
                text = _(
                    "a backfill of {name} is still active: see `tfcluster schedule show {name}`"
                )
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
        """Yield the launch that a schedule stores for these arguments. Its snapshot is deleted if
        the `with` block fails.
        """
        backend = self._backend
        asked = {key: value for key, value in asdict(words).items() if key != "options"}
        asked |= {"folder": Path(words.folder), "name": cluster, **words.options}
        program, arguments = asked.pop("program"), asked.pop("arguments")
        try:
            with self._requested(program, arguments, **asked) as request:
                spec = request.spec
                if wrong := _launch_problems(spec):
                    raise _refused(wrong)
                verdict, warnings = backend.preflight(spec), list(request.warnings)
                refused, passing = _judged(verdict)
                if refused:
                    verdict.check()
                warnings += passing
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
        except InvalidRequest as error:
            if error.message.params["what"] != InvalidRequest.headline:
                raise
            raise _refused(error.problems) from None


def _launch_problems(spec: Spec) -> list[Problem]:
    """Return the reasons why a schedule cannot launch `spec` on any backend."""
    problems = []
    if spec.mode is Mode.IN_GRAPH:
        allowed = _(
            "a schedule runs a program, and an in-graph cluster has none: a notebook is its client"
        )
        problems.append(Problem("--mode", spec.mode.value, allowed))
    if spec.after:
        after = " ".join(each.run for each in spec.after)
        allowed = _(
            "a run of a schedule can wait only for a run of another schedule: write schedule:NAME"
        )
        problems.append(Problem("--after", after, allowed))
    taken = spec.program.arguments if spec.program else ()
    return [*problems, *placeholders.problems(taken, spec.env)]


def _judged(verdict: Preflight) -> tuple[Sequence[Problem], list[str]]:
    """Return the problems that prevent a schedule, and warnings. A problem that prevents only a
    launch now becomes a warning, because there may be room at the due time.
    """
    if verdict.unsupported:
        return verdict.unsupported, []
    if verdict.setup or not verdict.problems:
        return (verdict.problems if verdict.setup else ()), []
    return (), [str(PreflightRefused(verdict.problems))]


def read_rules(given: Mapping[str, Any]) -> ScheduleRules:
    """Return the rules with these values, which may be texts as a user types them.

    Raises:
        InvalidRequest: a value is wrong; the error has every problem, by option.
    """
    rules, problems = _judge_rules(given)
    if rules is None:
        raise _refused(problems)
    return rules


def _judge_rules(given: Mapping[str, Any]) -> tuple[ScheduleRules | None, list[Problem]]:
    problems, values = list[Problem](), dict[str, Any]()
    for key, value in given.items():
        if key == "after":
            try:
                values[key] = conversion.convert(
                    {"cron": "@daily", key: _read_after(value)}, ScheduleRules
                ).after
            except InvalidRequest as error:
                problems += error.problems
            except msgspec.ValidationError as error:
                problems.append(Problem("--after", value, str(error)))
            continue
        option = RULE_OPTIONS[key]
        try:
            values[option.field] = read = option.read(value)
            if option.kind not in (ScheduleKind.CRON, ScheduleKind.ZONE):
                conversion.convert({"cron": "@daily", option.field: read}, ScheduleRules)
        except ValueError:  # also catches the errors of msgspec, which are ValueErrors
            problems.append(Problem(option.flag, value, option.allowed))
    if "cron" not in given:
        problems.append(Problem("--cron", None, _("say when, such as `0 2 * * *`")))
    for cron, zone in ((given.get("cron", "@daily"), "UTC"), ("@daily", given["time_zone"])):
        try:
            CronTimes(str(cron), str(zone))
        except InvalidRequest as error:  # noqa: PERF203 - report both a wrong cron and a wrong zone
            problems += error.problems
    if problems:
        return None, problems
    after = values.pop("after", ())
    return replace(conversion.convert(values, ScheduleRules), after=after), []


def _given_rules(words: dict[str, Any]) -> dict[str, Any]:
    """Remove the rules from `words`, which also has options of the launch, and return them."""
    given = {key: words.pop(key) for key in RULES if key in words}
    return {key: value for key, value in given.items() if value not in (None, "")}


def _rule_values(rules: ScheduleRules) -> dict[str, Any]:
    """Return the rules by key in JSON form, without absent ones."""
    values = {key: msgspec.to_builtins(value) for key, value in asdict(rules).items()}
    return {key: value for key, value in values.items() if value is not None}


def _too_many() -> str:
    text = _("you have {most} schedules, the maximum: delete one first")
    return text.format(most=MOST_SCHEDULES)


def _read_after(values: object) -> list[object]:
    """Return the schedules that `--after` names. Raises InvalidRequest if it names a run."""
    found: list[object] = []
    for each in values if isinstance(values, (list, tuple)) else [values]:
        if not isinstance(each, str):
            found.append(each)
            continue
        of, rest = split_schedule(each)
        name, colon, until = rest.partition(":")
        if not each:  # `update --after ""` removes all awaited runs
            continue
        if not of or (colon and until not in [one.value for one in AwaitedOutcome]):
            allowed = _(
                "a run of a schedule can wait only for a run of another schedule: write "
                "schedule:NAME or schedule:NAME:end"
            )
            raise _refused([Problem("--after", each, allowed)])
        found.append({"schedule": name, **({"until": until} if until else {})})
    return found


def _check_awaited(name: str, rules: ScheduleRules, store: Schedules) -> None:
    """Raise InvalidRequest if a schedule in `rules.after` does not exist or waits for `name`."""
    if not rules.after:
        return
    there = {each.name: each for each in store.list()}
    problems = [
        Problem("--after", each.words, _("there is no schedule {name}").format(name=each.schedule))
        for each in rules.after
        if each.schedule not in there and each.schedule != name
    ]
    if loop := circle_of(name, rules, there.get):
        allowed = _("these schedules would wait for each other: {names}")
        told = allowed.format(names=" → ".join(loop))
        problems.append(Problem("--after", f"schedule:{loop[1]}", told))
    if problems:
        raise _refused(problems)


def _check_not_paused(name: str, pause: Pause | None) -> None:
    """Raise Conflict for a paused schedule, or NotAllowed if its owner cannot resume it."""
    if pause is None:
        return
    if pause.locked:
        raise _locked(name, pause)
    text = _("{name} is paused: `tfcluster schedule resume {name}` first")
    raise Conflict(text.format(name=name))


def _locked(name: str, pause: Pause) -> NotAllowed:
    text = _("{name} was paused by {by}, and only an administrator can resume it: {why}")
    words = {"by": pause.by, "why": pause.reason or _("no reason was given")}
    return NotAllowed(text.format(name=name, **words))


def _moment(times: CronTimes, flag: str, said: str | datetime) -> float:
    """Return a time that the user typed, in seconds since 1970. A time without a UTC offset is in
    the schedule's time zone.
    """
    try:
        at = datetime.fromisoformat(said) if isinstance(said, str) else said
        return (at if at.tzinfo else at.replace(tzinfo=times.zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        allowed = _("write a time, such as 2026-11-01 or 2026-11-01T02:00")
        raise _refused([Problem(flag, str(said), allowed)]) from None


def _refused(problems: Sequence[Problem]) -> InvalidRequest:
    return InvalidRequest(problems, _("the schedule was refused"))
