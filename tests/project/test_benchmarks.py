"""The rows and the table of `make bench`, and one real benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.project import ROOT

from benchmarks.__main__ import BENCHES, COVERS
from benchmarks.rows import COLUMNS, bounded, compared, table


def test_a_ratio_is_the_median_of_each_rounds_ratio() -> None:
    """A ratio is the median of the ratios of all rounds, because a machine that is slow in one
    round is slow for both sides.
    """
    row = compared("start", "s", [1, 20, 1], [2, 40, 2.5], at_most=0.5)
    assert (row.ratio, row.met, row.goal) == (0.5, True, "ratio <= 0.5")


@pytest.mark.parametrize(("values", "met"), [([1, 2, 9], True), ([1, 3, 9], False)])
def test_a_bound_holds_for_the_median(values: list[float], met: bool) -> None:
    """One slow round does not fail a benchmark, but a slow median does."""
    assert bounded("late", "s", values, at_most=2).met is met


def test_a_goal_that_is_missed_stands_out() -> None:
    """The table has a line for each row; the line of a missed goal ends with NO."""
    head, line = table([bounded("late", "s", [3], at_most=2)]).splitlines()
    assert head.split() == list(COLUMNS)
    assert line.split() == ["late", "3", "s", "-", "-", "value", "<=", "2", "NO"]


def test_a_bench_writes_its_rows_for_programs(tmp_path: Path) -> None:
    """`python -m benchmarks NAME` writes build/bench/NAME.json with figure, goal and result."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "load_ext"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        check=False,  # the exit status is 1 if a busy machine misses the goal
        capture_output=True,
    )
    (row,) = json.loads((tmp_path / "build" / "bench" / "load_ext.json").read_text())
    assert {*COLUMNS} <= {*row}
    assert row["value"] > 0


def test_an_unknown_bench_is_refused_with_those_there_are(tmp_path: Path) -> None:
    """A wrong name is refused, with the existing names, before anything is measured."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert all(name in done.stderr for name in [*BENCHES, *COVERS["between_graph"]])
