"""The decisions of schedules: which due times to launch now, and the state of each. Pure.

    status = settle(rules, status, outcomes, now)   # what the runs did
    turn = due(rules, status, now)                  # what to do, and when to look again

The caller first writes the new status, then launches the due runs and stops the replaced ones. Each
due time is handled once. The status records which ones were handled: every due time up to its
cursor, and those with an occurrence. If the clock is set back, no due time runs twice. If the clock
is set forward by mistake and back again, no due time is lost. The work of one call is bounded,
whatever the rules are and however long ago the last call was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..spec import AwaitedOutcome, Message, Phase, Status
from ..spec.names import parse_ref
from . import (
    MOST_OCCURRENCES,
    MOST_WAITING,
    Backfill,
    CatchUp,
    Occurrence,
    Overlap,
    Pause,
    Schedule,
    ScheduleDependency,
    ScheduleRules,
    ScheduleStatus,
)
from . import OccurrenceKind as Kind
from . import OccurrenceState as State
from .cron import CronTimes

ON_TIME = 60.0
"""Maximum seconds after a due time for which a launch counts as on time; after that, the due time
was missed.
"""
ROOM_DELAY, LONGEST_ROOM_DELAY = 30.0, 300.0
"""Seconds until a launch without room is tried again: the first delay and the longest one. Each
delay is twice the one before.
"""
MOST_COUNTED = 1000
"""Missed due times are counted only up to this number, because computing each one takes time."""
_MOST_TAKEN = 1000
"""Maximum number of due times of backfills that one call handles."""
MOST_BACKFILLS = 20
"""Maximum number of finished backfills that a status keeps; unfinished ones are always kept."""


FindSchedule = Callable[[str], Schedule | None]


@dataclass(frozen=True)
class ScheduleTurn:
    """The decision of `due` about one schedule: its new status, the occurrences to launch, the runs
    to stop, and the time of the next call.
    """

    status: ScheduleStatus
    launch: tuple[Occurrence, ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: float | None = None
    awaits: bool = False
    """Whether the schedule waits for other schedules (`after`); call again when one of these
    changes.
    """


@dataclass
class _Work:
    """The state of one call of `due`: what it was given, and the parts of its decision so far."""

    rules: ScheduleRules
    times: CronTimes
    now: float
    cursor: float
    occurrences: list[Occurrence]
    backfills: list[Backfill]
    find: FindSchedule
    awaits: bool = False
    stop: list[str] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)

    def put(self, new: Occurrence, **changes: object) -> Occurrence:
        """Add an occurrence, or replace the occurrence with the same key."""
        changed = replace(new, changed_at=self.now, **changes) if changes else new
        for at, each in enumerate(self.occurrences):
            if each.key == changed.key:
                self.occurrences[at] = changed
                return changed
        self.occurrences.append(changed)
        return changed

    def settle(self, old: Occurrence, state: State, reason: Message | None) -> None:
        """Set the final state of an occurrence, which is then never launched again."""
        self.put(old, state=state, reason=reason, not_before=None)

    def unsettled(self) -> list[Occurrence]:
        return [each for each in self.occurrences if not each.state.is_settled]

    def others(self, than: Occurrence) -> Iterator[Occurrence]:
        """Yield the other unsettled occurrences whose runs must not overlap with the run of `than`.
        Runs of backfills may overlap.
        """
        for each in self.unsettled():
            if each.key != than.key and each.kind is not Kind.BACKFILL:
                yield each

    @property
    def holding(self) -> int:
        return sum(each.state.holds_run for each in self.occurrences)


def due(
    rules: ScheduleRules,
    status: ScheduleStatus,
    now: float,
    find: FindSchedule = lambda _name: None,
) -> ScheduleTurn:
    """Decide what a schedule does at the time `now`.

    Args:
        rules: the rules of the schedule.
        status: the current status of the schedule, to which `settle` has added the outcomes of
            runs.
        now: the machine's time, which may jump.
        find: a function that takes a name and returns the schedule with this name that belongs to
            the owner of these rules; None if there is none.

    Returns:
        The decision. `ScheduleTurn.launch` also has the occurrences that an earlier call returned,
        if the caller has not launched them yet.

    Raises:
        InvalidRequest: the rules have an invalid cron expression or time zone.
    """
    times = CronTimes(rules.cron, rules.time_zone)
    find = functools.cache(find)  # cached, because a hundred due times may wait for one schedule
    work = _Work(
        rules, times, now, status.cursor, list(status.occurrences), list(status.backfills), find
    )
    if status.paused is None:
        _follow_clock(work)
        _take_due_times(work)
        _take_backfills(work)
        _give_up_late(work)
        _launch_waiting(work)
    found = tuple(kept(work.occurrences, now))
    return ScheduleTurn(
        replace(
            status,
            cursor=work.cursor,
            occurrences=found,
            backfills=tuple(_kept_backfills(work.backfills)),
        ),
        tuple(each for each in found if each.state is State.LAUNCHING),
        tuple(dict.fromkeys(work.stop)),
        min(work.wakes, default=None),
        work.awaits,
    )


def _kept_backfills(backfills: Sequence[Backfill]) -> list[Backfill]:
    """Return the newest backfills, and all that are not finished."""
    finished = [each for each in backfills if each.finished_at is not None]
    gone = {each.number for each in finished[: max(0, len(backfills) - MOST_BACKFILLS)]}
    return [each for each in backfills if each.number not in gone]


def _follow_clock(work: _Work) -> None:
    """Move the cursor back if the clock was set back, so that due times after `now` are handled.

    Due times that were launched keep their occurrences, so they are not launched twice.
    """
    if work.cursor > work.now:
        work.cursor = work.now
        work.occurrences = [
            each
            for each in work.occurrences
            if each.state is not State.MISSED or each.due <= work.now
        ]


def _take_due_times(work: _Work) -> None:
    """Add an occurrence for each due time after the cursor, until the limit of waiting occurrences
    is reached.
    """
    rules, now = work.rules, work.now
    on_time = now - ON_TIME
    late_from = max(work.cursor, on_time)
    if rules.catch_up is CatchUp.ALL:
        late_from = work.cursor
        if rules.deadline is not None and work.cursor < now - rules.deadline:
            late_from = now - rules.deadline
            _miss(work, work.times.last(work.cursor, late_from), catch=False)
    elif work.cursor < on_time:
        comes = work.times.next(late_from)
        alone = comes is None or comes > now
        missed = work.times.last(work.cursor, on_time)
        _miss(work, missed, catch=alone and rules.catch_up is CatchUp.LAST)
    room = MOST_WAITING - sum(each.state is State.WAITING for each in work.occurrences)
    for each in work.times.after(max(late_from, work.cursor)):
        if each > now:
            work.wakes.append(each)
            break
        if room <= 0:
            return  # a later call adds the next due times, when fewer of them wait
        room -= 1
        kind = Kind.SCHEDULED if each > on_time else Kind.CATCH_UP
        _take(work, Occurrence(due=each, kind=kind, changed_at=now))


def _take(work: _Work, new: Occurrence) -> None:
    """Add the occurrence of a due time. If the clock was set back, it may already exist; then keep
    the old one.
    """
    work.cursor = new.due
    if all(each.key != new.key for each in work.occurrences):
        work.put(new)


def _miss(work: _Work, last: float | None, *, catch: bool) -> None:
    """Record the due times from the cursor to `last` as one occurrence, for the due time `last`.
    This occurrence is to be caught up if `catch` is true and the deadline allows it; else it is
    missed. Of the earlier due times, the occurrence keeps only the number.
    """
    if last is None:
        return
    rules, now = work.rules, work.now
    earlier = max(0, work.times.count(work.cursor, last, MOST_COUNTED) - 1)
    new = Occurrence(due=last, kind=Kind.CATCH_UP, missed=earlier, changed_at=now)
    if not catch or (rules.deadline is not None and now - last > rules.deadline):
        new = replace(new, state=State.MISSED, reason=Message("ScheduleMissed"))
    _take(work, new)


def _take_backfills(work: _Work) -> None:
    """Add occurrences for the due times of unfinished backfills. A backfill never has more
    unsettled occurrences than it may run at the same time.
    """
    left = _MOST_TAKEN
    asked_for = (Kind.BACKFILL, Kind.MANUAL)
    room = MOST_WAITING - sum(each.kind in asked_for for each in work.unsettled())
    for at, backfill in enumerate(work.backfills):
        if backfill.finished_at is not None:
            continue
        of_it = [each for each in work.unsettled() if each.backfill == backfill.number]
        taken = {
            each.due
            for each in work.occurrences
            if each.kind is not Kind.MANUAL
            and (each.state is State.SUCCEEDED or not each.state.is_settled)
        }
        cursor, count, done, over = backfill.cursor, backfill.taken, backfill.done, False
        for moment in work.times.after(cursor) if len(of_it) < backfill.parallel else ():
            if moment > backfill.end:
                over = True
                break
            if len(of_it) >= backfill.parallel or left <= 0 or room <= 0:
                work.wakes += [work.now] if left <= 0 else []
                break
            left -= 1
            cursor, count = moment, count + 1
            if moment in taken:
                done += 1
                continue
            new = Occurrence(
                due=moment, kind=Kind.BACKFILL, backfill=backfill.number, changed_at=work.now
            )
            of_it.append(work.put(new))
            room -= 1
        finished = work.now if over and not of_it else None
        work.backfills[at] = replace(
            backfill, cursor=cursor, taken=count, done=done, finished_at=finished
        )


def _give_up_late(work: _Work) -> None:
    """Give up due times that have waited beyond the deadline."""
    deadline = work.rules.deadline
    if deadline is None:
        return
    for each in work.unsettled():
        if each.kind in (Kind.BACKFILL, Kind.MANUAL) or each.state.holds_run:
            continue
        if work.now - each.due > deadline:
            state = State.MISSED if each.state is State.WAITING else State.FAILED
            work.settle(each, state, Message("ScheduleDeadline", {"time": deadline}))
        else:
            work.wakes.append(each.due + deadline + 0.001)


def _launch_waiting(work: _Work) -> None:
    """Launch waiting occurrences in the order of their due times, as far as the rules allow."""
    for each in sorted(work.unsettled(), key=lambda o: o.due):
        if each.state.holds_run:
            continue
        begins = max(each.not_before or 0.0, each.due)
        if begins > work.now:
            work.wakes.append(begins)
            continue
        if not _is_settled_by_others(work, each):
            reason = _obstacle(work, each)
            if reason is None:
                work.put(each, state=State.LAUNCHING, reason=None, not_before=None)
            elif each.reason != reason:
                work.put(each, reason=reason)


def _is_settled_by_others(work: _Work, new: Occurrence) -> bool:
    """Settle an occurrence as skipped if it must not run because of another occurrence or another
    schedule. Return whether it was settled.
    """
    rules = work.rules
    waits, is_lost = _wait_for_schedules(work, new)
    if is_lost:
        work.settle(new, State.SKIPPED, waits)
        return True
    fresh = new.state is State.WAITING and new.kind in (Kind.SCHEDULED, Kind.MANUAL)
    if new.kind is not Kind.BACKFILL and rules.overlap is Overlap.REPLACE:
        newer = [o for o in work.others(new) if o.due > new.due and o.due <= work.now]
        if (newer and new.kind is not Kind.CATCH_UP) or any(o.state.holds_run for o in newer):
            work.settle(new, State.SKIPPED, Message("ScheduleSuperseded"))
            return True
    if fresh and rules.overlap is Overlap.FORBID:
        before = [o for o in work.others(new) if o.state.holds_run or o.due < new.due]
        if before:
            name = before[0].run or work.times.local(before[0].due).isoformat(timespec="minutes")
            work.settle(new, State.SKIPPED, Message("ScheduleOverlap", {"name": name}))
            return True
    if rules.after_success and new.kind is not Kind.MANUAL:
        last = _before(work, new)
        if last is not None and last.state in _NO_SUCCESS:
            name = last.run or work.times.local(last.due).isoformat(timespec="minutes")
            work.settle(new, State.SKIPPED, Message("SchedulePreviousFailed", {"name": name}))
            return True
    return False


_NO_SUCCESS = (State.FAILED, State.STOPPED, State.UNKNOWN)


def _wait_for_schedules(work: _Work, new: Occurrence) -> tuple[Message | None, bool]:
    """Return a message that says for which other schedule an occurrence waits (None if it waits for
    none), and whether it would wait for ever. Retries and runs of `run-now` do not wait.
    """
    if new.kind is Kind.MANUAL or new.state is not State.WAITING:
        return None, False
    waits: Message | None = None
    for each in work.rules.after:
        why = _awaited(each, work.find(each.schedule), new.due)
        if why is None:
            continue
        if why.code != "ScheduleWaitsForSchedule":
            return why, True
        waits = waits or why
    return waits, False


def _awaited(
    dependency: ScheduleDependency, found: Schedule | None, moment: float
) -> Message | None:
    """Return a message that says why a due time must wait for another schedule, or why it would
    wait for ever. Return None if it need not wait, because the other schedule's run for the same
    due time has succeeded or ended as required.
    """
    name = {"name": dependency.schedule}
    if found is None or found.status.problem:
        return Message("ScheduleAwaitedUnknown", name)
    there = [
        each
        for each in found.status.occurrences
        if each.due == moment and each.kind is not Kind.MANUAL
    ]
    done = {State.SUCCEEDED}
    if dependency.until is AwaitedOutcome.END:
        done |= {*_NO_SUCCESS}
    if any(each.state in done for each in there):
        return None
    if any(not each.state.is_settled for each in there):
        return Message("ScheduleWaitsForSchedule", name)
    if there:
        last = max(there, key=lambda each: each.changed_at)
        if last.state in _NO_SUCCESS:
            return Message("ScheduleAwaitedFailed", {"name": last.run or dependency.schedule})
        return Message("ScheduleAwaitedNever", name)
    if found.status.paused is not None:
        return Message("ScheduleAwaitedPaused", name)
    times = CronTimes(found.rules.cron, found.rules.time_zone)
    if found.status.cursor < moment and times.next(moment - 1) == moment:
        # The awaited schedule (`found`) has the same due time, but has not handled it yet.
        return Message("ScheduleWaitsForSchedule", name)
    return Message("ScheduleAwaitedNever", name)


def circle_of(name: str, rules: ScheduleRules, find: FindSchedule) -> tuple[str, ...]:
    """Return the circle of schedules that would wait for each other if the schedule `name` had
    these rules. `name` is the first and the last item. Return an empty tuple if there is no circle.
    """
    ways: list[tuple[str, ...]] = [(name, each.schedule) for each in rules.after]
    seen = set[str]()
    while ways:
        way = ways.pop()
        if way[-1] == name:
            return way
        if way[-1] not in seen and (found := find(way[-1])) is not None:
            seen.add(way[-1])
            ways += [(*way, each.schedule) for each in found.rules.after]
    return ()


def _before(work: _Work, new: Occurrence) -> Occurrence | None:
    """Return the occurrence of the newest earlier due time that ran, or may still run."""
    earlier = (
        each
        for each in work.occurrences
        if each.due < new.due and each.state not in (State.SKIPPED, State.MISSED)
    )
    return max(earlier, key=lambda o: (o.due, o.changed_at), default=None)


def _obstacle(work: _Work, new: Occurrence) -> Message | None:
    """Return a message that says what the launch of `new` waits for; None if it may begin. With
    `Overlap.REPLACE`, also add to `work.stop` the earlier runs that the launch replaces.
    """
    rules = work.rules
    if (waits := _wait_for_schedules(work, new)[0]) is not None:
        work.awaits = True
        return waits
    if rules.after_success and new.kind is not Kind.MANUAL:
        last = _before(work, new)
        if last is not None and not last.state.is_settled:
            return Message("ScheduleWaitsForPrevious")
    if new.kind is not Kind.BACKFILL and rules.overlap is not Overlap.ALLOW:
        holding = [each for each in work.others(new) if each.state.holds_run]
        replaces = rules.overlap is Overlap.REPLACE and new.kind is not Kind.CATCH_UP
        for each in holding if replaces else ():
            if each.run and each.state is State.RUNNING and each.due < new.due:
                work.stop.append(each.run)
                if each.reason is None:
                    work.put(each, reason=Message("ScheduleReplaced"))
        if holding:
            return Message("ScheduleWaitsForEnd", {"name": holding[0].run or "…"})
    if rules.max_parallel is not None and work.holding >= rules.max_parallel:
        return Message("ScheduleWaitsForOthers", {"count": work.holding})
    return None


def kept(
    occurrences: Iterable[Occurrence], now: float, most: int = MOST_OCCURRENCES
) -> list[Occurrence]:
    """Return the occurrences that a status keeps, in the order of their due times: all unsettled
    ones, all that are due in the future, and the newest settled ones. Occurrences in the future
    exist if the clock was set back. They are kept so that they do not run twice.
    """
    occurrences = list(occurrences)
    settled = [each for each in occurrences if each.state.is_settled and each.due <= now]
    newest = sorted(settled, key=lambda o: o.changed_at)[-most:]
    newest_ids = {id(each) for each in newest}
    found = [o for o in occurrences if not o.state.is_settled or o.due > now or id(o) in newest_ids]
    return sorted(found, key=lambda o: (o.due, o.backfill))


# -- pauses ----------------------------------------------------------------------------------------


def paused(status: ScheduleStatus, pause: Pause) -> ScheduleStatus:
    """Return the status with the new pause. A schedule that is already paused keeps its old pause,
    with one exception: a locked pause, which only an administrator may end, replaces one that is
    not locked.
    """
    old = status.paused
    if old is not None and (old.locked or not pause.locked):
        return status
    return replace(status, paused=pause)


def resumed(status: ScheduleStatus, now: float) -> ScheduleStatus:
    """Return the status without its pause. Due times during the pause are not caught up."""
    if status.paused is None:
        return status
    cursor = max(status.cursor, now) if status.cursor < now else now
    return replace(status, paused=None, failures=0, cursor=cursor)


# -- what runs did ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run so far: its phase (None if its record is gone and its end was not seen),
    its reason, and whether any of its tasks ever started.
    """

    phase: Phase | None
    reason: Message | None = None
    began: bool = True

    @classmethod
    def ended(cls, name: str, status: Status, *, began: bool = True) -> RunOutcome:
        """Return the outcome of the run `name`, whose phase is final."""
        told = status.messages or (Message("Clauses", {"parts": [status.message]}),)
        code = "ScheduleRunStopped" if status.phase is Phase.STOPPED else "ScheduleRunFailed"
        return cls(status.phase, Message(code, {"name": name, "why": [*told]}), began)


