"""The decisions of schedules: each due time runs once and none is lost; overlap, catching up,
retries and backfills.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.schedule_world import START, ScheduleWorld

from tfcluster_magic.schedules import (
    MOST_OCCURRENCES,
    MOST_WAITING,
    Backfill,
    CatchUp,
    LaunchWords,
    Occurrence,
    OccurrenceKind,
    OccurrenceState,
    Overlap,
    Pause,
    Schedule,
    ScheduleDependency,
    ScheduledLaunch,
    ScheduleRules,
    ScheduleStatus,
)
from tfcluster_magic.schedules.cron import CronTimes
from tfcluster_magic.schedules.due import (
    RunOutcome,
    circle_of,
    due,
    failed,
    launched,
    no_room,
    previous_success,
    settle,
)
from tfcluster_magic.spec import AwaitedOutcome, Phase, Reason, Spec, Status

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
State, Kind = OccurrenceState, OccurrenceKind


def rules(cron: str = "0 * * * *", **words: Any) -> ScheduleRules:
    return ScheduleRules(cron=cron, **words)


def due_times(world: ScheduleWorld) -> list[float]:
    """Return the due times that ran, in the order of their launches."""
    return [run.occurrence.due for run in world.runs.values()]


def expected(rule: ScheduleRules, until: float, start: float = START) -> list[float]:
    found = []
    for moment in CronTimes(rule.cron, rule.time_zone).after(start):
        if moment > until:
            break
        found.append(moment)
    return found


def test_each_due_time_runs_once() -> None:
    """A schedule that is checked often runs each due time once, on time."""
    world = ScheduleWorld(rules())
    for _ in range(200):
        world.look()
        world.pass_time(5 * MINUTE)
    world.look()
    assert due_times(world) == expected(world.rules, world.now)


def test_it_says_when_to_look_again() -> None:
    """Each decision names the next due time, so that no caller has to poll."""
    turn = due(rules(), ScheduleWorld(rules()).status, START)
    assert turn.wake_at == expected(rules(), START + HOUR)[0]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["0 */3 * * *", "30 2 * * *", "0 0 29 2 *", "0 * * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Shanghai"]),
    st.lists(
        st.tuples(
            st.floats(min_value=1, max_value=3 * DAY),
            st.one_of(st.none(), st.floats(min_value=-2 * DAY, max_value=5 * DAY)),
        ),
        min_size=1,
        max_size=20,
    ),
)
def test_with_a_clock_that_jumps_none_is_lost_and_none_runs_twice(
    cron: str, zone: str, steps: list[tuple[float, float | None]]
) -> None:
    """With `--catch-up all`, every due time that the clock passed runs once, wherever the clock
    jumped.
    """
    rule = rules(cron, time_zone=zone, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    world = ScheduleWorld(rule)
    latest = world.now
    for seconds, clock in steps:
        world.look()
        world.pass_time(seconds, clock=clock)
        latest = max(latest, world.now)
    world.pass_time(0, clock=max(0.0, latest - world.now))
    # If the clock was far ahead, some due times are not launched yet.
    for _ in range(100):
        world.look()
        world.pass_time(MINUTE / 10)
    ran = Counter(due_times(world))
    assert set(ran.values()) <= {1}
    assert set(expected(rule, latest)) <= set(ran)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([Overlap.FORBID, Overlap.REPLACE, Overlap.ALLOW]),
    st.sampled_from([CatchUp.NONE, CatchUp.LAST, CatchUp.ALL]),
    st.sampled_from([None, 1, 3]),
    st.lists(
        st.tuples(st.floats(1, 3 * HOUR), st.floats(1, 6 * HOUR), st.booleans()),
        min_size=5,
        max_size=40,
    ),
    st.integers(0, 2),
)
def test_the_rules_hold_whatever_runs_do(
    overlap: Overlap,
    catch_up: CatchUp,
    most: int | None,
    story: list[tuple[float, float, bool]],
    retries: int,
) -> None:
    """Runs of a schedule overlap only if this is allowed, no more than `max_parallel` runs are
    active, and each due time is recorded.
    """
    rule = rules(
        "*/30 * * * *", overlap=overlap, catch_up=catch_up, max_parallel=most, retries=retries
    )
    world = ScheduleWorld(rule)
    for step, lasts, good in story:
        world.lasts = lambda _o, lasts=lasts: lasts
        world.ends_as = lambda _o, good=good: Phase.SUCCEEDED if good else Phase.FAILED
        world.look()  # also checks the limits and the overlap rule
        world.pass_time(step)
    told = world.states()
    counted = sum(1 + each.missed for each in world.status.occurrences)
    last_look = world.status.cursor
    assert counted == len(expected(rule, last_look))
    for run in world.runs.values():
        assert run.occurrence.due in told


def test_forbid_skips_and_says_why() -> None:
    """With `forbid`, a due time during an active run is skipped, with the name of that run."""
    world = ScheduleWorld(rules(), lasts=lambda _o: 90 * MINUTE)
    for _ in range(360):
        world.look()
        world.pass_time(MINUTE / 2)
    states = [each.state for each in world.status.occurrences]
    assert states == [State.SUCCEEDED, State.SKIPPED, State.RUNNING]
    skipped = world.status.occurrences[1]
    assert str(skipped.reason) == "digits-1 had not ended (--overlap forbid)."


def test_replace_stops_the_run_before_and_waits_for_its_end() -> None:
    """With `replace`, the active run is stopped, and the new run starts when the old run is
    gone.
    """
    world = ScheduleWorld(rules(overlap=Overlap.REPLACE), lasts=lambda _o: 10 * DAY)
    for _ in range(100):
        world.look()
        world.pass_time(2 * MINUTE)
    states = [each.state for each in world.status.occurrences]
    assert states == [State.STOPPED] * (len(states) - 1) + [State.RUNNING]
    assert len(states) >= 3
    assert "replaces it" in str(world.status.occurrences[0].reason)


@pytest.mark.parametrize(
    ("catch_up", "ran"), [(CatchUp.NONE, 0), (CatchUp.LAST, 1), (CatchUp.ALL, 10)]
)
def test_catching_up_runs_none_the_last_or_all(catch_up: CatchUp, ran: int) -> None:
    """After ten missed due times, the rule says whether none, the last or all of them run."""
    world = ScheduleWorld(rules(catch_up=catch_up, overlap=Overlap.ALLOW))
    world.look()
    world.pass_time(10 * HOUR)
    world.look()
    assert len(world.runs) == ran
    if ran == 1:
        assert due_times(world) == expected(world.rules, world.now)[-1:]
        assert world.status.occurrences[0].missed == 9


def test_a_deadline_gives_up_what_is_too_late() -> None:
    """With a deadline of three hours, only the due times of the last three hours are caught up."""
    rule = rules(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, deadline=3 * HOUR)
    world = ScheduleWorld(rule)
    world.pass_time(10 * HOUR)
    world.look()
    assert due_times(world) == expected(rule, world.now)[-3:]
    first = world.status.occurrences[0]
    assert (first.state, first.missed) == (State.MISSED, 6)


def test_a_year_away_is_bounded_work_and_loses_nothing() -> None:
    """A schedule for every minute catches up a month in parts: no due time is lost, and not all
    40,000 due times are handled at once.
    """
    rule = rules("* * * * *", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, max_parallel=50)
    world = ScheduleWorld(rule)
    world.pass_time(5 * HOUR)
    for _ in range(20):
        world.look()
        waiting = [e for e in world.status.occurrences if e.state is State.WAITING]
        assert len(waiting) <= MOST_WAITING
        assert len(world.status.occurrences) <= MOST_OCCURRENCES + MOST_WAITING + 50
        world.pass_time(11)
    assert due_times(world) == expected(rule, world.now)


def test_a_failure_is_retried_after_its_delays() -> None:
    """A due time whose run fails is retried after each of the delays; if the last retry fails, its
    state is `Failed`.
    """
    rule = rules("0 2 * * *", retries=2, retry_delays=(60.0, 600.0))
    world = ScheduleWorld(rule, ends_as=lambda _o: Phase.FAILED)
    began = []
    while len(began) < 3:
        world.look()
        began += [world.now] * (len(world.runs) - len(began))
        world.pass_time(5)
    for _ in range(10):
        world.look()
        world.pass_time(60)
    assert began[1] - began[0] == pytest.approx(10 + 60, abs=10)
    assert began[2] - began[1] == pytest.approx(10 + 600, abs=10)
    (only,) = world.status.occurrences
    assert (only.state, only.attempt, only.run) == (State.FAILED, 3, "digits-3")
    assert only.earlier == ("digits-1", "digits-2")
    assert world.status.failures == 1


def test_it_pauses_after_failures_in_a_row() -> None:
    """After three failures in a row, the schedule pauses and says so; a success resets the
    count.
    """
    good = iter([False, False, True, False, False, False, True])
    world = ScheduleWorld(rules(pause_after=3))
    world.ends_as = lambda _o: Phase.SUCCEEDED if next(good) else Phase.FAILED
    for _ in range(200):
        world.look()
        world.pass_time(10 * MINUTE)
    assert len(world.runs) == 6
    assert world.status.paused is not None
    assert "3 due times failed in a row" in str(world.status.paused.reason)


def test_after_success_runs_only_on_top_of_success() -> None:
    """With `--after-success`, due times after a failure are skipped until a run succeeds."""
    world = ScheduleWorld(rules(after_success=True, overlap=Overlap.ALLOW))
    world.ends_as = lambda o: Phase.FAILED if len(world.runs) == 1 else Phase.SUCCEEDED
    for _ in range(40):
        world.look()
        world.pass_time(10 * MINUTE)
    states = [each.state for each in world.status.occurrences]
    assert states[:4] == [State.SUCCEEDED, State.FAILED, State.SKIPPED, State.SKIPPED]
    assert "previous run digits-2" in str(world.status.occurrences[2].reason)


def test_after_success_waits_for_the_one_before() -> None:
    """While the run of the previous due time is active, the next due time waits, and then runs."""
    rule = rules(after_success=True, overlap=Overlap.ALLOW)
    world = ScheduleWorld(rule, lasts=lambda _o: 100 * MINUTE)
    for _ in range(15):
        world.look()
        world.pass_time(10 * MINUTE)
    assert [e.state for e in world.status.occurrences[:2]] == [State.SUCCEEDED, State.RUNNING]


def test_a_paused_schedule_does_nothing() -> None:
    """A paused schedule has no due times, but its active runs are followed to their end."""
    from tfcluster_magic.schedules import Pause

    world = ScheduleWorld(rules())
    world.status = replace(world.status, paused=Pause(at=world.now))
    for _ in range(50):
        world.look()
        world.pass_time(10 * MINUTE)
    assert not world.runs
    assert due(world.rules, world.status, world.now).wake_at is None


def test_a_backfill_fills_past_times_within_its_bound() -> None:
    """A backfill runs each past due time once, oldest first, and at most two at the same time,
    while the schedule continues.
    """
    rule = rules("0 0 * * *")
    world = ScheduleWorld(rule, lasts=lambda _o: HOUR)
    start = START - 10 * DAY
    backfill = Backfill(number=1, start=start, end=START, parallel=2, cursor=start, total=10)
    world.status = replace(world.status, backfills=(backfill,))
    for _ in range(100):
        world.look()
        going = [r for r in world.active() if r.occurrence.kind is Kind.BACKFILL]
        assert len(going) <= 2
        world.pass_time(10 * MINUTE)
    filled = [r.occurrence.due for r in world.runs.values() if r.occurrence.backfill == 1]
    assert filled == expected(rule, START, start)
    (told,) = world.status.backfills
    assert (told.taken, told.done, told.failed) == (10, 10, 0)
    assert told.finished_at is not None


def test_a_backfill_leaves_what_succeeded() -> None:
    """A second backfill of the same days runs only the due times that did not succeed."""
    rule = rules("0 0 * * *")
    world = ScheduleWorld(rule)
    world.ends_as = lambda _o: Phase.FAILED if len(world.runs) % 3 == 0 else Phase.SUCCEEDED
    start = START - 6 * DAY
    for number in (1, 2):
        more = Backfill(number=number, start=start, end=START, parallel=1, cursor=start, total=6)
        world.status = replace(world.status, backfills=(*world.status.backfills, more))
        for _ in range(40):
            world.look()
            world.pass_time(MINUTE)
        world.ends_as = lambda _o: Phase.SUCCEEDED
    assert len(world.runs) == 6 + 2
    assert [each.done for each in world.status.backfills] == [6, 6]


def test_a_launch_without_room_is_tried_again() -> None:
    """A due time for whose run resources are missing waits and is tried again, and is not lost."""
    world = ScheduleWorld(rules())
    world.pass_time(HOUR)
    turn = due(world.rules, world.status, world.now)
    world.status = no_room(turn.status, turn.launch[0], None, world.now)
    world.look()
    assert not world.runs
    world.pass_time(31)
    world.look()
    assert len(world.runs) == 1


def test_a_launch_without_room_is_tried_ever_less_often() -> None:
    """If a launch finds no room, the delay until it is tried again doubles from half a minute to
    five minutes. The next attempt of the same due time begins with half a minute again.
    """
    world = ScheduleWorld(rules(retries=1))
    world.pass_time(HOUR)
    pauses = []
    for _ in range(7):
        turn = due(world.rules, world.status, world.now)
        world.status = no_room(turn.status, turn.launch[0], None, world.now)
        at = world.status.occurrences[0].not_before or 0.0
        pauses.append(at - world.now)
        world.now = at
    assert pauses == [30, 60, 120, 240, 300, 300, 300]
    (only,) = world.status.occurrences
    world.status = failed(world.rules, world.status, only, None, world.now)
    world.pass_time(HOUR)
    turn = due(world.rules, world.status, world.now)
    world.status = no_room(turn.status, turn.launch[0], None, world.now)
    assert world.status.occurrences[0].not_before == world.now + 30


def test_an_end_that_nobody_saw_is_unknown() -> None:
    """A due time whose record is gone counts neither as a success nor as a failure, but as unknown;
    due times that depend on its success do not run.
    """
    world = ScheduleWorld(rules("*/5 * * * *", after_success=True, pause_after=1))
    world.pass_time(5 * MINUTE)
    world.look()
    (only,) = world.status.occurrences
    world.status = settle(world.rules, world.status, {only.run: RunOutcome(None)}, world.now)
    (only,) = world.status.occurrences
    assert only.state is State.UNKNOWN and "not known" in str(only.reason)
    assert world.status.failures == 0 and world.status.paused is None
    world.pass_time(5 * MINUTE)
    world.look()
    assert world.status.occurrences[-1].state is State.SKIPPED


def test_the_success_before_is_known() -> None:
    """For a due time, `previous_success` returns the time of the newest success before it, even if
    that success is no longer in the history.
    """
    world = ScheduleWorld(rules("*/5 * * * *"))
    for _ in range(800):
        world.look()
        world.pass_time(5 * MINUTE)
    assert len(world.status.occurrences) <= MOST_OCCURRENCES + 1
    last = world.status.occurrences[-1].due
    assert previous_success(world.status, last) == last - 5 * MINUTE
    assert previous_success(world.status, START - DAY) is None


def test_a_launch_that_was_killed_before_any_task_is_made_again_once() -> None:
    """A run that was killed before any task started counts as not launched and is launched again;
    the second time, it counts as failed.
    """
    world = ScheduleWorld(rules())
    world.pass_time(HOUR)
    world.look()
    for number in (1, 2):
        (only,) = world.status.occurrences
        assert (only.state, only.run) == (State.RUNNING, f"digits-{number}")
        never = {only.run: RunOutcome(Phase.FAILED, began=False)}
        world.status = settle(world.rules, world.status, never, world.now)
        for each in due(world.rules, world.status, world.now).launch:
            world.status = launched(world.status, each, "digits-2", world.now, created=True)
    assert world.status.occurrences[0].state is State.FAILED


# -- waiting for other schedules -------------------------------------------------------------------


def schedule_of(name: str, rule: ScheduleRules, status: ScheduleStatus) -> Schedule:
    """Return a schedule with this status."""
    launch = ScheduledLaunch(cluster=name, spec=Spec(), words=LaunchWords(folder=""))
    return Schedule(name=name, uid=name, created_at=0.0, rules=rule, launch=launch, status=status)


class Pair:
    """Two schedules: `first`, and `then`, which waits for the run of `first` for the same due
    time.
    """

    def __init__(self, first: ScheduleRules, until: AwaitedOutcome, **words: Any) -> None:
        self.first = ScheduleWorld(first)
        after = (ScheduleDependency("first", until),)
        self.then = ScheduleWorld(rules(after=after, **words), find=self.find)

    def find(self, name: str) -> Schedule | None:
        return schedule_of(name, self.first.rules, self.first.status) if name == "first" else None

    def look(self, seconds: float = 0.0, *, reverse: bool = False) -> None:
        """Advance the time, then ask `due` for both schedules; `reverse`: for `then` before
        `first`.
        """
        worlds = [self.first, self.then]
        for each in reversed(worlds) if reverse else worlds:
            each.pass_time(seconds)
        for each in reversed(worlds) if reverse else worlds:
            each.look()


@given(
    ends=st.lists(st.sampled_from([Phase.SUCCEEDED, Phase.FAILED]), min_size=6, max_size=6),
    lasts=st.integers(1, 90),
    until=st.sampled_from(AwaitedOutcome),
    reverse=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_it_runs_after_the_run_of_the_same_time(
    ends: list[Phase], lasts: int, until: AwaitedOutcome, reverse: bool
) -> None:
    """No run starts before the awaited run of the same due time is done, whatever schedule is
    checked first. A skipped due time has a reason, and no due time is lost.
    """
    pair = Pair(rules(overlap=Overlap.ALLOW), until, overlap=Overlap.ALLOW)
    pair.first.lasts = lambda _o: lasts * MINUTE
    of = {}
    pair.first.ends_as = lambda o: of.setdefault(o.due, ends[len(of) % len(ends)])
    for _ in range(12 * 10):
        pair.look(5 * MINUTE, reverse=reverse)
        ended = {
            each.due: each.state for each in pair.first.status.occurrences if each.state.is_settled
        }
        for run in pair.then.runs.values():
            state = ended[run.occurrence.due]
            assert state is State.SUCCEEDED or until is AwaitedOutcome.END
    then = {each.due: each for each in pair.then.status.occurrences}
    assert list(then) == expected(pair.then.rules, pair.then.now)
    for moment, state in ended.items():
        if state is State.SUCCEEDED or until is AwaitedOutcome.END:
            assert then[moment].run or then[moment].state is State.WAITING, then[moment]
        elif then[moment].state is not State.WAITING:
            assert then[moment].state is State.SKIPPED
            assert then[moment].reason and then[moment].reason.code == "ScheduleAwaitedFailed"


def test_a_hundred_waiting_due_times_read_another_schedule_once() -> None:
    """All waiting due times of a schedule look up the awaited schedule only once, so that one
    tenant's schedules do not delay the others.
    """
    pair = Pair(rules(overlap=Overlap.ALLOW, max_parallel=1), AwaitedOutcome.SUCCESS)
    pair.first.lasts = lambda _o: 30 * 24 * 60 * MINUTE
    for _ in range(5):
        pair.look(60 * MINUTE)
    waiting = tuple(
        Occurrence(due=each.due, kind=Kind.BACKFILL, changed_at=each.due)
        for each in pair.first.status.occurrences
    )
    read = []

    def find(name: str) -> Schedule | None:
        read.append(name)
        return pair.find(name)

    status = replace(pair.then.status, occurrences=waiting)
    turn = due(pair.then.rules, status, pair.then.now, find)
    assert turn.awaits and len(waiting) > 3
    assert read == ["first"]


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"cron": "30 * * * *"}, "ScheduleAwaitedNever"),
        ({"cron": "0 */2 * * *"}, "ScheduleAwaitedNever"),
        (None, "ScheduleAwaitedUnknown"),
    ],
)
def test_a_time_at_which_the_other_has_no_run_is_skipped(
    first: dict[str, str] | None, code: str
) -> None:
    """A due time whose awaited run will never exist is skipped, with that reason."""
    pair = Pair(rules(**(first or {})), AwaitedOutcome.SUCCESS)
    if first is None:
        pair.then.find = lambda _name: None
    for _ in range(3 * 60):
        pair.look(MINUTE)
    codes = {each.reason.code for each in pair.then.status.occurrences if each.reason}
    assert codes == {code}


def test_a_paused_schedule_is_not_waited_for() -> None:
    """A due time whose awaited schedule is paused is skipped; runs of `run-now` do not wait."""
    pair = Pair(rules(), AwaitedOutcome.SUCCESS)
    pair.first.status = replace(pair.first.status, paused=Pause(at=START))
    for _ in range(2 * 60):
        pair.look(MINUTE)
    codes = [each.reason.code for each in pair.then.status.occurrences if each.reason]
    assert set(codes) == {"ScheduleAwaitedPaused"}
    manual = Occurrence(due=pair.then.now, kind=Kind.MANUAL)
    status = pair.then.status
    pair.then.status = replace(status, occurrences=(*status.occurrences, manual))
    pair.look()
    assert len(pair.then.runs) == 1


def test_circles_are_found() -> None:
    """If a schedule would wait for itself, directly or by way of other schedules, `circle_of`
    returns the names along this circle; they begin and end with that schedule.
    """
    after = {"a": "b", "b": "c", "c": "d"}
    status = ScheduleStatus(cursor=0.0)

    def find(name: str) -> Schedule | None:
        waits = (ScheduleDependency(after[name]),) if name in after else ()
        return schedule_of(name, rules(after=waits), status)

    assert circle_of("d", rules(after=(ScheduleDependency("a"),)), find) == (
        "d",
        "a",
        "b",
        "c",
        "d",
    )
    assert circle_of("a", rules(after=(ScheduleDependency("a"),)), find) == ("a", "a")
    assert circle_of("x", rules(after=(ScheduleDependency("a"),)), find) == ()


def test_the_reason_of_a_stopped_run_does_not_say_that_it_failed() -> None:
    """The reason names the run and says why it ended; only a failed run `failed`."""
    stopped = Status(Phase.STOPPED, Reason.STOP_REQUESTED, message="Stopped by its owner.")
    assert str(RunOutcome.ended("adv-2", stopped).reason) == "adv-2: Stopped by its owner."
    failed = Status(Phase.FAILED, Reason.PROGRAM_FAILED, message="worker-0 exited with 1.")
    assert str(RunOutcome.ended("adv-2", failed).reason) == "adv-2 failed: worker-0 exited with 1."
