"""Deliveries of events by rules: which ones exist, and when each delivery is tried again. Pure.

    found = run_events(cluster, rules, now)
    kept = note(kept, rules, found, now)             # one delivery for each new event and rule
    kept = begin(kept, key, now)                     # stored before the message is sent
    kept = sent(kept, key, now) or failed(kept, key, why, now)

A rule reports only events after its creation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ..i18n import _, language
from ..lifecycle.messages import sentences
from ..spec import Message, to_json
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
from .occasions import NotableEvent, Printed
from .wording import printed_lines

RETRY_FOR = 24 * 3600.0
"""Seconds after which an undelivered message is given up."""
DELAYS = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds from each failed attempt to the next one; the last number repeats."""

TEST_FOR = 600.0
"""Seconds for which a user's request for a test message is valid."""


def concerns(rule: NotificationRule, event: NotableEvent) -> bool:
    """Return whether a rule has to report an event. The rule must be older than the event, and its
    occasions and run names must include those of the event.
    """
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

    `printed` returns the task of an event and the last lines that the task printed; it is called
    for new events only.
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
    """Return the delivery of a test message, which a user requested with `notify test`."""
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
    """Return `kept` with the delivery of a requested test. If the time of the request is more than
    `TEST_FOR` from `now`, the delivery is given up.
    """
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
        options=event.options,
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
    """Return `kept` with at most `MOST_KEPT` deliveries and `MOST_BYTES_KEPT` bytes.

    The oldest settled deliveries are dropped first; `forgotten_until` keeps their events from being
    reported again. If this is not enough, the oldest pending deliveries are dropped, too. An event
    whose time is in the future counts as an event of `now`; otherwise no event before that time
    would be reported.
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
    """Return `kept` with one more attempt counted for the delivery `key`. The delivery also gets
    the time at which it is tried again if this attempt fails.
    """

    def attempt(each: Delivery) -> Delivery:
        if each.state is not DeliveryState.PENDING:
            return each
        delay = DELAYS[min(each.attempts, len(DELAYS) - 1)]
        return replace(each, attempts=each.attempts + 1, next_at=now + delay)

    return _changed(kept, key, attempt)


def sent(kept: Deliveries, key: DeliveryKey, now: float) -> Deliveries:
    """Return `kept` with the delivery `key` marked as accepted by its receiver."""
    return _changed(
        kept, key, lambda each: replace(_settled(each, DeliveryState.SENT, now), problem="")
    )


def failed(kept: Deliveries, key: DeliveryKey, why: str, now: float) -> Deliveries:
    """Return `kept` after an attempt of the delivery `key` that failed for the reason `why`. A
    message is given up after `RETRY_FOR`, a test after its first attempt.
    """

    def change(each: Delivery) -> Delivery:
        each = replace(each, problem=why[:PROBLEM_LENGTH])
        if each.next_at - each.noted_at <= RETRY_FOR and not each.is_test:
            return each
        return _settled(each, DeliveryState.GIVEN_UP, now)

    return _changed(kept, key, change)


def drop(kept: Deliveries, uids: Iterable[str], now: float) -> Deliveries:
    """Return `kept` after giving up the pending messages of removed rules. `uids` are the uids of
    the rules that exist.
    """
    known = set(uids)
    for each in pending(kept):
        if each.rule_uid not in known:
            kept = _changed(
                kept, each.key, lambda gone: _settled(gone, DeliveryState.GIVEN_UP, now)
            )
    return kept


def _settled(delivery: Delivery, state: DeliveryState, now: float) -> Delivery:
    """Return a delivery in its final state, without its printed lines."""
    return replace(delivery, state=state, settled_at=now, task="", lines=())


def _changed(
    kept: Deliveries, key: DeliveryKey, change: Callable[[Delivery], Delivery]
) -> Deliveries:
    return replace(
        kept,
        deliveries=tuple(change(each) if each.key == key else each for each in kept.deliveries),
    )
