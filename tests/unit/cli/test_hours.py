"""The command `hours`, and budgets as `launch` and `status` show them, with real runs on this
machine.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Run, here, run

from tfcluster_magic.output.documents import used_hours
from tfcluster_magic.quota.ledger import HoursRow

__all__ = ["here", "run"]  # fixtures used by the tests below


@pytest.fixture
def allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that sets the hub's limits."""

    def say(**budget: float) -> None:
        file = tmp_path / "limits.json"
        file.write_text(json.dumps({"group": "ml101", "budget": budget}))
        monkeypatch.setenv("TFCLUSTER_LIMITS", str(file))

    return say


def test_hours_are_told_by_cluster_also_of_deleted_runs(
    here: Path, run: Run, allow: Callable[..., None]
) -> None:
    """Allocated and used hours are shown as a table, as JSON and as CSV, also for deleted runs."""
    assert "Nothing was reserved" in run("hours").out
    allow(cpuHours=20)
    for name in ("digits", "mnist"):
        done = run("launch", "--name", name, "--worker-cpu", "2", "--wait", "hello.py")
        assert done.code == 0, done.err
    before = json.loads(run("hours", "-o", "json").out)
    assert {row["key"] for row in before["items"]} == {"digits", "mnist"}
    assert run("delete", "digits", "-y").code == 0
    after = json.loads(run("hours", "-o", "json").out)
    assert after["items"] == before["items"]
    assert after["budget"] == {"cpuHours": 20}
    assert all(row["used"] > 0 for row in after["items"])
    shown = run("hours").out
    assert "in total" in shown
    assert "20 of 20 CPU·h left this week" in shown
    (day,) = csv.DictReader(io.StringIO(run("hours", "--by", "day", "-o", "csv").out))
    assert float(day["cpuHours"]) == pytest.approx(sum(r["cpu"] for r in after["items"]), abs=1e-5)
    assert "Nothing was reserved" in run("hours", "--to", "2026-01-01").out


def test_less_than_a_second_is_not_shown_as_more_used_than_reserved() -> None:
    """A run that reserved less than a second does not seem to use more than it reserved."""
    row = HoursRow(key="boom", cpu=0.04 / 3600, gpu=0.0, used=0.1 / 3600, measured=0.04 / 3600)
    assert used_hours(row) == "<1s of <1s"


def test_days_that_are_none_are_refused(here: Path, run: Run) -> None:
    """A text that is not a day is refused, and the refusal shows a valid day."""
    wrong = run("hours", "--from", "yesterday")
    assert wrong.code == 2
    assert "a day such as 20" in wrong.err
    wrong = run("hours", "--from", "2026-11-22", "--to", "2026-11-01")
    assert "not after 2026-11-01" in wrong.err


def test_a_launch_is_told_what_is_left_and_refused_without(
    here: Path, run: Run, allow: Callable[..., None]
) -> None:
    """A launch shows the remaining budget, and is refused if no hours are left; active runs
    continue.
    """
    allow(cpuHours=20, days=30)
    told = run("launch", "--dry-run", "sleep.py").err
    assert "20 of 20 CPU·h left in 30 days" in told
    assert run("launch", "--name", "long", "--worker-cpu", "8", "sleep.py").code == 0
    assert "CPU·h left in 30 days" in run("status", "long").err
    allow(cpuHours=1e-9, days=30)
    refused = run("launch", "hello.py")
    while refused.code == 0:  # accepted until the first run has used some hours
        refused = run("launch", "hello.py")
    assert refused.code == 3
    assert "come back on" in refused.err
    assert "administrator" in refused.err
    assert "CPU·h left in 30 days" in run("status", "long").err
