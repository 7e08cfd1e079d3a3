"""A measured figure with its baseline and goal, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

COLUMNS = ("name", "value", "unit", "baseline", "ratio", "goal", "met")


@dataclass(frozen=True)
class Row:
    """One line of the result; `goal` is text such as "ratio <= 0.4"."""

    name: str
    value: float | None
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None
    note: str = ""


def compared(
    name: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
) -> Row:
    """Return a row that compares the median of `ours` with the median of `theirs`. The ratio of the
    two figures is computed for each round; the goal applies to the median of these ratios.
    """
    ratio = median(own / other for own, other in zip(ours, theirs, strict=True))
    goal, met = _goal("ratio", ratio, at_most, at_least)
    return Row(name, median(ours), unit, median(theirs), ratio, goal, met, note)


def bounded(
    name: str,
    unit: str,
    values: Sequence[float],
    *,
    at_most: float,
    baseline: Sequence[float] = (),
    note: str = "",
) -> Row:
    """Return a row with the median of `values`. Its goal is met if this median is at most
    `at_most`. The baseline is shown, but the goal does not depend on it.
    """
    value = median(values)
    goal, met = _goal("value", value, at_most, None)
    beside = median(baseline) if baseline else None
    return Row(name, value, unit, beside, value / beside if beside else None, goal, met, note)


def _goal(
    what: str, value: float, at_most: float | None, at_least: float | None
) -> tuple[str, bool | None]:
    if at_most is not None:
        return f"{what} <= {at_most:g}", value <= at_most
    if at_least is not None:
        return f"{what} >= {at_least:g}", value >= at_least
    return "", None


def interleaved(
    rounds: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Call the measurements `ours` and `theirs` alternately, `rounds` times each, and return the
    results of both. A slowdown of the machine then affects both.
    """
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return [own for own, _ in pairs], [other for _, other in pairs]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines = [COLUMNS, *(tuple(_cell(getattr(row, name)) for name in COLUMNS) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*text, *(f"{row.name}: {row.note}" for row in rows if row.note)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.3g}" if isinstance(value, float) and value < 1000 else str(value)


def save(rows: Sequence[Row], file: Path) -> None:
    """Write the rows as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def collected(file: Path) -> Iterator[list[Row]]:
    """Yield a list to which tests add their rows; print and save the rows at the end."""
    measured: list[Row] = []
    yield measured
    save(measured, file)
    print(f"\n{table(measured)}")
