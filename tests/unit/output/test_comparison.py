"""The rows of a comparison of runs."""

from __future__ import annotations

import csv

import pytest

from tfcluster_magic.output.comparison import (
    ComparedRow,
    RowGroup,
    argument_values,
    compare,
    comparison_csv,
    comparison_table,
    differences,
)
from tfcluster_magic.progress.run_progress import Progress
from tfcluster_magic.spec import (
    Metadata,
    Phase,
    Pods,
    Program,
    ProgramKind,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    TFCluster,
)


def a_run(number: int, *arguments: str, workers: int = 2, **more: object) -> TFCluster:
    """Return the run `digits-<number>`, which took `number` minutes."""
    program = Program(
        kind=ProgramKind.FILE,
        source="train.py",
        entrypoint="train.py",
        sha256="",
        arguments=arguments,
    )
    each = Replicas(count=workers, resources=Resources(memory="2Gi"))
    return TFCluster(
        metadata=Metadata(f"digits-{number}", "digits", number, str(number), 1000.0),
        spec=Spec(program=program, replicas=ReplicaSet(worker=each), **more),  # type: ignore[arg-type]
        status=Status(
            phase=Phase.SUCCEEDED,
            reason=Reason.COMPLETED,
            started_at=1000.0,
            finished_at=1000.0 + 60 * number,
        ),
    )


def progress(step: int, loss: float | None = None, **metrics: float) -> Progress:
    """Return a run's progress."""
    return Progress(step, 800, None, loss, None, at=0.0, metrics=metrics)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", {}),
        ("--rate 0.1 --size=5", {"--rate": "0.1", "--size": "5"}),
        ("--shift -0.5 -.5 -n 3", {"--shift": "-0.5", "Other arguments": "-.5", "-n": "3"}),
        ("--big --rate 1", {"--big": "yes", "--rate": "1"}),
        ("--layer 8 --layer 4 x", {"--layer": "8 4", "Other arguments": "x"}),
        ("--name= --text=a=b", {"--name": "", "--text": "a=b"}),
        ("a -- --b 1", {"Other arguments": "a -- --b 1"}),
        ("--last", {"--last": "yes"}),
    ],
)
def test_arguments_are_read_by_their_flags(words: str, told: dict[str, str]) -> None:
    """The value of a flag is the next argument or what follows its `=`; a negative number is no
    flag.
    """
    assert argument_values(words.split()) == told


def test_rows_are_what_any_run_has() -> None:
    """Each argument, option and result of any of the runs has a row; differences are marked."""
    runs = [
        (a_run(1, "--rate", "0.1", env={"A": "1"}), progress(800, 0.25, accuracy=0.9812345678)),
        (a_run(2, "--rate", "0.1", workers=3, env={"A": "2"}), progress(700, float("nan"))),
        (a_run(3, "--rate", "0.1", "--big", pods=Pods(annotations={"team": "vision"})), None),
    ]
    found = compare(runs)
    rows = {row.label: (row.group, row.values, row.differs) for row in found.rows}
    assert [run.name for run in found.runs] == ["digits-1", "digits-2", "digits-3"]
    assert rows["--rate"] == (RowGroup.ARGUMENTS, ("0.1",) * 3, False)
    assert rows["--big"] == (RowGroup.ARGUMENTS, ("", "", "yes"), True)
    assert rows["--workers"] == (RowGroup.OPTIONS, ("2", "3", "2"), True)
    assert rows["--worker-memory"] == (RowGroup.OPTIONS, ("2Gi",) * 3, False)
    assert rows["--env A"] == (RowGroup.OPTIONS, ("1", "2", ""), True)
    assert rows["--annotation"] == (RowGroup.OPTIONS, ("", "", "team=vision"), True)
    assert rows["Step"] == (RowGroup.RESULTS, ("800/800", "700/800", ""), True)
    assert rows["Loss"] == (RowGroup.RESULTS, ("0.25", "NaN", ""), True)
    assert rows["accuracy"] == (RowGroup.RESULTS, ("0.981235", "", ""), True)
    assert rows["Duration"] == (RowGroup.RUN, ("1m", "2m", "3m"), True)
    assert "--interpreter" not in rows
    assert all(row.differs for row in differences(found).rows)
    assert {row.label for row in found.rows if row.differs} == {
        row.label for row in differences(found).rows
    }


def test_the_python_that_a_schedule_stores_is_no_difference() -> None:
    """The default Python counts as not set; another one is shown."""
    runs = [(a_run(1), None), (a_run(2, interpreter="/venv/bin/python"), None)]
    rows = {row.label for row in compare(runs, python="/venv/bin/python").rows}
    assert "--python" not in rows
    (row,) = [row for row in compare(runs, python="/usr/bin/python3").rows if "--py" in row.label]
    assert (row.values, row.differs) == (("", "/venv/bin/python"), True)


def test_hostile_names_and_values_are_text() -> None:
    """Text from programs and users cannot move the cursor in a table, and is no formula in a
    spreadsheet.
    """
    evil = '=HYPERLINK("http://x")\x1b[2J\u202e\n<b>'
    run = a_run(1, f"--note={evil}", "--rate", "-1.5")
    found = compare([(run, progress(1, **{evil: 1.0})), (a_run(2), None)])
    shown = comparison_table(found)
    assert not {"\x1b", "\u202e", "\r"} & set(shown)
    written = [row[1:] for row in csv.reader(comparison_csv(found).splitlines())]
    cells = [cell for row in written for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == ["-1.5"]
    assert ComparedRow(RowGroup.ARGUMENTS, "--rate", ("-1.5", ""), True) in found.rows
