"""Detection of events in records, and the schedule of attempts to report them. Pure.

    found = run_events(cluster, rules, now)
    kept = note(kept, rules, found, now)             # one delivery for each new event and rule
    kept = begin(kept, key, now)                     # stored before the message is sent
    kept = sent(kept, key, now) or failed(kept, key, why, now)

The key of an event follows from the record alone, so that an event that is found again, after a
crash too, is not reported again. A rule applies to events after its creation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..i18n import _, language, mark
from ..lifecycle.messages import sentences
from ..quota.budgets import WARN_FROM, format_hours
from ..schedules import Pause, Schedule
from ..spec import Cause, Message, Phase, Reason, TFCluster, to_json
from . import (
    MOST_BYTES_KEPT,
    MOST_KEPT,
    PROBLEM_LENGTH,
    SENTENCE_LENGTH,
    TEST_EVENT,
    TITLE_LENGTH,
    Deliveries,
    Delivery,
    DeliveryKey,
    DeliveryState,
    NotificationRule,
    Occasion,
    TestRequest,
)
from .wording import printed_lines

RETRY_FOR = 24 * 3600.0
"""Seconds after which a message that nobody accepts is given up."""
DELAYS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds from each failed attempt to the next one; the last number repeats."""

TEST_FOR = 600.0
"""Seconds for which a request for a test is valid."""

Words = Sequence[Message | str]


