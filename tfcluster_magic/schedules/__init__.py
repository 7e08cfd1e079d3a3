"""Schedules: launches that recur, with the result of each due time.

The package defines the data of schedules, with bounds and defaults, and the decisions about them. A
schedule has rules (`ScheduleRules`), a launch, and a status with one `Occurrence` for each due
time. The function `due` decides which launches are due next; it does no input or output. Times are
seconds since 1970.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from ..spec import (
    NAME_PATTERN,
    AdvisedOption,
    AwaitedOutcome,
    Message,
    Model,
    PositiveSeconds,
    Spec,
)
from ..spec.resource_form import Form, any_form, many_seconds_form, seconds_form, time_form
from ..spec.spec import MOST_DEPENDENCIES

MOST_OCCURRENCES = 500
"""Maximum number of settled occurrences that the status of a schedule keeps."""
MOST_WAITING = 100
"""Maximum due times of one schedule that wait for their launch at the same time. When some of them
are launched, the next due times take their places.
"""
MOST_BACKFILL = 10_000
"""Maximum number of due times of one backfill."""
ASK_ABOVE = 300
"""Number of due times above which a backfill asks for confirmation."""
MOST_ADVISED = 20
"""Maximum options that advice changes, such as `workers` and `worker_memory`."""
SCHEDULE_STATES = ("Active", "Paused", "Invalid")
"""States of a schedule, as administrators and `kubectl get` see them."""


class Overlap(str, enum.Enum):
    """The behaviour at a due time while an earlier run is active, like CronJob's
    concurrencyPolicy.
    """

    ALLOW = "allow"
    FORBID = "forbid"
    REPLACE = "replace"


class CatchUp(str, enum.Enum):
    """The missed due times that are made up for, for example after the machine was off."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class ScheduleDependency(Model, frozen=True):
    """Another schedule, whose run for the same due time must succeed or end first."""

    schedule: Annotated[
        str, Meta(pattern=NAME_PATTERN, max_length=50, description="the schedule's name")
    ]
    until: Annotated[
        AwaitedOutcome, Meta(description="what its run must do: succeed, or end in any way")
    ] = AwaitedOutcome.SUCCESS

    @property
    def words(self) -> str:
        """The value of `--after`: `schedule:prepare`, or `schedule:prepare:end`."""
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
        Meta(
            description=(
                "if a run is still active at a due time: allow both, forbid the new one, or "
                "replace the old one"
            )
        ),
    ] = Overlap.FORBID
    max_parallel: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=100,
                description=(
                    "maximum number of runs at the same time; further runs wait; absent: no limit"
                ),
            ),
        ]
        | None
    ) = None
    catch_up: Annotated[
        CatchUp, Meta(description="missed due times to make up for: none, the last, or all")
    ] = CatchUp.LAST
    deadline: (
        Annotated[
            PositiveSeconds,
            Meta(description="how late a run may still start; absent: no limit"),
        ]
        | None
    ) = None
    retries: Annotated[int, Meta(ge=0, le=20, description="retries of a run that failed")] = 0
    retry_delays: Annotated[
        tuple[PositiveSeconds, ...],
        Meta(
            min_length=1,
            max_length=20,
            description="delays before the retries; the last one repeats",
        ),
    ] = (60.0,)
    after_success: Annotated[
        bool, Meta(description="run only if the run of the previous due time succeeded")
    ] = False
    pause_after: (
        Annotated[int, Meta(ge=1, le=1000, description="pause after this many failures in a row")]
        | None
    ) = None
    advised: Annotated[
        bool, Meta(description="apply advice on the usage of earlier runs to each launch")
    ] = False
    after: Annotated[
        tuple[ScheduleDependency, ...],
        Meta(
            max_length=MOST_DEPENDENCIES,
            description="wait for the runs of other schedules for the same due time",
        ),
    ] = ()


class OccurrenceKind(str, enum.Enum):
    """The origin of an occurrence."""

    SCHEDULED = "scheduled"
    CATCH_UP = "catch-up"
    BACKFILL = "backfill"
    MANUAL = "manual"


