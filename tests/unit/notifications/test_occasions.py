"""Events for notifications, which follow only from records; each event causes one message for each
rule that matches.
"""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.project import ROOT

from tfcluster_magic.notifications import (
    MOST_KEPT,
    Deliveries,
    DeliveryState,
    NotificationRule,
    Occasion,
    TestRequest,
    Webhook,
    attempts,
    occasions,
)
from tfcluster_magic.notifications.wording import compose
from tfcluster_magic.schedules import Occurrence, OccurrenceState
from tfcluster_magic.spec import Message, Metadata, Phase, Reason, Spec, Status, TFCluster
from tfcluster_magic.spec.status import Event

HEAD = Metadata(name="digits-2", cluster="digits", run=2, uid="u", created_at=0.0)


def rule(*on: Occasion, **more: object) -> NotificationRule:
    words = {"name": "team", "uid": "r", "created_at": 10.0, "on": on, **more}
    return NotificationRule(**words)  # type: ignore[arg-type]


def run(phase: Phase, reason: Reason = Reason.RUNNING, **more: object) -> TFCluster:
    status = Status(phase=phase, reason=reason, message="why", **more)  # type: ignore[arg-type]
    return TFCluster(metadata=HEAD, spec=Spec(), status=status)


def told(cluster: TFCluster, *rules: NotificationRule, now: float = 100.0) -> list[str]:
    events = occasions.run_events(cluster, rules, now)
    return [e.event for e in attempts.note(Deliveries(), rules, events, now).deliveries]


def test_an_end_is_told_once_whatever_the_rule_asks_for() -> None:
    """A failure because of memory matches three kinds of events of a rule, but is one message."""
    ended = run(Phase.FAILED, Reason.OOM_KILLED, finished_at=50.0)
    assert told(ended, rule(Occasion.FAILED, Occasion.FINISHED, Occasion.OUT_OF_MEMORY)) == ["end"]
    assert told(ended, rule(Occasion.STALLED)) == []
    assert told(run(Phase.SUCCEEDED, finished_at=50.0), rule(Occasion.FAILED)) == []


def test_what_was_before_a_rule_and_other_runs_are_not_told() -> None:
    """A new rule reports no earlier events; a rule with `--only` reports no other runs."""
    every = rule(Occasion.FINISHED)
    assert told(run(Phase.FAILED, finished_at=9.0), every) == []
    ended = run(Phase.FAILED, finished_at=50.0)
    assert told(ended, replace(every, clusters=("other",))) == []
    assert told(ended, replace(every, clusters=("digits",))) == ["end"]


def test_a_wait_and_a_stall_are_told_at_their_time() -> None:
    """A run is reported as queued once it has been queued for the rule's time, and each stall is
    reported once.
    """
    waits = rule(Occasion.QUEUED, queued_longer_than=60.0)
    queued = run(Phase.QUEUED, Reason.QUEUED, queued_at=20.0)
    assert told(queued, waits, now=79.0) == []
    assert told(queued, waits, now=80.0) == ["queued-60"]
    stalls = tuple(Event(at=at, reason="Stalled", message="m") for at in (30.0, 60.0))
    assert told(run(Phase.RUNNING, events=stalls), rule(Occasion.STALLED)) == [
        "stalled-30",
        "stalled-60",
    ]


def test_noting_again_changes_nothing() -> None:
    """If the same record is read again, before or after sending, there is no second message."""
    rules = [rule(Occasion.FAILED)]
    events = occasions.run_events(run(Phase.FAILED, finished_at=50.0), rules, 100.0)
    kept = attempts.note(Deliveries(), rules, events, 100.0)
    assert attempts.note(kept, rules, events, 200.0) is kept
    sent = attempts.sent(attempts.begin(kept, ("r", "u", "end"), 100.0), ("r", "u", "end"), 101.0)
    assert attempts.note(sent, rules, events, 200.0) is sent
    assert attempts.pending(sent) == []


def test_a_message_is_tried_for_a_day_and_not_longer() -> None:
    """The pauses between attempts grow, and the last attempt comes a day after the first."""
    rules, key = [rule(Occasion.FAILED)], ("r", "u", "end")
    events = occasions.run_events(run(Phase.FAILED, finished_at=50.0), rules, 100.0)
    kept, now = attempts.note(Deliveries(), rules, events, 100.0), 100.0
    while left := attempts.pending(kept):
        now = left[0].next_at
        kept = attempts.failed(attempts.begin(kept, key, now), key, "down", now)
    (last,) = kept.deliveries
    assert (last.state, last.problem) == (DeliveryState.GIVEN_UP, "down")
    assert 23 * 3600 < now - 100.0 <= 24 * 3600
    assert last.attempts < 40