_NEVER_BEGAN = Message("ScheduleNeverBegan")


def settle(
    rules: ScheduleRules,
    status: ScheduleStatus,
    outcomes: Mapping[str, RunOutcome],
    now: float,
) -> ScheduleStatus:
    """Return the status, updated with the outcomes of its runs; `outcomes` has them by run name.
    The ends of runs are recorded, failed runs get a retry, and too many failures pause the
    schedule.
    """
    for each in status.occurrences:
        outcome = outcomes.get(each.run)
        if each.state is not State.RUNNING or outcome is None:
            continue
        if outcome.phase is None:
            gone = Message("ScheduleRunGone", {"name": each.run})
            status = _ended(rules, status, each, State.UNKNOWN, gone, now)
        elif outcome.phase is Phase.SUCCEEDED:
            status = _ended(rules, status, each, State.SUCCEEDED, None, now)
        elif outcome.phase is Phase.STOPPED:
            reason = each.reason or outcome.reason
            status = _ended(rules, status, each, State.STOPPED, reason, now)
        elif outcome.phase is Phase.FAILED and not outcome.began and each.reason != _NEVER_BEGAN:
            # The run never began, because the process that launched it was killed. Launch it again,
            # but only once.
            again = replace(
                each, state=State.LAUNCHING, run="", reason=_NEVER_BEGAN, changed_at=now
            )
            status = _with(status, again)
        elif outcome.phase is Phase.FAILED:
            status = failed(rules, status, each, outcome.reason, now)
    return status