class OccurrenceState(str, enum.Enum):
    """The state of a due time. From `SUCCEEDED` on, the states are settled and never change."""

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
        """Whether the state of the due time is final."""
        return self in _SETTLED

    @property
    def holds_run(self) -> bool:
        """Whether the run of the due time exists or is being created."""
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
    """One due time of a schedule, with its state and run."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "due": time_form("dueTime"),
        "notBefore": time_form("notBeforeTime"),
    }

    due: Annotated[float, Meta(description="the due time")]
    kind: Annotated[OccurrenceKind, Meta(description="why it is due")] = OccurrenceKind.SCHEDULED
    state: Annotated[OccurrenceState, Meta(description="its state")] = OccurrenceState.WAITING
    run: Annotated[str, Meta(description="its newest run")] = ""
    attempt: Annotated[
        int, Meta(ge=1, description="1 for the first attempt, 2 for the first retry")
    ] = 1
    earlier: Annotated[tuple[str, ...], Meta(description="the runs of earlier attempts")] = ()
    reason: Annotated[
        Message | None, Meta(description="why it is in this state; absent if the state says it")
    ] = None
    advice: Annotated[
        Message | None,
        Meta(description="what advice changed in its newest run, or why it changed nothing"),
    ] = None
    not_before: Annotated[float, Meta(description="earliest time of the next attempt")] | None = (
        None
    )
    refusals: Annotated[
        int, Meta(ge=0, description="launches in a row that were refused for lack of room")
    ] = 0
    changed_at: Annotated[float, Meta(description="time of the last change of its state")] = 0.0
    missed: Annotated[
        int, Meta(ge=0, description="number of earlier due times that were missed, at most 1000")
    ] = 0
    backfill: Annotated[
        int, Meta(description="number of the backfill that requested it; 0: none")
    ] = 0

    @property
    def key(self) -> tuple[float, int]:
        """The identity of the occurrence within its schedule."""
        return self.due, -1 if self.kind is OccurrenceKind.MANUAL else self.backfill


class Pause(Model, frozen=True, kw_only=True):
    """The pause of a schedule: since when, by whom, and why."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "reason": any_form(
            "reason", "The reason: a text, or a message if the schedule paused itself."
        ),
    }

    at: Annotated[float, Meta(description="since when")]
    by: Annotated[str, Meta(max_length=300, description="who paused it; empty: its owner")] = ""
    reason: Annotated[
        Message | str,
        Meta(description="the reason: a text, or a message if the schedule paused itself"),
    ] = ""
    locked: Annotated[bool, Meta(description="only an administrator may resume it")] = False


class Backfill(Model, frozen=True, kw_only=True):
    """A request to run earlier due times."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "start": time_form("startTime"),
        "end": time_form("endTime"),
        "cursor": time_form("cursorTime"),
    }

    number: Annotated[int, Meta(ge=1)]
    start: Annotated[float, Meta(description="first time of the range, included")]
    end: Annotated[float, Meta(description="last time of the range, included")]
    parallel: Annotated[
        int, Meta(ge=1, le=100, description="maximum number of its runs at the same time")
    ] = 1
    cursor: Annotated[float, Meta(description="time up to which due times were handled")] = 0.0
    total: Annotated[int, Meta(ge=0, description="number of its due times")] = 0
    taken: Annotated[int, Meta(ge=0, description="number of due times handled")] = 0
    done: Annotated[int, Meta(ge=0, description="number of due times in a final state")] = 0
    failed: Annotated[
        int, Meta(ge=0, description="number of due times that ended without success")
    ] = 0
    created_at: Annotated[float, Meta(description="time of the request")] = 0.0
    finished_at: Annotated[float, Meta(description="time of its end")] | None = None


class ScheduleStatus(Model, frozen=True, kw_only=True):
    """The status of a schedule: the due times that were handled, and their states."""

    resource_forms: ClassVar[Mapping[str, Form]] = {
        "cursor": time_form("cursorTime"),
        "previousSuccess": time_form("previousSuccessTime"),
    }

    cursor: Annotated[float, Meta(description="time up to which due times were handled")]
    occurrences: Annotated[
        tuple[Occurrence, ...],
        Meta(
            description="due times in order: all unfinished ones, and the newest 500 finished ones"
        ),
    ] = ()
    failures: Annotated[int, Meta(ge=0, description="failures in a row")] = 0
    previous_success: (
        Annotated[float, Meta(description="the newest due time that succeeded")] | None
    ) = None
    advised: Annotated[
        tuple[AdvisedOption, ...],
        Meta(max_length=MOST_ADVISED, description="what advice changes in the next run"),
    ] = ()
    judged: Annotated[
        str, Meta(description="the newest run whose usage was examined for advice")
    ] = ""
    paused: Pause | None = None
    backfills: tuple[Backfill, ...] = ()
    problem: Annotated[str, Meta(description="why the schedule cannot work, in English")] = ""


class LaunchWords(Model, frozen=True, kw_only=True):
    """The arguments of a launch as the user gave them, in the form that `ClusterManager.launch`
    accepts.
    """

    program: str | None = None
    arguments: tuple[str, ...] = ()
    cell: str | None = None
    sha256: str | None = None
    file: str | None = None
    config: str | None = None
    folder: str
    options: Mapping[str, Any] = {}


class ScheduledLaunch(Model, frozen=True, kw_only=True):
    """The launch of a schedule: the snapshot of its program, and the user's launch options, with
    which a new snapshot can be taken.
    """

    cluster: Annotated[str, Meta(pattern=NAME_PATTERN, description="name of its runs")]
    spec: Spec
    words: LaunchWords
    track: Annotated[
        bool, Meta(description="read the current program at each due time, without a snapshot")
    ] = False
    taken_at: Annotated[float, Meta(description="time of the snapshot")] = 0.0
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