@dataclass(frozen=True)
class NotableEvent:
    """An event that rules may report.

    `key` identifies it among the events of the run `uid`, or among all that belong to no run.
    `title` and `words` are translated when a delivery is made. `waits` is the time for which a run
    was queued; the event concerns rules with this time. `locked` says whether a pause is locked.
    `lines` are what `task` printed last.
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


def recorded_lines(cluster: TFCluster) -> Printed:
    """Return the last lines in the record of a failed run, of the task that failed first."""
    status = cluster.status
    failures = sorted(status.failures, key=lambda failure: failure.task != status.culprit)
    return (failures[0].task, failures[0].exit.last_lines) if failures else ("", ())


def next_queued_event(
    cluster: TFCluster, rules: Iterable[NotificationRule], now: float
) -> float | None:
    """Return when a queued run will next have waited for a rule's time; None if it will not."""
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
    """Return the pause of a schedule as an event, unless its owner asked for it."""
    pause = schedule.status.paused
    if pause is None:
        return []
    return pause_events(schedule.name, schedule.uid, schedule.launch.cluster, pause)


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
    """Return an event for each nearly used budget, and `kept` with the time since when it is nearly
    used.

    Args:
        kept: the deliveries so far.
        used: used and allowed hours by unit (`CPU·h`), for each limited kind of hours.
        now: the time.
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


# -- deliveries ------------------------------------------------------------------------------------


def concerns(rule: NotificationRule, event: NotableEvent) -> bool:
    """Return whether a rule reports an event."""
    return (
        not event.occasions.isdisjoint(rule.on)
        and event.at >= rule.created_at
        and (not rule.clusters or not event.cluster or event.cluster in rule.clusters)
        and (event.waits is None or event.waits == rule.queued_longer_than)
    )


def note(
    kept: Deliveries,
    rules: Iterable[NotificationRule],
    events: Iterable[NotableEvent],
    now: float,
    printed: Callable[[NotableEvent], Printed] = lambda event: (event.task, event.lines),
) -> Deliveries:
    """Return `kept` with a delivery for each event and rule that has none yet.

    `printed` returns the last lines of an event; it is called for new events only.
    """
    known, found = {each.key for each in kept.deliveries}, list(events)
    fresh: list[Delivery] = []
    for event in found:
        about_it = [
            rule
            for rule in rules
            if concerns(rule, event)
            and (rule.uid, event.uid, event.key) not in known
            and event.at > kept.forgotten_until
        ]
        if about_it:
            task, lines = printed(event)
            fresh += [_delivery(rule, event, now, task, lines) for rule in about_it]
    if not fresh:
        return kept
    return bounded(replace(kept, deliveries=(*kept.deliveries, *fresh)), now)


def make_test(rule: NotificationRule, request: TestRequest, now: float) -> Delivery:
    """Return the delivery of a test."""
    with language(rule.language):
        title = _("a test of the rule {name}").format(name=rule.name)
        sentence = _("Messages of TFCluster arrive here.")
    return Delivery(
        rule=rule.name,
        rule_uid=rule.uid,
        event=f"{TEST_EVENT}{request.id}",
        about="",
        occasion=next(iter(rule.on), Occasion.FAILED),
        title=title,
        sentence=sentence,
        at=now,
        noted_at=now,
        next_at=now,
    )


def note_test(
    kept: Deliveries,
    rules: Iterable[NotificationRule],
    request: TestRequest | None,
    now: float,
) -> Deliveries:
    """Return `kept` with the delivery of a requested test; one at another time is given up."""
    rule = next((each for each in rules if request and each.uid == request.rule), None)
    if rule is None or request is None or request.at <= kept.forgotten_until:
        return kept
    test = make_test(rule, request, now)
    if any(each.key == test.key for each in kept.deliveries):
        return kept
    apart = abs(now - request.at)
    if apart > TEST_FOR:
        with language(rule.language):
            why = _(
                "the request and the notifier's clock are {seconds:.0f} seconds apart: the "
                "notifier was stopped, or a clock is wrong. Check the clocks, then run "
                "`tfcluster notify test {name}`"
            ).format(seconds=min(apart, 1e12), name=rule.name)
        test = replace(_settled(test, DeliveryState.GIVEN_UP, now), problem=why)
    return bounded(replace(kept, deliveries=(*kept.deliveries, test)), now)


def _delivery(
    rule: NotificationRule, event: NotableEvent, now: float, task: str, lines: Sequence[str]
) -> Delivery:
    with language(rule.language):
        values = {name: _plain(value) for name, value in event.values.items()}
        title = _(event.title).format(**values)
        sentence = sentences([_rendered(each) for each in event.words if each])
    occasion = next(each for each in Occasion if each in event.occasions and each in rule.on)
    shown = printed_lines(lines) if rule.output else ()
    return Delivery(
        rule=rule.name,
        rule_uid=rule.uid,
        event=event.key,
        uid=event.uid,
        about=event.about,
        occasion=occasion,
        title=title[:TITLE_LENGTH],
        sentence=sentence[:SENTENCE_LENGTH],
        locked=event.locked,
        task=task if shown else "",
        lines=shown,
        at=event.at,
        noted_at=now,
        next_at=now,
    )


def _plain(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def _rendered(words: Message | str) -> str:
    try:
        return str(words)
    except (LookupError, TypeError, ValueError, OSError):  # written by a newer version, or damaged
        return words.code if isinstance(words, Message) else ""


def bounded(kept: Deliveries, now: float) -> Deliveries:
    """Return `kept` within `MOST_KEPT` and `MOST_BYTES_KEPT`.

    The oldest settled deliveries are dropped first; `forgotten_until` keeps their events from being
    reported again. If too many are pending, the oldest of these are dropped, too. A time ahead of
    the clock counts as now, so that it does not hold back events until then.
    """
    found = list(kept.deliveries)
    sizes = {each.key: len(to_json(each)) for each in found}
    until, count, total = kept.forgotten_until, len(found), sum(sizes.values())
    order = sorted(found, key=lambda e: (e.state is DeliveryState.PENDING, e.at))
    gone: set[DeliveryKey] = set()
    for each in order:
        if count <= MOST_KEPT and total <= MOST_BYTES_KEPT:
            break
        count, total = count - 1, total - sizes[each.key]
        until = max(until, min(each.at, now))
        gone.add(each.key)
    if not gone:
        return kept
    rest = tuple(each for each in found if each.key not in gone)
    return replace(kept, deliveries=rest, forgotten_until=until)


def pending(kept: Deliveries) -> list[Delivery]:
    """Return the deliveries that are not settled, in the order of their events."""
    found = [each for each in kept.deliveries if each.state is DeliveryState.PENDING]
    return sorted(found, key=lambda each: (each.at, each.event))


def begin(kept: Deliveries, key: DeliveryKey, now: float) -> Deliveries:
    """Return `kept` with one more attempt, and the time of the next one in case this one fails."""

    def attempt(each: Delivery) -> Delivery:
        if each.state is not DeliveryState.PENDING:
            return each
        delay = DELAYS[min(each.attempts, len(DELAYS) - 1)]
        return replace(each, attempts=each.attempts + 1, next_at=now + delay)

    return _changed(kept, key, attempt)


def sent(kept: Deliveries, key: DeliveryKey, now: float) -> Deliveries:
    """Return `kept` with a message that its receiver accepted."""
    return _changed(
        kept, key, lambda each: replace(_settled(each, DeliveryState.SENT, now), problem="")
    )


def failed(kept: Deliveries, key: DeliveryKey, why: str, now: float) -> Deliveries:
    """Return `kept` with a failed attempt. After `RETRY_FOR` the message is given up; a test is
    given up at once.
    """

    def change(each: Delivery) -> Delivery:
        each = replace(each, problem=why[:PROBLEM_LENGTH])
        if each.next_at - each.noted_at <= RETRY_FOR and not each.is_test:
            return each
        return _settled(each, DeliveryState.GIVEN_UP, now)

    return _changed(kept, key, change)


def drop(kept: Deliveries, uids: Iterable[str], now: float) -> Deliveries:
    """Return `kept` with the pending messages of removed rules given up; `uids` are the rules that
    exist.
    """
    known = set(uids)
    for each in pending(kept):
        if each.rule_uid not in known:
            kept = _changed(
                kept, each.key, lambda gone: _settled(gone, DeliveryState.GIVEN_UP, now)
            )
    return kept


def _settled(delivery: Delivery, state: DeliveryState, now: float) -> Delivery:
    """Return a delivery that is over, without its printed lines."""
    return replace(delivery, state=state, settled_at=now, task="", lines=())


def _changed(
    kept: Deliveries, key: DeliveryKey, change: Callable[[Delivery], Delivery]
) -> Deliveries:
    return replace(
        kept,
        deliveries=tuple(change(each) if each.key == key else each for each in kept.deliveries),
    )
