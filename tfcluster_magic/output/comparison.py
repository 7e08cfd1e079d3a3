"""A table that compares runs: their options, arguments and results, one column for each run. Pure.

The command line, the REST API and the Lab extension show the same table. This module decides the
rows, their order, and which of them differ. Labels are in the reader's language; names and values
come from the runs.
"""

from __future__ import annotations

import csv
import enum
import io
import math
import re
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..i18n import _
from ..launch.launch_as_command import field_at, options_of, value_text
from ..launch.options import OPTIONS, Kind, Option, pod_option_texts
from ..lifecycle.messages import shown
from ..progress.event_files import EPOCH
from ..progress.run_progress import Progress
from ..quota import ledger
from ..spec import Model, Phase, Spec, TFCluster
from ..spec.message_table import format_duration
from .report import LEAST_HOURS, replica_summary
from .text import PLAIN, Paint, cut, one_line, spreadsheet_cell, table

CELL_COLUMNS = 32
"""Maximum terminal columns of a value."""


class RowGroup(enum.Enum):
    """The part of the table to which a row belongs."""

    RUN = "run"
    ARGUMENTS = "arguments"
    OPTIONS = "options"
    RESULTS = "results"


class ComparedRow(Model, frozen=True, omit_defaults=False):
    """One property of all runs; the value is empty for a run without the property."""

    group: RowGroup
    label: str
    values: tuple[str, ...]
    differs: bool


class ComparedRun(Model, frozen=True, omit_defaults=False):
    """The head of a run's column."""

    name: str
    display_name: str
    phase: Phase


class Comparison(Model, frozen=True, omit_defaults=False):
    """The compared runs, and a row for each property that at least one of them has."""

    runs: tuple[ComparedRun, ...]
    rows: tuple[ComparedRow, ...]


def compare(
    runs: Sequence[tuple[TFCluster, Progress | None]],
    now: float | None = None,
    python: str | None = None,
) -> Comparison:
    """Compare the options, arguments and results of `runs`, which has the record and the progress
    of each run. `python` is the Python of tasks that a launch uses by default. Schedules store its
    path, so it counts as not set.
    """
    now = time.time() if now is None else now
    columns = {
        RowGroup.RUN: [_about(cluster, now) for cluster, _progress in runs],
        RowGroup.ARGUMENTS: [_program(cluster) for cluster, _progress in runs],
        RowGroup.OPTIONS: _options([_without(python, cluster.spec) for cluster, _p in runs]),
        RowGroup.RESULTS: [_results(progress) for _cluster, progress in runs],
    }
    heads = tuple(
        ComparedRun(
            cluster.metadata.name, one_line(cluster.metadata.display_name), cluster.status.phase
        )
        for cluster, _progress in runs
    )
    return Comparison(heads, tuple(row for group in columns.items() for row in _rows(*group)))


def _rows(group: RowGroup, columns: Sequence[Mapping[str, str]]) -> list[ComparedRow]:
    """Return a row for each label that has a value in a column."""
    rows = []
    for label in dict.fromkeys(label for column in columns for label in column):
        values = tuple(column.get(label, "") for column in columns)
        if any(values):
            rows.append(ComparedRow(group, label, values, len(set(values)) > 1))
    return rows


def _about(cluster: TFCluster, now: float) -> dict[str, str]:
    head, state = cluster.metadata, cluster.status
    has_ended_badly = state.phase in (Phase.FAILED, Phase.STOPPED)
    end = state.finished_at or now
    took = format_duration(end - state.started_at) if state.started_at is not None else ""
    hours = ledger.run_hours(state.usage, cluster.spec, state.released_at or now)
    cpu, gpu = (f"{each:.2f}" if each >= LEAST_HOURS else "" for each in hours)
    return {
        _("Reason"): one_line(shown(state)) if has_ended_badly else "",
        _("Tags"): one_line(" ".join(head.tags)),
        _("Note"): one_line(head.note),
        _("Tasks"): replica_summary(cluster),
        _("Launched"): time.strftime("%Y-%m-%d %H:%M", time.localtime(head.created_at)),
        _("Duration"): took,
        _("CPU-hours"): cpu,
        _("GPU-hours"): gpu,
    }


def _program(cluster: TFCluster) -> dict[str, str]:
    program = cluster.spec.program
    if program is None:
        return {}
    return {_("Program"): one_line(program.source), **argument_values(program.arguments)}