def launched(
    status: ScheduleStatus, occurrence: Occurrence, run: str, now: float, *, created: bool
) -> ScheduleStatus:
    """Return the status, updated with `run` as the name of the run of `occurrence`. `created` is
    false if this run is still to be created.
    """
    state = State.RUNNING if created else State.LAUNCHING
    return _with(status, replace(occurrence, state=state, run=run, changed_at=now))


def no_room(
    status: ScheduleStatus, occurrence: Occurrence, why: Message | None, now: float
) -> ScheduleStatus:
    """Return the status, updated after the launch of an occurrence was refused because there was no
    room. The launch is tried again after delays that grow.
    """
    state = State.WAITING if occurrence.attempt == 1 else State.RETRYING
    delay = min(LONGEST_ROOM_DELAY, ROOM_DELAY * 2 ** min(occurrence.refusals, 10))
    changed = replace(
        occurrence,
        state=state,
        run="",
        reason=why,
        not_before=now + delay,
        refusals=occurrence.refusals + 1,
        changed_at=now,
    )
    return _with(status, changed)


def failed(
    rules: ScheduleRules,
    status: ScheduleStatus,
    occurrence: Occurrence,
    why: Message | None,
    now: float,
) -> ScheduleStatus:
    """Return the status, updated after an attempt of an occurrence has failed or could not be
    launched. The occurrence is either retried or settled as failed.
    """
    if occurrence.attempt > rules.retries:
        return _ended(rules, status, occurrence, State.FAILED, why, now)
    delay = rules.retry_delays[min(occurrence.attempt, len(rules.retry_delays)) - 1]
    changed = replace(
        occurrence,
        state=State.RETRYING,
        attempt=occurrence.attempt + 1,
        earlier=(*occurrence.earlier, *([occurrence.run] if occurrence.run else [])),
        run="",
        reason=why,
        not_before=now + delay,
        refusals=0,
        changed_at=now,
    )
    return _with(status, changed)


