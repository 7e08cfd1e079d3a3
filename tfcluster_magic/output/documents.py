"""Documents for programs and spreadsheets: JSON, YAML, names, and CPU- and GPU-hours."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence

import msgspec

from ..i18n import _
from ..quota.budgets import format_hours
from ..quota.ledger import Grouping, HoursRow
from ..spec import Model, TFCluster
from .text import PLAIN, Paint, one_line, spreadsheet_cell, table

FORMS = ("table", "json", "yaml", "name")


def document(
    what: Model | Sequence[Model], form: str, beside: Mapping[str, object] | None = None
) -> str:
    """Return one or several models in the format `json`, `yaml` or, for clusters, `name`, without a
    final newline. `beside` is JSON-like data to add to the fields of a single model.
    """
    if form == "name":
        clusters = [what] if isinstance(what, Model) else what
        return "\n".join(c.metadata.name for c in clusters if isinstance(c, TFCluster))
    data = {**msgspec.to_builtins(what), **beside} if beside else what
    if form == "json":
        return json_text(data)
    return to_yaml(msgspec.to_builtins(data))


def cluster_yaml(cluster: TFCluster) -> str:
    """Return a cluster as YAML for users; its program's files are shown only with their sizes."""
    data = msgspec.to_builtins(cluster)
    files = (data["spec"].get("program") or {}).get("files") or {}
    for path, content in files.items():
        files[path] = f"({len(base64.b64decode(content))} bytes)"
    return to_yaml(data)


def json_text(data: object) -> str:
    """Return models or JSON-like data as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def to_yaml(data: object) -> str:
    """Return JSON-like data as YAML; keys stay in their order."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """A dumper that writes text of several lines as a block."""

    def lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, lines)
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip("\n")


# CPU- and GPU-hours for users and for spreadsheets.


def hours_headings() -> dict[Grouping, str]:
    """Return the heading of the first column for each grouping."""
    return {"user": _("USER"), "group": _("GROUP"), "cluster": _("CLUSTER"), "day": _("DAY")}


def hours_table(
    rows: Sequence[HoursRow], by: Grouping, paint: Paint = PLAIN, most: int | None = None
) -> str:
    """Return a table of the rows, with their sum if there is more than one row."""
    lines = [_hours_cells(row, _hours_key(row, by)) for row in rows]
    if len(rows) > 1:
        lines.append(_hours_cells(total_hours(rows), _("in total")))
    head = (hours_headings()[by], _("CPU TIME"), _("GPU TIME"), _("USED (CPU)"))
    return table(head, lines, paint, most)


def total_hours(rows: Sequence[HoursRow]) -> HoursRow:
    """Return the sum of all rows; `used`, `measured` and `unused` sum only the rows whose usage is
    known.
    """
    known = [(row.used, row.measured) for row in rows if row.used is not None]
    return HoursRow(
        key="",
        cpu=sum(row.cpu for row in rows),
        gpu=sum(row.gpu for row in rows),
        used=sum(used for used, _measured in known) if known else None,
        measured=sum(measured or 0.0 for _used, measured in known) if known else None,
        unused=sum(row.unused or 0.0 for row in rows) if known else None,
    )


def unused_table(
    rows: Sequence[HoursRow], by: Grouping, paint: Paint = PLAIN, most: int | None = None
) -> str:
    """Return a table of reserved and used hours, with their sums."""
    lines = [_unused_cells(row, _hours_key(row, by)) for row in rows]
    if len(rows) > 1:
        lines.append(_unused_cells(total_hours(rows), _("in total")))
    head = (
        hours_headings()[by],
        _("CPU TIME"),
        _("MEASURED"),
        _("USED"),
        _("UNUSED"),
        _("USED PART"),
    )
    return table(head, lines, paint, most)


def _unused_cells(row: HoursRow, key: str) -> tuple[str, ...]:
    reserved = readable_hours(row.cpu)
    if row.used is None or row.unused is None or not row.measured:
        return key, reserved, _("not measured"), "-", "-", "-"
    amounts = (row.measured, row.used, row.unused)
    return (key, reserved, *map(readable_hours, amounts), f"{row.used / row.measured:.0%}")


def used_hours(row: HoursRow) -> str:
    """Return used and reserved CPU-hours as `1.2 of 4`; only hours with measured usage count."""
    if row.used is None or row.measured is None:
        return _("not measured")
    text = _("{used} of {measured}")
    return text.format(used=readable_hours(row.used), measured=readable_hours(row.measured))


def readable_hours(hours: float) -> str:
    """Return hours in a suitable unit: `6.7s`, `17m`, `3.2h`; `<1s` for less than a second, which
    is within the error of the measurement.
    """
    seconds = hours * 3600
    if 0 < seconds < 1:
        return "<1s"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    return f"{seconds / 60:.0f}m" if seconds < 3600 else f"{format_hours(hours)}h"


def hours_csv(rows: Sequence[HoursRow], by: Grouping) -> str:
    """Return the rows as CSV with a heading; a cell without a measurement is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((by, "cpuHours", "gpuHours", "usedCpuHours", "measuredCpuHours"))
    for row in rows:
        figures = (row.cpu, row.gpu, row.used, row.measured)
        cell = spreadsheet_cell(row.key)
        writer.writerow((cell, *("" if each is None else f"{each:.6f}" for each in figures)))
    return out.getvalue().rstrip("\n")


def _hours_key(row: HoursRow, by: Grouping) -> str:
    rest = _("(no group)") if by == "group" else _("(other clusters)")
    return one_line(row.key) or rest


def _hours_cells(row: HoursRow, key: str) -> tuple[str, ...]:
    return key, readable_hours(row.cpu), readable_hours(row.gpu), used_hours(row)
