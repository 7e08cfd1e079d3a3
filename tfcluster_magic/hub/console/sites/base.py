"""The interface of a site of the console: everyone's runs, schedules, logs, hours, storage, leaks.

The results have the same types on every kind of site, and they name the owner of each object. They
also name the data that could not be read. Every method ends within a bounded time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ....errors import Conflict, InvalidRequest
from ....i18n import _
from ....quota import limits
from ....quota.ledger import HoursByDay
from ....quota.storage import FolderUsage
from ....schedules import SCHEDULE_STATES, OccurrenceState, Pause, Schedule
from ....schedules.cron import CronTimes
from ....spec import Message, Model, Stop, TaskState, TaskType, TFCluster

MOST_ACTIVE, MOST_ENDED = 100, 20
"""Maximum numbers of active and of ended runs that the home page shows to a user."""
RUNS_KEPT = 600.0
"""Seconds without requests after which the cached runs are dropped."""


class SiteRun(Model, frozen=True, omit_defaults=False):
    """A row of the table of runs. `owner` is the user's name in the hub."""

    owner: str
    name: str
    cluster: str
    run: int
    uid: str
    phase: str
    reason: str
    message: str
    created_at: float
    finished_at: float | None
    active: bool
    mode: str
    tasks: dict[str, int]
    cpu: float
    memory: int
    gpu: int
    nodes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """The tasks that failed; the page offers their last log lines."""
    messages: tuple[Message, ...] = ()
    """The codes and parameters of `message`, for translation."""
    graphs: str = ""
    """The address of the run's graphs, if the site has Grafana. It is set only in rows that a page
    shows.
    """


class ScheduleMark(Model, frozen=True, omit_defaults=False):
    """A past due time in the row of a schedule, with its result and its run."""

    due: float
    state: OccurrenceState
    run: str


class SiteSchedule(Model, frozen=True, omit_defaults=False):
    """A row of the table of schedules. `owner` is the user's name in the hub."""

    owner: str
    name: str
    uid: str
    cron: str
    time_zone: str
    state: str
    """One of `SCHEDULE_STATES`."""
    next_at: float | None
    marks: tuple[ScheduleMark, ...]
    """The newest past due times, at most MOST_MARKS, oldest first."""
    by: str = ""
    """Name of the person who paused the schedule; empty if its owner or the schedule itself did."""
    reason: Message | str = ""
    """Why the schedule is paused or invalid."""
    locked: bool = False
    """Whether only an administrator can resume the schedule."""
    since: float | None = None


class Missed(Model, frozen=True):
    """A user whose data could not be read, and why. `owner` is empty if this concerns all users."""

    owner: str
    detail: str


class SiteRuns(Model, frozen=True):
    """All runs and schedules, as they were at one time."""

    rows: tuple[SiteRun, ...] = ()
    schedules: tuple[SiteSchedule, ...] = ()
    missed: tuple[Missed, ...] = ()


class UserRuns(Model, frozen=True):
    """One user's runs for the home page, newest first: the active ones, the last ended ones, the
    number of all ended ones, and why some may be missing.
    """

    active: tuple[SiteRun, ...] = ()
    ended: tuple[SiteRun, ...] = ()
    ended_count: int = 0
    missed: tuple[str, ...] = ()


class SiteHours(Model, frozen=True):
    """Everyone's CPU- and GPU-hours until now, by day, group and cluster."""

    users: dict[str, HoursByDay] = {}
    missed: tuple[Missed, ...] = ()


class SiteStorage(Model, frozen=True):
    """The size and use of everyone's folders or claims, by user."""

    users: dict[str, tuple[FolderUsage, ...]] = {}
    missed: tuple[Missed, ...] = ()


class Leak(Model, frozen=True, omit_defaults=False):
    """Something that a run or a removed user left behind: processes, a folder or a Kubernetes
    object. To remove a leak, pass its `id` to `Site.remove`.
    """

    owner: str
    id: str
    kind: str
    what: str


