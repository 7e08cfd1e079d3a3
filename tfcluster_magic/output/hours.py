"""CPU- and GPU-hours for people and for spreadsheets. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from ..i18n import _
from ..quota.budgets import amount
from ..quota.ledger import By, Row
from .text import PLAIN, Paint, clean, spreadsheet_cell, table


def heads() -> dict[By, str]:
    """What stands above the keys of rows."""
    return {"user": _("USER"), "group": _("GROUP"), "cluster": _("CLUSTER"), "day": _("DAY")}


def shown(rows: Sequence[Row], by: By, paint: Paint = PLAIN, most: int | None = None) -> str:
    """A table, with the sum below it where there is more than one row."""
    lines = [_cells(row, _key(row)) for row in rows]
    if len(rows) > 1:
        lines.append(_cells(total(rows), _("in all")))
    head = (heads()[by], "CPU·h", "GPU·h", _("USED (CPU·h)"))
    return table(head, lines, paint, most)


def total(rows: Sequence[Row]) -> Row:
    """The sum of all rows; of what was used, of those of which it is known."""
    known = [(row.used, row.measured) for row in rows if row.used is not None]
    return Row(
        key="",
        cpu=sum(row.cpu for row in rows),
        gpu=sum(row.gpu for row in rows),
        used=sum(used for used, _measured in known) if known else None,
        measured=sum(measured or 0.0 for _used, measured in known) if known else None,
    )


def used(row: Row) -> str:
    """`1.2 of 4`: of what was held, what was used; of that of which it is known."""
    if row.used is None or row.measured is None:
        return _("not measured")
    text = _("{used} of {measured}")
    return text.format(used=amount(row.used), measured=amount(row.measured))


def as_csv(rows: Sequence[Row], by: By) -> str:
    """The rows for a spreadsheet, with a line of heads; what was not measured is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((by, "cpuHours", "gpuHours", "usedCpuHours", "measuredCpuHours"))
    for row in rows:
        figures = (row.cpu, row.gpu, row.used, row.measured)
        cell = spreadsheet_cell(row.key)
        writer.writerow((cell, *("" if each is None else f"{each:.6f}" for each in figures)))
    return out.getvalue().rstrip("\n")


def _key(row: Row) -> str:
    return clean(row.key) or _("(others)")


def _cells(row: Row, key: str) -> tuple[str, ...]:
    return key, amount(row.cpu), amount(row.gpu), used(row)
