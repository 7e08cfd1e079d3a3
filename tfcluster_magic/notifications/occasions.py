"""What is to be said: events that follow from records, and when each message is tried. Pure.

    found = run_events(cluster, rules, now)          # what the record says
    kept = note(kept, rules, found, now)             # each event once for each rule
    kept = begin(kept, key, now)                     # written before it is sent
    kept = sent(kept, key, now) or failed(kept, key, why, now)

An event has a key that follows from the record alone. So it is found again after a crash, and is
noted once. Only what happened after a rule was made counts for the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..i18n import _, language, mark
from ..lifecycle.messages import sentences
from ..quota.budgets import WARN_FROM, format_hours
from ..schedules import Schedule
from ..spec import Cause, Message, Phase, Reason, TFCluster
from . import (
    MOST_KEPT,
    PROBLEM_LENGTH,
    SENTENCE_LENGTH,
    TITLE_LENGTH,
    Deliveries,
    Delivery,
    DeliveryState,
    NotificationRule,
    Occasion,
)

RETRY_FOR = 24 * 3600.0
"""Seconds after which a message is given up."""
DELAYS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds to the next attempt after each failed one; the last one repeats."""

Words = Sequence[Message | str]


@dataclass(frozen=True)
class NotableEvent:
    """Something that users may be told of.

    `key` identifies it among the events about `about`. `title` and `words` are translated when they
    are read. `waits` is the time for which a run had been queued, which each rule compares.
    """

    key: str
    about: str
    cluster: str
    occasions: frozenset[Occasion]
    at: float
    title: str
    values: Mapping[str, object] = field(default_factory=dict)
    words: Words = ()
    waits: float | None = None


