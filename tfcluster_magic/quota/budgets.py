"""Budgets of CPU- and GPU-hours within a window of days, and the remaining hours. Pure.

The window is the last `days` days (UTC). It moves by whole days. So it is known on which day used
hours leave the window and no longer count. A user's client and the control plane both compute the
remaining hours with this module, so they agree. The hours are counted by `ledger`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Annotated

from msgspec import Meta

from ..errors import InvalidRequest, Problem
from ..i18n import _, mark
from ..spec import Message, Model, Spec
from .preflight import cpu_of, gpu_of, total_request

MOST_DAYS = 90
WARN_FROM = 0.8
"""A user who has used this fraction of a budget, or more, is warned."""

BudgetHours = Annotated[
    float, Meta(ge=0, le=1e9, description=mark("a number of hours, from 0 to 1000000000"))
]
BudgetDays = Annotated[
    int, Meta(ge=1, le=MOST_DAYS, description=mark("a whole number of days from 1 to 90"))
]
DailyHours = Mapping[str, tuple[float, float]]
"""CPU- and GPU-hours by day (`2026-11-22`, UTC)."""


class Budget(Model, frozen=True):
    """The hours that all runs of a user may use within `days` days; None means no limit."""

    cpu_hours: BudgetHours | None = None
    """CPU-hours that all tasks of a user may reserve within `days`."""
    gpu_hours: BudgetHours | None = None
    """GPU-hours that all tasks of a user may reserve within `days`."""
    days: BudgetDays = 7
    """The length of the window in days."""


def effective_budget(said: Budget) -> Budget | None:
    """Return the budget `said`, or None if it sets no limit, neither on CPU- nor on GPU-hours."""
    return None if said.cpu_hours is None and said.gpu_hours is None else said


class _BudgetUse:
    """The limit of one kind of hours (CPU or GPU), and the hours used in the budget's window."""

    def __init__(
        self, place: int, most: float, budget: Budget, spent: DailyHours, now: float
    ) -> None:
        self.unit, self.field = (("CPU·h", "cpuHours"), ("GPU·h", "gpuHours"))[place]
        self.most, self.days = most, budget.days
        first, last = window(budget.days, now)
        self.spent = {
            day: hours[place] for day, hours in sorted(spent.items()) if first <= day <= last
        }
        self.used = sum(self.spent.values())

    @property
    def left(self) -> float:
        return max(0.0, self.most - self.used)

    def back(self) -> tuple[str, float] | None:
        """Return the first day on which a user who is over the limit has hours left again, and how
        many of the used hours leave the window until that day. Return None if there is no such day.
        """
        freed = 0.0
        for day, hours in self.spent.items():
            freed += hours
            if hours and self.used - freed < self.most:
                return (date.fromisoformat(day) + timedelta(days=self.days)).isoformat(), freed
        return None

    def words(self) -> dict[str, str]:
        return {"used": format_hours(self.used), "most": format_hours(self.most), "unit": self.unit}


def window(days: int, now: float) -> tuple[str, str]:
    """Return the first and last of the `days` days that end with today."""
    today = datetime.fromtimestamp(now, timezone.utc).date()
    return (today - timedelta(days=days - 1)).isoformat(), today.isoformat()


def requested_window(first: str, last: str, days: int, now: float) -> tuple[str, str]:
    """Return the window from `first` to `last`. An empty `first` or `last` is replaced by the first
    or last of the `days` days that end with today.

    Raises:
        InvalidRequest: a day is invalid, or the last day is before the first.
    """
    usual = window(days, now)
    wrong = [
        Problem(name, said, _("a day such as {day} (UTC)").format(day=usual[1]))
        for name, said in (("from", first), ("to", last))
        if said and not _is_day(said)
    ]
    start, end = first or min(usual[0], last or usual[0]), last or usual[1]
    if not wrong and start > end:
        wrong = [Problem("from", start, _("a day that is not after {day}").format(day=end))]
    if wrong:
        raise InvalidRequest(wrong, _("the request is invalid"))
    return start, end


def _is_day(text: str) -> bool:
    try:
        return len(text) == 10 and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def format_hours(hours: float) -> str:
    """Return hours as text: `3.2`, `0.05`."""
    return f"{hours:.1f}".removesuffix(".0") if hours >= 1 or not hours else f"{hours:.2g}"


def remaining_text(budget: Budget | None, spent: DailyHours, now: float) -> str:
    """Return the remaining hours as text: `3.2 of 20 CPU·h left this week`; empty without a
    budget.
    """
    text = _("{left} of {most} {unit} left {when}")
    found = [
        text.format(left=format_hours(part.left), when=_window(part.days), **part.words())
        for part in _budget_uses(budget, spent, now)
    ]
    return ", ".join(found)


def used_hours(
    budget: Budget | None, spent: DailyHours, now: float
) -> dict[str, tuple[float, float]]:
    """Return, by unit, the used hours and the allowed hours; a unit with 0 allowed hours is left
    out.
    """
    uses = _budget_uses(budget, spent, now)
    return {part.unit: (part.used, part.most) for part in uses if part.most}


def warnings(budget: Budget | None, spent: DailyHours, now: float) -> list[str]:
    """Return warnings about a budget that is nearly used up."""
    found = []
    for part in _budget_uses(budget, spent, now):
        if part.most and part.used >= WARN_FROM * part.most:
            text = _(
                "{used} of {most} {unit} {when} are used: with none left, nothing new starts{back}"
            )
            back = "".join(f"; {each}" for each in _comes_back(part))
            found.append(text.format(when=_window(part.days), back=back, **part.words()))
    return found


def problems(
    spec: Spec, cpu: float, budget: Budget | None, spent: DailyHours, now: float
) -> list[Problem]:
    """Return a problem for each kind of hours (CPU, GPU) that a launch needs and of which the
    budget has none left. `cpu` is the number of cores of all tasks of the launch.
    """
    wants = {"cpuHours": cpu, "gpuHours": total_request(spec, gpu_of)}
    units = {"cpuHours": "Cores", "gpuHours": "Gpus"}
    found = []
    for part in _budget_uses(budget, spent, now):
        want = wants[part.field]
        if not want or part.left > 0:
            continue
        why = Message("BudgetNone", {"unit": part.unit})
        if part.most:
            why = Message("BudgetUsed", part.words() | {"when": _window(part.days)})
        parts = [why, *_comes_back(part), Message("AskHubAdministrator")]
        value = Message(units[part.field], {"count": want})
        found.append(Problem(f"budget.{part.field}", value, Message("Clauses", {"parts": parts})))
    return found


def total_cores(spec: Spec, usual: float) -> float:
    """Return the sum of the CPU cores of all tasks; a task without a request counts as `usual`
    cores.
    """
    return sum(
        count * (cpu_of(spec.replicas.of(t).resources) or usual)
        for t, count in spec.replicas.counts.items()
    )


def _budget_uses(budget: Budget | None, spent: DailyHours, now: float) -> Iterator[_BudgetUse]:
    if budget is not None:
        for place, most in enumerate((budget.cpu_hours, budget.gpu_hours)):
            if most is not None:
                yield _BudgetUse(place, most, budget, spent, now)


def _comes_back(part: _BudgetUse) -> Iterator[Message]:
    back = part.back() if part.most else None
    if back is not None:
        values = {"amount": format_hours(back[1]), "unit": part.unit, "day": back[0]}
        yield Message("BudgetComesBack", values)


def _window(days: int) -> Message:
    return Message("ThisWeek") if days == 7 else Message("InDays", {"count": days})