def test_what_is_kept_is_bounded_and_what_is_forgotten_stays_told() -> None:
    """Only the newest messages are stored; an event whose message was dropped is not reported
    again.
    """
    rules, kept = [rule(Occasion.STALLED)], Deliveries()
    for number in range(MOST_KEPT + 20):
        stall = (Event(at=100.0 + number, reason="Stalled", message="m"),)
        events = occasions.run_events(run(Phase.RUNNING, events=stall), rules, 1000.0)
        kept = attempts.note(kept, rules, events, 1000.0)
        kept = attempts.sent(kept, ("r", "u", f"stalled-{100 + number}"), 1000.0)
    assert len(kept.deliveries) == MOST_KEPT
    stall = (Event(at=100.0, reason="Stalled", message="m"),)
    events = occasions.run_events(run(Phase.RUNNING, events=stall), rules, 1000.0)
    assert attempts.note(kept, rules, events, 1000.0) is kept


def test_a_time_ahead_of_the_clock_silences_nothing() -> None:
    """The oldest stored messages are dropped. If the events of dropped messages have times in the
    future, later events are reported nevertheless.
    """
    rules, kept = [rule(Occasion.STALLED)], Deliveries()

    def stall(at: float, now: float) -> bool:
        nonlocal kept
        events = occasions.run_events(
            run(Phase.RUNNING, events=(Event(at=at, reason="Stalled", message="m"),)), rules, now
        )
        before, kept = kept, attempts.note(kept, rules, events, now)
        kept = attempts.sent(kept, ("r", "u", f"stalled-{at:.0f}"), now)
        return kept != before

    for number in range(MOST_KEPT + 20):
        stall(1e9 + number, 1000.0)
    assert kept.forgotten_until == 1000.0
    assert stall(1001.0, 1002.0)


def test_an_event_slightly_ahead_of_the_clock_is_told_once() -> None:
    """If the clock that sets the times of events is two seconds ahead, an event whose message was
    dropped is not reported again.
    """
    rules, kept = [rule(Occasion.STALLED)], Deliveries()
    for number in range(MOST_KEPT + 20):
        stalls = (Event(at=102.0 + number, reason="Stalled", message="m"),)
        events = occasions.run_events(run(Phase.RUNNING, events=stalls), rules, 100.0 + number)
        kept = attempts.note(kept, rules, events, 100.0 + number)
        kept = attempts.sent(kept, ("r", "u", f"stalled-{102 + number}"), 100.0 + number)
    stalls = (Event(at=121.0, reason="Stalled", message="m"),)
    events = occasions.run_events(run(Phase.RUNNING, events=stalls), rules, 400.0)
    assert attempts.note(kept, rules, events, 400.0) is kept


def test_a_rule_without_occasions_can_be_tested() -> None:
    """A hand-written rule with `on: []`, so without any kind of event, can be tested."""
    request = TestRequest(id="t", rule="r", at=100.0)
    kept = attempts.note_test(Deliveries(), [rule()], request, 100.0)
    assert [each.is_test for each in attempts.pending(kept)] == [True]


def test_a_test_at_another_time_is_given_up_with_a_reason() -> None:
    """If a test request has a time that is too old or lies in the future, the message names the
    clocks as the cause. A test request is ignored if it is older than the deletion of the stored
    messages.
    """
    for at in (1000.0, 9000.0, 1e300):
        request = TestRequest(id="t", rule="r", at=at)
        kept = attempts.note_test(Deliveries(), [rule(Occasion.FAILED)], request, 5000.0)
        (told,) = kept.deliveries
        assert told.state is DeliveryState.GIVEN_UP
        assert "clock" in told.problem
        assert attempts.note_test(kept, [rule(Occasion.FAILED)], request, 5001.0) is kept
    old, emptied = replace(request, at=1000.0), Deliveries(forgotten_until=4000.0)
    assert attempts.note_test(emptied, [rule(Occasion.FAILED)], old, 5000.0) is emptied


