"""Rules of notifications and the states of messages, as text. No secret is shown."""

from __future__ import annotations

from collections.abc import Sequence

from ..i18n import _
from ..notifications import Delivery, DeliveryState, Occasion, PublicRule
from ..spec.message_table import format_duration
from .text import PLAIN, Paint, clock, one_line, table


def receiver(rule: PublicRule) -> str:
    """Return the receiver of a rule's messages as text."""
    if rule.format is None:
        return rule.receiver
    return f"{rule.receiver} ({rule.format.value})"


def _occasions(rule: PublicRule) -> str:
    words = []
    for each in rule.on:
        if each is Occasion.QUEUED and rule.queued_longer_than is not None:
            words.append(f"{each.value} {format_duration(rule.queued_longer_than)}")
        else:
            words.append(each.value)
    return ", ".join(words)


def rules(found: Sequence[PublicRule], paint: Paint = PLAIN, most: int | None = None) -> str:
    """Return a table of rules."""
    rows = [
        (each.name, _occasions(each), ", ".join(each.clusters) or _("all"), receiver(each))
        for each in found
    ]
    return table((_("NAME"), _("ON"), _("RUNS"), _("TO")), rows, paint, most)


def history(
    found: Sequence[Delivery], now: float, paint: Paint = PLAIN, most: int | None = None
) -> str:
    """Return a table of messages."""
    states = {
        DeliveryState.PENDING: _("waiting"),
        DeliveryState.SENT: _("sent"),
        DeliveryState.GIVEN_UP: _("given up"),
    }
    rows = [
        (
            clock(each.at, now),
            each.rule,
            states[each.state],
            str(each.attempts),
            one_line(f"{each.title}: {each.problem}" if each.problem else each.title),
        )
        for each in found
    ]
    head = (_("AT"), _("RULE"), _("STATE"), _("TRIES"), _("MESSAGE"))
    return table(head, rows, paint, most)