def _ended(
    rules: ScheduleRules,
    status: ScheduleStatus,
    occurrence: Occurrence,
    state: State,
    reason: Message | None,
    now: float,
) -> ScheduleStatus:
    ended = replace(occurrence, state=state, reason=reason, not_before=None, changed_at=now)
    status = _with(status, ended)
    success = state is State.SUCCEEDED
    if success:
        newest = max(status.previous_success or 0.0, occurrence.due)
        status = replace(status, previous_success=newest)
    if occurrence.kind is Kind.BACKFILL:
        told = [
            replace(each, done=each.done + 1, failed=each.failed + (not success))
            if each.number == occurrence.backfill
            else each
            for each in status.backfills
        ]
        return replace(status, backfills=tuple(told))
    if success:
        return replace(status, failures=0)
    if state is not State.FAILED:
        return status
    status = replace(status, failures=status.failures + 1)
    if rules.pause_after is None or status.failures < rules.pause_after or status.paused:
        return status
    why = Message("SchedulePausedItself", {"count": status.failures})
    return replace(status, paused=Pause(at=now, reason=why))


def _with(status: ScheduleStatus, changed: Occurrence) -> ScheduleStatus:
    found = tuple(changed if o.key == changed.key else o for o in status.occurrences)
    return replace(status, occurrences=found)


def run_to_judge(rules: ScheduleRules, status: ScheduleStatus) -> str:
    """Return the newest run that has ended, if its usage has not been judged yet. Empty if there is
    no such run, or if the schedule takes no advice.
    """
    if not rules.advised:
        return ""
    ended = [each.run for each in status.occurrences if each.state in _ENDED]
    ended += [run for each in status.occurrences for run in each.earlier]
    newest = max(ended, key=_number, default="")
    return newest if _number(newest) > _number(status.judged) else ""


_ENDED = (State.SUCCEEDED, State.FAILED, State.STOPPED)


def _number(run: str) -> int:
    return parse_ref(run)[1] or 0


def previous_success(status: ScheduleStatus, before: float) -> float | None:
    """Return the newest known due time before `before` whose run succeeded."""
    known = [
        each.due
        for each in status.occurrences
        if each.state is State.SUCCEEDED and each.due < before
    ]
    newest = status.previous_success
    if newest is not None and newest < before:
        known.append(newest)
    return max(known, default=None)