class SiteLeaks(Model, frozen=True):
    """All leaks, as they were at one time."""

    items: tuple[Leak, ...] = ()
    missed: tuple[Missed, ...] = ()


class Site(Protocol):
    """A site of the console.

    Its methods raise only TFClusterErrors; `pack` may also raise OSError.
    """

    async def runs(self) -> SiteRuns:
        """Return every recorded run, and every schedule, of everyone."""

    async def still(self, seen: SiteRuns, /) -> SiteRuns:
        """Return the earlier reading `seen` without the rows of people who are no longer users of
        the hub.
        """

    async def runs_of(self, owner: str, /) -> SiteRuns:
        """Return every run of a user of the hub; read no other user's runs."""

    async def graphs(self, rows: Sequence[SiteRun], /) -> Mapping[str, str]:
        """Return the addresses of these runs' graphs by uid; none if the site has no Grafana."""

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """Request the end of a run. If `uid` is not empty, the run must have this uid.

        Raises:
            NotFound: there is no such owner or run.
            Conflict: the run has ended, is already being stopped, or has another uid.
        """

    async def pause(self, owner: str, name: str, uid: str, pause: Pause) -> None:
        """Pause a schedule, so that only an administrator can resume it. If `uid` is not empty, the
        schedule must have this uid.

        Raises:
            NotFound: there is no such owner or schedule.
            Conflict: an administrator has already paused the schedule, or it has another uid.
        """

    async def resume(self, owner: str, name: str, uid: str) -> None:
        """Resume a schedule that an administrator paused. Raises NotFound or Conflict."""

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """Return the last log lines of a task. Raises NotFound."""

    async def hours(self) -> SiteHours:
        """Return the CPU- and GPU-hours of everyone's runs, including runs whose records were
        deleted.
        """

    async def storage(self) -> SiteStorage:
        """Return how full everyone's folders are. Slow."""

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """Write a user's data to the file descriptor `out`; call `tell` with each message about
        what the packing waits for. Raises NotFound if there is no such user or no data, OSError if
        `out` cannot be written.
        """

    def why_no_notebook(self, name: str, *, run: bool = True) -> str:
        """Return why a user of this name would get no notebook; empty if they would get one.
        Without `run`, do not start a process that checks what the account can run.
        """

    async def leaks(self) -> SiteLeaks:
        """Return everything that runs and removed users left behind."""

    async def remove(self, owner: str, leak: str) -> None:
        """Remove a leak if it still is one. Raises NotFound."""


# -- rows

LONGEST, MOST_MESSAGE, MOST_CODED, MOST_NAMES = 100, 1000, 4000, 40
"""Limits of a row. The first three are numbers of characters: of a text, of a message, and of the
message's codes. The last is a number of names of nodes or tasks.
"""


def run_row(cluster: TFCluster, nodes: tuple[str, ...] = ()) -> SiteRun:
    """Return a run as a row with an empty owner, and with the resources that count against the
    quota.
    """
    meta, spec, status = cluster.metadata, cluster.spec, cluster.status
    held = limits.resource_totals(meta.name, spec)
    failed = [task.name for task in status.attention if task.state is TaskState.FAILED]
    return SiteRun(
        owner="",
        name=meta.name,
        cluster=meta.cluster,
        run=meta.run,
        uid=meta.uid,
        phase=status.phase.value,
        reason=status.reason.value,
        message=status.message,
        messages=status.messages,
        created_at=meta.created_at,
        finished_at=status.finished_at,
        active=cluster.active,
        mode=spec.mode.value,
        tasks={t.value: count for t, count in spec.replicas.counts.items()},
        cpu=held.cpu,
        memory=round(held.memory),
        gpu=round(held.gpu),
        nodes=nodes,
        failed=tuple(dict.fromkeys([*(f.task for f in status.failures), *failed])),
    )


MOST_MARKS = 10
"""Maximum number of past due times in the row of a schedule."""