def run_events(
    cluster: TFCluster, rules: Iterable[NotificationRule], now: float
) -> list[NotableEvent]:
    """Return everything notable that the record of a run says."""
    status, name = cluster.status, cluster.metadata.name
    found: list[NotableEvent] = []

    def add(
        key: str, at: float, occasions: Iterable[Occasion], title: str, words: Words, **more: float
    ) -> None:
        event = NotableEvent(
            key=key,
            about=name,
            cluster=cluster.metadata.cluster,
            occasions=frozenset(occasions),
            at=at,
            title=title,
            values={"name": name},
            words=words,
            **more,
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
    """Return the pause of a schedule, unless its owner asked for it."""
    pause = schedule.status.paused
    if pause is None or not (pause.by or isinstance(pause.reason, Message)):
        return []
    words: list[Message | str] = [pause.reason] if pause.reason else []
    event = NotableEvent(
        key=f"schedule-{schedule.uid}-{pause.at:.0f}",
        about=schedule.name,
        cluster=schedule.launch.cluster,
        occasions=frozenset([Occasion.SCHEDULE_PAUSED]),
        at=pause.at,
        title=mark("the schedule {name} was paused by {by}")
        if pause.by
        else mark("the schedule {name} paused itself"),
        values={"name": schedule.name, "by": pause.by},
        words=words,
    )
    return [event]


def budget_events(
    kept: Deliveries, used: Mapping[str, tuple[float, float]], now: float
) -> tuple[Deliveries, list[NotableEvent]]:
    """Return the budgets of which most are used since a moment ago, and `kept` with those that are.

    Args:
        kept: what is known.
        used: the used hours and all hours by unit (`CPU·h`), for each budget that there is.
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
    """Return whether a rule is about an event."""
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
) -> Deliveries:
    """Return `kept` with a delivery for each event and rule that it lacks."""
    known, found = {each.key for each in kept.deliveries}, list(events)
    fresh = [
        _delivery(rule, event, now)
        for rule in rules
        for event in found
        if concerns(rule, event)
        and (rule.uid, event.key) not in known
        and event.at > kept.forgotten_until
    ]
    return _bounded(replace(kept, deliveries=(*kept.deliveries, *fresh))) if fresh else kept


def _delivery(rule: NotificationRule, event: NotableEvent, now: float) -> Delivery:
    with language(rule.language):
        values = {name: _plain(value) for name, value in event.values.items()}
        title = _(event.title).format(**values)
        sentence = sentences([_rendered(each) for each in event.words if each])
    occasion = next(each for each in Occasion if each in event.occasions and each in rule.on)
    return Delivery(
        rule=rule.name,
        rule_uid=rule.uid,
        event=event.key,
        about=event.about,
        occasion=occasion,
        title=title[:TITLE_LENGTH],
        sentence=sentence[:SENTENCE_LENGTH],
        at=event.at,
        noted_at=now,
        next_at=now,
    )


def _plain(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def _rendered(words: Message | str) -> str:
    try:
        return str(words)
    except (LookupError, TypeError, ValueError, OSError):  # of a newer version, or damaged
        return words.code if isinstance(words, Message) else ""


def _bounded(kept: Deliveries) -> Deliveries:
    """Forget the oldest settled deliveries above `MOST_KEPT`, and note until when."""
    above = len(kept.deliveries) - MOST_KEPT
    if above <= 0:
        return kept
    settled = [each for each in kept.deliveries if each.state is not DeliveryState.PENDING]
    settled.sort(key=lambda each: each.at)
    gone = settled[:above]
    if not gone:  # none may be lost: a receiver that is away gives them up after a day
        return kept
    keys = {each.key for each in gone}
    rest = tuple(each for each in kept.deliveries if each.key not in keys)
    until = max(kept.forgotten_until, *(each.at for each in gone))
    return replace(kept, deliveries=rest, forgotten_until=until)


def pending(kept: Deliveries) -> list[Delivery]:
    """Return what is not settled, in the order of events."""
    found = [each for each in kept.deliveries if each.state is DeliveryState.PENDING]
    return sorted(found, key=lambda each: (each.at, each.event))


def begin(kept: Deliveries, key: tuple[str, str], now: float) -> Deliveries:
    """Return `kept` with one more attempt: the next one is due after a while, if this process dies
    now.
    """

    def attempt(each: Delivery) -> Delivery:
        if each.state is not DeliveryState.PENDING:
            return each
        delay = DELAYS[min(each.attempts, len(DELAYS) - 1)]
        return replace(each, attempts=each.attempts + 1, next_at=now + delay)

    return _changed(kept, key, attempt)


def sent(kept: Deliveries, key: tuple[str, str], now: float) -> Deliveries:
    """Return `kept` with a message that was taken by its receiver."""
    return _changed(
        kept,
        key,
        lambda each: replace(each, state=DeliveryState.SENT, settled_at=now, problem=""),
    )


def failed(kept: Deliveries, key: tuple[str, str], why: str, now: float) -> Deliveries:
    """Return `kept` with a failed attempt; after `RETRY_FOR` the message is given up."""

    def change(each: Delivery) -> Delivery:
        each = replace(each, problem=why[:PROBLEM_LENGTH])
        if each.next_at - each.noted_at <= RETRY_FOR:
            return each
        return replace(each, state=DeliveryState.GIVEN_UP, settled_at=now)

    return _changed(kept, key, change)


def drop(kept: Deliveries, uids: Iterable[str], now: float) -> Deliveries:
    """Return `kept` without waiting for rules that are gone; `uids` are those that there are."""
    known = set(uids)
    gone = [each.key for each in pending(kept) if each.rule_uid not in known]
    for key in gone:
        kept = _changed(
            kept, key, lambda each: replace(each, state=DeliveryState.GIVEN_UP, settled_at=now)
        )
    return kept


def _changed(
    kept: Deliveries, key: tuple[str, str], change: Callable[[Delivery], Delivery]
) -> Deliveries:
    return replace(
        kept,
        deliveries=tuple(change(each) if each.key == key else each for each in kept.deliveries),
    )
