"""Schedules: a launch that recurs, and what became of each due time. Shapes, bounds and defaults.

A schedule has rules (`ScheduleRules`), a launch, and a status with one `Occurrence` for each due
time. `due` decides what is next; it does no input or output. Times are seconds since 1970.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from ..spec import NAME_PATTERN, AwaitedOutcome, Message, Model, PositiveSeconds, Spec
from ..spec.resource_form import Form, any_form, many_seconds_form, seconds_form, time_form
from ..spec.spec import MOST_DEPENDENCIES

MOST_OCCURRENCES = 500
"""Settled occurrences that a status keeps, the newest ones."""
MOST_WAITING = 100
"""Due times of one schedule that wait at the same time; later ones are looked at when some are
launched.
"""
MOST_BACKFILL = 10_000
"""Due times of one backfill."""
ASK_ABOVE = 300
"""Due times of a backfill above which a person is asked first."""
SCHEDULE_STATES = ("Active", "Paused", "Invalid")
"""States of a schedule, as administrators and `kubectl get` see them."""


class Overlap(str, enum.Enum):
    """What happens at a due time while an earlier run goes on, as CronJob's concurrencyPolicy."""

    ALLOW = "allow"
    FORBID = "forbid"
    REPLACE = "replace"


class CatchUp(str, enum.Enum):
    """Which of the due times run that were missed, such as while the machine was off."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class ScheduleDependency(Model, frozen=True):
    """A schedule whose run of the same due time has to succeed or end first."""

    schedule: Annotated[
        str, Meta(pattern=NAME_PATTERN, max_length=50, description="the schedule, by its name")
    ]
    until: Annotated[
        AwaitedOutcome, Meta(description="what its run has to do: success, or end in any way")
    ] = AwaitedOutcome.SUCCESS

    @property
    def words(self) -> str:
        """As `--after` takes it: `schedule:prepare`, or `schedule:prepare:end`."""
        text = f"schedule:{self.schedule}"
        is_usual = self.until is AwaitedOutcome.SUCCESS
        return text if is_usual else f"{text}:{self.until.value}"


class ScheduleRules(Model, frozen=True, kw_only=True):
    """When a schedule is due, and what happens when runs overlap, are missed, or fail."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "deadline": seconds_form("deadlineSeconds"),
        "retryDelays": many_seconds_form("retryDelaySeconds"),
    }

    cron: Annotated[
        str,
        Meta(max_length=256, description="minute, hour, day of month, month, day of week"),
    ]
    time_zone: Annotated[
        str, Meta(max_length=64, description="IANA time zone, such as Asia/Shanghai")
    ] = "UTC"
    overlap: Annotated[
        Overlap,
        Meta(description="at a due time while a run goes on: allow both, forbid, or replace it"),
    ] = Overlap.FORBID
    max_parallel: (
        Annotated[
            int, Meta(ge=1, le=100, description="runs at once; further ones wait; absent: no bound")
        ]
        | None
    ) = None
    catch_up: Annotated[
        CatchUp, Meta(description="which missed due times run: none, the last, or all")
    ] = CatchUp.LAST
    deadline: (
        Annotated[
            PositiveSeconds,
            Meta(description="a due time is given up this long after it; absent: never"),
        ]
        | None
    ) = None
    retries: Annotated[
        int, Meta(ge=0, le=20, description="further runs for a due time whose run failed")
    ] = 0
    retry_delays: Annotated[
        tuple[PositiveSeconds, ...],
        Meta(min_length=1, max_length=20, description="before each retry; the last one repeats"),
    ] = (60.0,)
    after_success: Annotated[
        bool, Meta(description="run only if the run of the previous due time succeeded")
    ] = False
    pause_after: (
        Annotated[int, Meta(ge=1, le=1000, description="pause after this many failures in a row")]
        | None
    ) = None
    after: Annotated[
        tuple[ScheduleDependency, ...],
        Meta(
            max_length=MOST_DEPENDENCIES,
            description="wait for the runs of other schedules of the same due time",
        ),
    ] = ()


class OccurrenceKind(str, enum.Enum):
    """Why there is an occurrence."""

    SCHEDULED = "scheduled"
    CATCH_UP = "catch-up"
    BACKFILL = "backfill"
    MANUAL = "manual"


class OccurrenceState(str, enum.Enum):
    """What became of a due time. The last six are settled and never change."""

    WAITING = "Waiting"
    LAUNCHING = "Launching"
    RUNNING = "Running"
    RETRYING = "Retrying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"
    SKIPPED = "Skipped"
    MISSED = "Missed"

    @property
    def is_settled(self) -> bool:
        """Whether nothing more happens for the due time."""
        return self in _SETTLED

    @property
    def holds_run(self) -> bool:
        """Whether a run of it exists, or is about to."""
        return self in (OccurrenceState.LAUNCHING, OccurrenceState.RUNNING)


_SETTLED = (
    OccurrenceState.SUCCEEDED,
    OccurrenceState.FAILED,
    OccurrenceState.STOPPED,
    OccurrenceState.UNKNOWN,
    OccurrenceState.SKIPPED,
    OccurrenceState.MISSED,
)


