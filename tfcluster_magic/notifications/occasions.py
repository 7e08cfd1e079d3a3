"""Detection of the events that rules may report, from the records of runs and schedules. Pure.

The key of an event is derived only from the record. An event that is found again, even after a
crash, has the same key, so it is not reported twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..errors import InvalidRequest
from ..i18n import mark
from ..quota.budgets import WARN_FROM, format_hours
from ..schedules import Occurrence, OccurrenceState, Pause, Schedule
from ..schedules.cron import CronTimes
from ..spec import Cause, Message, Phase, Reason, TFCluster
from . import (
    Deliveries,
    NotificationRule,
    Occasion,
)

Words = Sequence[Message | str]


@dataclass(frozen=True)
class NotableEvent:
    """An event that rules may report.

    `key` identifies the event among the events of the run `uid`, or, if `uid` is empty, among all
    events that belong to no run. `title` and `words` are translated when a delivery is made.
    `waits` is the queueing time that a run has exceeded; only rules with exactly this limit
    (`queued_longer_than`) report the event. `locked` says that an administrator paused the
    schedule, so that its owner cannot resume it. `lines` are the last lines that `task` printed.
    """

    key: str
    about: str
    uid: str
    cluster: str
    occasions: frozenset[Occasion]
    at: float
    title: str
    values: Mapping[str, object] = field(default_factory=dict)
    words: Words = ()
    waits: float | None = None
    locked: bool = False
    task: str = ""
    lines: Sequence[str] = ()
    options: str = ""
    """Options that the command for a rerun gets, so that the rerun does not fail again."""


Printed = tuple[str, Sequence[str]]
"""A task and its last printed lines."""


def run_events(
    cluster: TFCluster, rules: Iterable[NotificationRule], now: float
) -> list[NotableEvent]:
    """Return the events in the record of a run."""
    status, name = cluster.status, cluster.metadata.name
    task, lines = recorded_lines(cluster)
    found: list[NotableEvent] = []

    def add(
        key: str,
        at: float,
        occasions: Iterable[Occasion],
        title: str,
        words: Words,
        waits: float | None = None,
    ) -> None:
        event = NotableEvent(
            key=key,
            about=name,
            uid=cluster.metadata.uid,
            cluster=cluster.metadata.cluster,
            occasions=frozenset(occasions),
            at=at,
            title=title,
            values={"name": name},
            words=words,
            task=task,
            lines=lines,
            waits=waits,
            options=_rerun_options(words),
        )
        found.append(event)

    said: Words = status.messages or (status.message,)
    if status.phase.is_final:
        at = status.finished_at or status.released_at or now
        add("end", at, _occasions_of_end(cluster), _END[status.phase], said)
    if status.phase is Phase.QUEUED and status.queued_at is not None:
        since = status.queued_at
        waited = [
            rule.queued_longer_than
            for rule in rules
            if Occasion.QUEUED in rule.on and now >= since + rule.queued_longer_than
        ]
        for limit in sorted(set(waited)):
            key = f"queued-{limit:g}"
            add(key, since + limit, [Occasion.QUEUED], _QUEUED, said, waits=limit)
    until = status.finished_at if status.phase.is_final else None
    for event in status.events:
        if event.reason == Reason.STALLED.value and (until is None or event.at < until):
            words = event.messages or (event.message,)
            add(f"stalled-{event.at:.0f}", event.at, [Occasion.STALLED], _STALLED, words)
    if not status.phase.is_final:
        for failure in status.failures:
            if failure.exit.cause is Cause.OOM:
                at = failure.exit.finished_at
                key = f"out-of-memory-{status.attempt}"
                add(key, at, [Occasion.OUT_OF_MEMORY], _OUT_OF_MEMORY, said)
                break
    return found


def _rerun_options(words: Words) -> str:
    """Return the options that a run's message advises for its rerun."""
    for each in words:
        if isinstance(each, Message):
            if each.code == "KerasUnsupported":
                return "--env TF_USE_LEGACY_KERAS=1"
            if each.code == "FlagRefused":
                return f"--pass-flags {each.params['word']}"
            if each.code == "RaiseMemory":
                return str(each.params["option"])
    return ""


def recorded_lines(cluster: TFCluster) -> Printed:
    """Return the last lines of the task that failed first, from the record of a failed run."""
    status = cluster.status
    failures = sorted(status.failures, key=lambda failure: failure.task != status.culprit)
    return (failures[0].task, failures[0].exit.last_lines) if failures else ("", ())


def next_queued_event(
    cluster: TFCluster, rules: Iterable[NotificationRule], now: float
) -> float | None:
    """Return the next time at which a rule has to report that a run is still queued. Return None if
    the run is not queued, or if the times of all rules (`queued_longer_than`) have passed.
    """
    since = cluster.status.queued_at
    if cluster.status.phase is not Phase.QUEUED or since is None:
        return None
    times = (since + rule.queued_longer_than for rule in rules if Occasion.QUEUED in rule.on)
    return min((at for at in times if at > now), default=None)


