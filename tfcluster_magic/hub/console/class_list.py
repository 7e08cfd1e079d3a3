"""A class as a CSV file: read strictly, each wrong line told with what is allowed. Pure.

Promises that a line is either whole or told with its number, and that one wrong line hides none of
the others. The first line names the columns: `name` must be among them, `group` may be, others are
left alone.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...spec import Model
from ..auth.store import allowed_name

MOST = 2000
_GROUP = re.compile(r"[^\s/,;]{1,255}")
_NAMES = ("name", "username", "user")


class Line(Model, frozen=True):
    """One line: a user and a group ("": none), or what is wrong with it."""

    number: int
    name: str
    group: str = ""
    problem: str = ""


def read(text: str, group: str = "") -> list[Line]:
    """The lines of a file; `group` is for those that name none.

    Raises:
        InvalidRequest: the file as a whole is no list of users.
    """
    if group and not _GROUP.fullmatch(group):
        raise _refused("group", group, group_rule())
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        head = [cell.strip().casefold() for cell in next(rows, [])]
        column = next((head.index(word) for word in _NAMES if word in head), None)
        if column is None:
            rule = _("the first line names the columns, and one of them is `name`: name,group")
            raise _refused(_("line {number}").format(number=1), ",".join(head), rule)
        of_group = head.index("group") if "group" in head else None
        found = list(_lines(rows, column, of_group, group))
    except csv.Error as error:
        where = _("line {number}").format(number=rows.line_num)
        raise _refused(where, str(error), _("write it as CSV")) from None
    if not 0 < len(found) <= MOST:
        rule = _("a whole number from {least} to {most}").format(least=1, most=MOST)
        raise _refused(_("lines with users"), len(found), rule)
    return found


def _lines(
    rows: Iterator[list[str]], column: int, of_group: int | None, group: str
) -> Iterator[Line]:
    seen: dict[str, int] = {}
    while True:
        number = rows.line_num + 1  # type: ignore[attr-defined]
        cells = next(rows, None)
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        said = cells[column] if column < len(cells) else ""
        theirs = cells[of_group].strip() if of_group is not None and of_group < len(cells) else ""
        try:
            name = allowed_name(said)
        except InvalidRequest as error:
            yield Line(number=number, name=said, problem=str(error.problems[0]))
            continue
        if theirs and not _GROUP.fullmatch(theirs):
            problem = str(Problem("group", theirs, group_rule()))
            yield Line(number=number, name=name, problem=problem)
        elif name in seen:
            text = _(
                "name: got {name!r}; line {number} has it already: each user stands there once"
            )
            yield Line(number=number, name=name, problem=text.format(name=said, number=seen[name]))
        else:
            seen[name] = number
            yield Line(number=number, name=name, group=theirs or group)


def group_rule() -> str:
    """How a group is written."""
    return _("a group has no spaces, slashes, commas or semicolons")


def _refused(field: str, value: object, rule: str) -> InvalidRequest:
    return InvalidRequest([Problem(field, value, rule)], _("nothing was imported"))