def test_a_budget_is_told_when_it_is_crossed() -> None:
    """Reaching 80 % of a budget is reported once, and again only after the use has fallen below 80
    %.
    """
    rules, kept = [rule(Occasion.BUDGET)], Deliveries()

    def look(used: float, now: float) -> int:
        nonlocal kept
        after, events = occasions.budget_events(kept, {"CPU·h": (used, 10.0)}, now)
        kept = attempts.note(after, rules, events, now)
        return len(kept.deliveries)

    assert [look(*each) for each in ((7.9, 20.0), (8.0, 30.0), (9.0, 40.0))] == [0, 1, 1]
    assert [look(*each) for each in ((7.0, 50.0), (8.5, 60.0))] == [1, 2]
    assert kept.deliveries[0].title == "8 of 10 CPU·h are used"


def test_the_next_command_has_the_option_that_the_message_advises() -> None:
    """If a program failed because of Keras 3, the `rerun` command in the message sets
    TF_USE_LEGACY_KERAS=1, which avoids this failure.
    """
    hint = Message("KerasUnsupported")
    ended = run(Phase.FAILED, Reason.PROGRAM_FAILED, finished_at=50.0, messages=(hint,))
    failed = rule(Occasion.FAILED)
    events = occasions.run_events(ended, [failed], 100.0)
    (delivery,) = attempts.note(Deliveries(), [failed], events, 100.0).deliveries
    command = compose(delivery, failed).command
    assert command == "tfcluster rerun digits-2 --env TF_USE_LEGACY_KERAS=1"


def test_a_rule_shows_no_secret() -> None:
    """The text and the public form of a rule contain neither its URL nor its secret."""
    hook = Webhook(url="https://hooks.slack.com/services/T0/B0/abcdefgh", secret="s3cr3t-word")
    found = rule(Occasion.FAILED, webhook=hook)
    for text in (repr(found), str(found.public), repr(hook)):
        assert "abcdefgh" not in text
        assert "s3cr3t" not in text


def test_due_times_without_a_run_are_told() -> None:
    """A due time that was missed, refused or given up causes one message. A due time that finds no
    room causes one message however often it is tried, and a second message if it is given up.
    """
    state, refused = OccurrenceState, Message("ScheduleNotLaunched", {"why": "no room"})

    def titles(*dues: Occurrence, since: float = 10.0) -> list[str]:
        events = occasions.due_time_events("nightly", "s", "nightly", "Asia/Shanghai", dues)
        wanted = rule(Occasion.NOT_LAUNCHED, created_at=since)
        kept = attempts.note(Deliveries(), [wanted], events, 9000.0)
        assert attempts.note(kept, [wanted], events, 9000.0) == kept
        return [each.title for each in kept.deliveries]

    due = Occurrence(due=3600.0, changed_at=3700.0)
    told = ["nightly was not launched at its due time 1970-01-01 09:00 (Asia/Shanghai)"]
    assert titles(replace(due, state=state.MISSED, reason=Message("ScheduleMissed"))) == told
    # the due time has a run, because a run's name is chosen before its launch is refused
    assert titles(replace(due, state=state.FAILED, run="nightly-1", reason=refused)) == told
    assert titles(replace(due, state=state.MISSED), since=3800.0) == []
    waits = replace(due, state=state.WAITING, refusals=1, reason=refused)
    room = ["nightly has waited for room since its due time 1970-01-01 09:00 (Asia/Shanghai)"]
    assert titles(waits) == titles(replace(waits, refusals=7, changed_at=8000.0)) == room
    first, *_none = occasions.due_time_events("nightly", "s", "nightly", "UTC", [waits])
    again, *_none = occasions.due_time_events(
        "nightly", "s", "nightly", "UTC", [replace(waits, refusals=2, changed_at=8000.0)]
    )
    assert first.key == again.key
    late = Message("ScheduleDeadline", {"time": 60.0})
    assert titles(replace(waits, state=state.MISSED, reason=late)) == told
    others = [
        replace(due, state=state.WAITING),
        replace(due, state=state.SKIPPED, reason=Message("ScheduleSuperseded")),
        replace(due, state=state.SUCCEEDED, run="nightly-1"),
        replace(due, state=state.FAILED, run="nightly-1", reason=Message("ScheduleRunFailed")),
    ]
    assert titles(*others) == []


@pytest.mark.parametrize("page", ["notifications.md", "notifications.zh-CN.md"])
def test_the_how_to_lists_every_occasion(page: str) -> None:
    """The table of `--on` has each occasion, in the order of the command's help."""
    text = (ROOT / "docs" / "how-to" / page).read_text("utf-8")
    table = text.partition("| `--on` |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert listed == [each.value for each in Occasion], f"write its row into docs/how-to/{page}"