_END = {
    Phase.SUCCEEDED: mark("{name} succeeded"),
    Phase.FAILED: mark("{name} failed"),
    Phase.STOPPED: mark("{name} was stopped"),
}
_QUEUED = mark("{name} is still queued")
_STALLED = mark("{name} stalled")
_OUT_OF_MEMORY = mark("{name} ran out of memory")


def _occasions_of_end(cluster: TFCluster) -> Iterable[Occasion]:
    yield Occasion.FINISHED
    if cluster.status.phase is Phase.FAILED:
        yield Occasion.FAILED
        causes = {failure.exit.cause for failure in cluster.status.failures}
        if cluster.status.reason is Reason.OOM_KILLED or Cause.OOM in causes:
            yield Occasion.OUT_OF_MEMORY
        if cluster.status.reason is Reason.STALLED:
            yield Occasion.STALLED


def schedule_events(schedule: Schedule) -> list[NotableEvent]:
    """Return an event for each due time at which a schedule did not launch its run. If the schedule
    is paused, but not by its owner, also return an event for the pause.
    """
    name, uid, cluster = schedule.name, schedule.uid, schedule.launch.cluster
    unlaunched = schedule.status.occurrences if not schedule.status.problem else ()
    events = due_time_events(name, uid, cluster, schedule.rules.time_zone, unlaunched)
    pause = schedule.status.paused
    return events if pause is None else [*events, *pause_events(name, uid, cluster, pause)]


def is_unlaunched(occurrence: Occurrence) -> bool:
    """Return whether a due time was missed, or its launch was refused or finds no room."""
    state, why = occurrence.state, occurrence.reason
    if state is OccurrenceState.FAILED:
        return why is not None and why.code in ("ScheduleNotLaunched", "ScheduleDeadline")
    waits = state in (OccurrenceState.WAITING, OccurrenceState.RETRYING)
    return state is OccurrenceState.MISSED or (waits and occurrence.refusals > 0)


def due_time_events(
    name: str, uid: str, cluster: str, zone: str, occurrences: Iterable[Occurrence]
) -> list[NotableEvent]:
    """Return an event for each due time at which a schedule did not launch its run, or whose run
    waits for free resources. The text names a due time in the time zone `zone`.
    """
    unlaunched = [each for each in occurrences if is_unlaunched(each)]
    if not unlaunched:
        return []
    try:
        local = CronTimes("@daily", zone).local
    except InvalidRequest:  # a zone that the system no longer has
        zone = "UTC"
        local = CronTimes("@daily", zone).local
    return [
        NotableEvent(
            key=f"due-{uid}-{each.due:.0f}-{each.backfill}-{each.state.is_settled:d}",
            about=name,
            uid="",
            cluster=cluster,
            occasions=frozenset([Occasion.NOT_LAUNCHED]),
            # the due time, because `changed_at` of a waiting launch changes with each try
            at=each.changed_at if each.state.is_settled else each.due,
            title=_NOT_LAUNCHED if each.state.is_settled else _NO_ROOM,
            values={"name": name, "time": f"{local(each.due):%Y-%m-%d %H:%M} ({zone})"},
            words=[each.reason] if each.reason is not None else [],
        )
        for each in unlaunched
    ]


_NOT_LAUNCHED = mark("{name} was not launched at its due time {time}")
_NO_ROOM = mark("{name} has waited for room since its due time {time}")


def pause_events(name: str, uid: str, cluster: str, pause: Pause) -> list[NotableEvent]:
    """Return the event of a pause, for a schedule whose runs have the name `cluster`."""
    if not (pause.by or isinstance(pause.reason, Message)):
        return []
    words: list[Message | str] = [pause.reason] if pause.reason else []
    event = NotableEvent(
        key=f"schedule-{uid}-{pause.at:.0f}",
        about=name,
        uid="",
        cluster=cluster,
        occasions=frozenset([Occasion.SCHEDULE_PAUSED]),
        at=pause.at,
        title=mark("the schedule {name} was paused by {by}")
        if pause.by
        else mark("the schedule {name} paused itself"),
        values={"name": name, "by": pause.by},
        words=words,
        locked=pause.locked,
    )
    return [event]


def budget_events(
    kept: Deliveries, used: Mapping[str, tuple[float, float]], now: float
) -> tuple[Deliveries, list[NotableEvent]]:
    """Return an event for each budget that is nearly used up, and `kept` with the time at which
    each budget reached this state.

    Args:
        kept: the deliveries so far.
        used: by unit (`CPU·h`, `GPU·h`), the used and the allowed hours; a unit without a limit is
            left out.
        now: the time, in seconds since 1970.
    """
    high = {
        unit: kept.high.get(unit, now)
        for unit, (spent, most) in used.items()
        if spent >= WARN_FROM * most
    }
    events = [
        NotableEvent(
            key=f"budget-{unit}-{since:.0f}",
            about=unit,
            uid="",
            cluster="",
            occasions=frozenset([Occasion.BUDGET]),
            at=since,
            title=mark("{used} of {most} {unit} are used"),
            values={
                "used": format_hours(used[unit][0]),
                "most": format_hours(used[unit][1]),
                "unit": unit,
            },
            words=[Message("BudgetNearlyUsed")],
        )
        for unit, since in high.items()
    ]
    return (kept if high == kept.high else replace(kept, high=high)), events