class Occurrence(Model, frozen=True, kw_only=True, omit_defaults=False):
    """One due time of a schedule, and what became of it."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "due": time_form("dueTime"),
        "notBefore": time_form("notBeforeTime"),
    }

    due: Annotated[float, Meta(description="the due time")]
    kind: Annotated[OccurrenceKind, Meta(description="why it is due")] = OccurrenceKind.SCHEDULED
    state: Annotated[OccurrenceState, Meta(description="what became of it")] = (
        OccurrenceState.WAITING
    )
    run: Annotated[str, Meta(description="its newest run")] = ""
    attempt: Annotated[int, Meta(ge=1, description="1, and one more for each retry")] = 1
    earlier: Annotated[tuple[str, ...], Meta(description="the runs of earlier attempts")] = ()
    reason: Annotated[
        Message | None, Meta(description="why it is in this state, where that needs words")
    ] = None
    not_before: (
        Annotated[float, Meta(description="when it is tried again, at the earliest")] | None
    ) = None
    refusals: Annotated[
        int, Meta(ge=0, description="launches in a row for which there was no room")
    ] = 0
    changed_at: Annotated[float, Meta(description="when its state changed last")] = 0.0
    missed: Annotated[
        int, Meta(ge=0, description="earlier due times that were missed with it, at most 1000")
    ] = 0
    backfill: Annotated[int, Meta(description="the backfill that it belongs to; 0: none")] = 0

    @property
    def key(self) -> tuple[float, int]:
        """What identifies it in a schedule."""
        return self.due, -1 if self.kind is OccurrenceKind.MANUAL else self.backfill


class Pause(Model, frozen=True, kw_only=True):
    """Why and since when a schedule does nothing."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "reason": any_form("reason", "Why; a message if the schedule paused by itself."),
    }

    at: Annotated[float, Meta(description="since when")]
    by: Annotated[str, Meta(max_length=300, description="who paused it; empty: its owner")] = ""
    reason: Annotated[
        Message | str, Meta(description="why; a message if the schedule paused by itself")
    ] = ""
    locked: Annotated[bool, Meta(description="only an administrator may resume it")] = False


class Backfill(Model, frozen=True, kw_only=True):
    """A request to run past due times."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "start": time_form("startTime"),
        "end": time_form("endTime"),
        "cursor": time_form("cursorTime"),
    }

    number: Annotated[int, Meta(ge=1)]
    start: Annotated[float, Meta(description="the first due time is not before")]
    end: Annotated[float, Meta(description="the last due time is not after")]
    parallel: Annotated[int, Meta(ge=1, le=100, description="runs of it at once")] = 1
    cursor: Annotated[float, Meta(description="due times up to here were taken")] = 0.0
    total: Annotated[int, Meta(ge=0, description="its due times")] = 0
    taken: Annotated[int, Meta(ge=0, description="due times that were taken")] = 0
    done: Annotated[int, Meta(ge=0, description="due times that are settled")] = 0
    failed: Annotated[int, Meta(ge=0, description="those of them without success")] = 0
    created_at: Annotated[float, Meta(description="when it was asked for")] = 0.0
    finished_at: Annotated[float, Meta(description="when it was done")] | None = None


class ScheduleStatus(Model, frozen=True, kw_only=True):
    """How a schedule stands: which due times were taken, and what became of them."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "cursor": time_form("cursorTime"),
        "previousSuccess": time_form("previousSuccessTime"),
    }

    cursor: Annotated[float, Meta(description="every due time up to here was taken")]
    occurrences: Annotated[
        tuple[Occurrence, ...], Meta(description="by due time; settled ones only the newest 500")
    ] = ()
    failures: Annotated[int, Meta(ge=0, description="failures in a row")] = 0
    previous_success: (
        Annotated[float, Meta(description="the newest due time that succeeded")] | None
    ) = None
    paused: Pause | None = None
    backfills: tuple[Backfill, ...] = ()
    problem: Annotated[str, Meta(description="what keeps it from working, in English")] = ""


class LaunchWords(Model, frozen=True, kw_only=True):
    """A launch as it was asked for; `ClusterManager.launch` takes the same."""

    program: str | None = None
    arguments: tuple[str, ...] = ()
    cell: str | None = None
    sha256: str | None = None
    file: str | None = None
    config: str | None = None
    folder: str
    options: Mapping[str, Any] = {}


class ScheduledLaunch(Model, frozen=True, kw_only=True):
    """What a schedule launches: the snapshot, and the words for a new one."""

    cluster: Annotated[str, Meta(pattern=NAME_PATTERN, description="name of its runs")]
    spec: Spec
    words: LaunchWords
    track: Annotated[
        bool, Meta(description="read the program anew at each due time, without a snapshot")
    ] = False
    taken_at: Annotated[float, Meta(description="when the snapshot was taken")] = 0.0
    warnings: tuple[str, ...] = ()
    inferred: tuple[Message, ...] = ()
    data_dir: str = ""
    log_dir: str = ""


class Schedule(Model, frozen=True, kw_only=True):
    """One schedule: its identity, rules, launch and status."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    uid: str
    created_at: float
    rules: ScheduleRules
    launch: ScheduledLaunch
    status: ScheduleStatus