def argument_values(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of a program's arguments as text, by flag. All arguments without a flag are
    in one entry, "Other arguments".

    A flag takes the next word unless that word is a flag too. Values of a repeated flag are joined.
    """
    found: dict[str, list[str]] = {}
    words = [one_line(word) for word in arguments]
    while words:
        word = words.pop(0)
        if word == "--" or not _is_flag(word):
            rest = words if word == "--" else []
            found.setdefault(_("Other arguments"), []).extend([word, *rest])
            del rest[:]
            continue
        flag, equals, value = word.partition("=")
        if not equals:
            value = words.pop(0) if words and not _is_flag(words[0]) else _("yes")
        found.setdefault(flag, []).append(value)
    return {label: " ".join(values) for label, values in found.items()}


def _is_flag(word: str) -> bool:
    return re.match(r"-[^\d.\s]", word) is not None  # a number such as -0.5 is no flag


def _without(python: str | None, spec: Spec) -> Spec:
    return replace(spec, interpreter=None) if spec.interpreter == python else spec


def _options(specs: Sequence[Spec]) -> list[dict[str, str]]:
    """Return the options of each run by their flags, without options that no run has set."""
    said = [options_of(spec) for spec in specs]
    used = [option for option in OPTIONS if any(option.key in each for each in said)]
    columns = []
    for spec, own in zip(specs, said, strict=True):
        column: dict[str, str] = {}
        for option in used:
            # an option of all task types has no single value in the spec
            of_all_tasks = option.path[0] == "*"
            value = own.get(option.key) or (None if of_all_tasks else field_at(spec, option.path))
            column |= _option_cells(option, value)
        columns.append(column)
    return columns


def _option_cells(option: Option, value: object) -> dict[str, str]:
    """Return the cells of an option by flag. An option whose value is a map has a cell for each
    name.
    """
    if isinstance(value, Mapping) and option.kind is Kind.PAIRS:
        return {f"{option.flag} {name}": one_line(str(text)) for name, text in value.items()}
    return {option.flag: one_line(_option_text(option, value))}


def _option_text(option: Option, value: object) -> str:
    if option.kind is Kind.SWITCH:
        return _("yes") if value else _("no")
    if value in (None, (), {}):
        return ""
    if option.only_kubernetes and option.kind is not Kind.IMAGE:
        return ", ".join(pod_option_texts(option.kind, value))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return value_text(option.kind, value)


def _results(progress: Progress | None) -> dict[str, str]:
    if progress is None:
        return {}
    is_epoch = progress.unit == EPOCH
    total = "" if progress.total is None else f"/{progress.total}"
    column = {_("Epoch") if is_epoch else _("Step"): f"{progress.step}{total}"}
    if progress.epoch is not None and not is_epoch:
        column[_("Epoch")] = str(progress.epoch)
    if progress.loss is not None:
        column[_("Loss")] = _figure(progress.loss)
    if progress.steps_per_second:
        speed = _("Epochs per second") if is_epoch else _("Steps per second")
        column[speed] = _figure(progress.steps_per_second)
    for name, value in progress.metrics.items():
        column.setdefault(one_line(name), _figure(value))
    return column


def _figure(value: float) -> str:
    """Return a number as text that people and spreadsheets can read."""
    return f"{value:.6g}" if math.isfinite(value) else str(value).replace("nan", "NaN")


def differences(comparison: Comparison) -> Comparison:
    """Return only the rows that differ."""
    return Comparison(comparison.runs, tuple(row for row in comparison.rows if row.differs))


def comparison_table(comparison: Comparison, paint: Paint = PLAIN) -> str:
    """Return a table for a terminal; in each group, the rows that differ are marked and come
    first.
    """
    titles = {
        RowGroup.RUN: _("RUN"),
        RowGroup.ARGUMENTS: _("ARGUMENTS"),
        RowGroup.OPTIONS: _("OPTIONS"),
        RowGroup.RESULTS: _("RESULTS"),
    }
    lines: list[Sequence[str]] = []
    for group, title in titles.items():
        rows = [row for row in _all_rows(comparison) if row.group is group]
        if rows:
            lines.append((paint(title, "bold"), *("" for _run in comparison.runs)))
        for row in sorted(rows, key=lambda row: not row.differs):
            mark = "≠" if row.differs else " "
            lines.append([cut(text, CELL_COLUMNS) for text in (f"{mark} {row.label}", *row.values)])
    return table(("", *(run.name for run in comparison.runs)), lines, paint)


def _all_rows(comparison: Comparison) -> list[ComparedRow]:
    """Return the rows of a table without column heads: first the display name and the state of each
    run, then the rows of the comparison.
    """
    heads = [
        {_("Display name"): run.display_name, _("State"): run.phase.value}
        for run in comparison.runs
    ]
    return [*_rows(RowGroup.RUN, heads), *comparison.rows]


def comparison_csv(comparison: Comparison) -> str:
    """Return the table as CSV for a spreadsheet, with a heading."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("group", "what", *(run.name for run in comparison.runs)))
    for row in _all_rows(comparison):
        cells = map(_spreadsheet_value, row.values)
        label = row.label.lstrip("-")  # a spreadsheet would read --rate as a formula
        writer.writerow((row.group.value, spreadsheet_cell(label), *cells))
    return out.getvalue().rstrip("\n")


def _spreadsheet_value(text: str) -> str:
    try:
        float(text)
    except ValueError:
        return spreadsheet_cell(text)
    return text  # a negative number is not a formula