def schedule_row(schedule: Schedule, now: float) -> SiteSchedule:
    """Return a schedule as a row with an empty owner."""
    status, rules = schedule.status, schedule.rules
    row = SiteSchedule(
        owner="",
        name=schedule.name,
        uid=schedule.uid,
        cron=rules.cron,
        time_zone=rules.time_zone,
        state="Active",
        next_at=status.cursor,
        marks=tuple(
            ScheduleMark(each.due, each.state, each.run or (*each.earlier, "")[0])
            for each in status.occurrences[-MOST_MARKS:]
        ),
    )
    if status.problem:
        return replace(row, state="Invalid", reason=status.problem, next_at=None)
    if (pause := status.paused) is not None:
        told = {"by": pause.by, "reason": pause.reason, "locked": pause.locked, "since": pause.at}
        return replace(row, state="Paused", next_at=None, **told)
    return current_schedule(row, now)


def refuse_to_pause(name: str, pause: Pause | None) -> None:
    """Raise Conflict if an administrator has paused a schedule already."""
    if pause is not None and pause.locked:
        text = _("{name} is already paused by {by}")
        raise Conflict(text.format(name=name, by=pause.by))


def refuse_to_resume(name: str, pause: Pause | None) -> None:
    """Raise Conflict unless an administrator has paused a schedule."""
    if pause is None:
        raise Conflict(_("{name} is not paused").format(name=name))
    if not pause.locked:
        raise Conflict(_("{name} was not paused by an administrator").format(name=name))


def current_schedule(row: SiteSchedule, now: float) -> SiteSchedule:
    """Return the row with its next due time after `now`. The row stays unchanged unless the due
    time in it has passed.
    """
    if row.next_at is None or row.next_at > now:
        return row
    try:
        coming = CronTimes(row.cron, row.time_zone).next(now)
    except InvalidRequest as error:
        return replace(row, state="Invalid", reason=str(error), next_at=None)
    return replace(row, next_at=coming)


def bounded_schedule(row: SiteSchedule) -> SiteSchedule:
    """Return the row of a schedule, cut to a few KiB."""
    reason: Message | str = row.reason
    if isinstance(reason, str) or len(msgspec.json.encode(reason)) > MOST_CODED:
        reason = _cut(str(reason), MOST_MESSAGE)
    marks = (replace(each, run=_cut(each.run)) for each in row.marks[-MOST_MARKS:])
    return replace(
        row,
        name=_cut(row.name),
        uid=_cut(row.uid),
        cron=_cut(row.cron),
        time_zone=_cut(row.time_zone),
        state=row.state if row.state in SCHEDULE_STATES else "Invalid",
        marks=tuple(marks),
        by=_cut(row.by),
        reason=reason,
    )


def bounded_row(row: SiteRun) -> SiteRun:
    """Return a row cut to a few KiB, because everyone's rows are kept in memory."""
    texts = {
        name: _cut(text)
        for name in row.__struct_fields__
        if isinstance(text := getattr(row, name), str)
    }
    return replace(
        row,
        **{**texts, "message": _cut(row.message, MOST_MESSAGE)},
        messages=row.messages if len(msgspec.json.encode(row.messages)) <= MOST_CODED else (),
        tasks={_cut(kind): count for kind, count in list(row.tasks.items())[: len(TaskType)]},
        nodes=tuple(map(_cut, row.nodes[:MOST_NAMES])),
        failed=tuple(map(_cut, row.failed[:MOST_NAMES])),
    )


def runs_for_home(found: SiteRuns) -> UserRuns:
    """Return a user's runs as the home page shows them."""
    rows = sorted(found.rows, key=lambda row: -row.created_at)
    ended = [row for row in rows if not row.active]
    return UserRuns(
        active=tuple(row for row in rows if row.active)[:MOST_ACTIVE],
        ended=tuple(ended[:MOST_ENDED]),
        ended_count=len(ended),
        missed=tuple(one.detail for one in found.missed),
    )


def _cut(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
