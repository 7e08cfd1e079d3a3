"""Budgets of hours: the remaining hours, the day on which used hours return, and messages at a
launch.
"""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tfcluster_magic.quota import budgets
from tfcluster_magic.quota.budgets import Budget
from tfcluster_magic.spec import Replicas, ReplicaSet, Resources, Spec

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc).timestamp()
WEEK = Budget(cpu_hours=20)


def spec(gpu: int = 0, cpu: float | None = 2) -> Spec:
    return Spec(
        replicas=ReplicaSet(worker=Replicas(count=2, resources=Resources(cpu=cpu, gpu=gpu)))
    )


def refused(most: Budget, spent: budgets.DailyHours, gpu: int = 0) -> list[str]:
    return [str(each) for each in budgets.problems(spec(gpu), 4.0, most, spent, NOW)]


def test_what_is_left_is_told_before_a_launch() -> None:
    """The remaining hours of both kinds are reported in one sentence."""
    spent = {"2026-11-20": (10.0, 1.0), "2026-11-22": (6.8, 0.0)}
    assert budgets.remaining_text(WEEK, spent, NOW) == "3.2 of 20 CPU·h left this week"
    both = Budget(cpu_hours=20, gpu_hours=4, days=30)
    assert budgets.remaining_text(both, spent, NOW) == (
        "3.2 of 20 CPU·h left in 30 days, 3 of 4 GPU·h left in 30 days"
    )
    assert (
        budgets.remaining_text(Budget(cpu_hours=20, days=1), spent, NOW)
        == "13.2 of 20 CPU·h left today"
    )
    assert budgets.remaining_text(None, spent, NOW) == ""


def test_a_window_rolls_by_day() -> None:
    """The window of a budget moves by whole days; a window of 30 days does not include the day 30
    days ago.
    """
    assert budgets.window(7, NOW) == ("2026-11-16", "2026-11-22")
    spent = {"2026-11-15": (20.0, 0.0)}
    assert budgets.remaining_text(WEEK, spent, NOW) == "20 of 20 CPU·h left this week"
    assert not refused(WEEK, spent)
    assert refused(WEEK, {"2026-11-16": (20.0, 0.0)})


def test_most_of_a_budget_is_a_warning() -> None:
    """If at least 80 % of a budget are used, there is a warning with the day on which used hours
    return.
    """
    assert budgets.warnings(WEEK, {"2026-11-22": (15.9, 0.0)}, NOW) == []
    warned = budgets.warnings(WEEK, {"2026-11-22": (16.0, 0.0)}, NOW)
    used = "16 of 20 CPU·h this week are used: with none left, nothing new starts"
    assert warned == [f"{used}; 16 CPU·h come back on 2026-11-29 (0:00 UTC)"]


def test_a_refusal_says_what_was_asked_used_and_allowed_and_when_hours_come_back() -> None:
    """A refusal has the requested, used and allowed hours, says that the administrator can change
    the budget, and names the day on which enough hours return. This may be later than the first day
    on which hours return.
    """
    spent = {"2026-11-17": (2.5, 0.0), "2026-11-18": (4.0, 0.0), "2026-11-21": (18.5, 0.0)}
    (told,) = refused(WEEK, spent)
    assert "4 cores" in told
    assert "25 of 20 CPU·h this week are used" in told
    assert "6.5 CPU·h come back on 2026-11-25" in told
    assert "administrator" in told


def test_who_has_no_gpu_hours_may_launch_without_gpus() -> None:
    """A budget of zero CPU- or GPU-hours limits only requests of that kind."""
    none = Budget(cpu_hours=20, gpu_hours=0)
    assert refused(none, {}) == []
    (told,) = refused(none, {}, gpu=1)
    assert "you have no GPU·h at all" in told
    assert "2 GPUs" in told
    assert budgets.warnings(none, {}, NOW) == []


def test_without_a_budget_nothing_is_refused() -> None:
    """Without a budget, nothing is refused, however much was used."""
    assert budgets.problems(spec(), 4.0, None, {"2026-11-22": (1e6, 1e6)}, NOW) == []
    assert budgets.warnings(Budget(), {"2026-11-22": (1e6, 1e6)}, NOW) == []


@pytest.mark.parametrize(("hours", "text"), [(0, "0"), (0.05, "0.05"), (3.21, "3.2"), (20, "20")])
def test_hours_are_short(hours: float, text: str) -> None:
    """Hours are shown as rounded numbers."""
    assert budgets.format_hours(hours) == text


def test_a_task_without_a_wish_counts_as_usual() -> None:
    """A task without a CPU request counts with the default of its backend."""
    assert budgets.total_cores(spec(cpu=None), 1.0) == 2.0
    assert budgets.total_cores(spec(cpu=1.5), 1.0) == 3.0
