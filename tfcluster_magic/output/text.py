"""Plain text for a terminal or a cell: words in colour, tables, times. Pure."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Sequence

from ..spec import Phase, TaskState
from ..terminal_text import clean, settled, stripped, tame

__all__ = ["clean", "settled", "tame"]  # re-exported beside the functions below

_CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
_CODES |= {"bold": 1, "dim": 2}
TASK_COLOURS = ("cyan", "yellow", "green", "magenta", "blue")
COLOURS: dict[Phase | TaskState, str] = {
    Phase.QUEUED: "yellow",
    Phase.STARTING: "yellow",
    Phase.RUNNING: "cyan",
    Phase.STOPPING: "yellow",
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.STOPPED: "dim",
    TaskState.PENDING: "dim",
    TaskState.STARTING: "yellow",
    TaskState.RUNNING: "cyan",
    TaskState.SUCCEEDED: "green",
    TaskState.FAILED: "red",
    TaskState.STOPPED: "dim",
}


class Paint:
    """Puts words in colour, or leaves them as they are when colours are off."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def __call__(self, text: str, colour: str) -> str:
        """`text` in `colour` (a name of the table above, or bold, dim)."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.enabled and text else text

    def state(self, state: Phase | TaskState) -> str:
        """A phase or a task's state in its own colour."""
        return self(state.value, COLOURS[state])


PLAIN = Paint(enabled=False)


def spreadsheet_cell(text: str) -> str:
    """Return `text` for a CSV file, so that no spreadsheet reads it as a formula."""
    plain = clean(text)
    return f"'{plain}" if plain.lstrip().startswith(("=", "+", "-", "@")) else plain


def width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    plain = stripped(text)
    if plain.isascii():
        return len(plain)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in plain
    )


def cut(text: str, most: int) -> str:
    """`text` in at most `most` columns, the end replaced by an ellipsis."""
    if width(text) <= most:
        return text
    while text and width(text) > most - 1:
        text = text[:-1]
    return text + "…"


_MAY_NOT_BEGIN_A_LINE = "，。；：、！？）》」』】…"  # noqa: RUF001 - Chinese punctuation


def fold(text: str, columns: int) -> list[str]:
    """`text` in lines of at most `columns`: broken at spaces, and beside any wide character."""
    lines = [""]
    for piece in re.findall(r"[\x21-\x7e]+|.", text):
        stays = piece in _MAY_NOT_BEGIN_A_LINE
        if width(lines[-1]) + width(piece) <= columns or not lines[-1] or stays:
            lines[-1] += piece
        else:
            lines.append(piece.lstrip())
    return [line.rstrip() for line in lines]


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    paint: Paint = PLAIN,
    most: int | None = None,
) -> str:
    """Columns under headings; the last one is cut so that a line takes at most `most` columns."""
    widths = [max(width(row[i]) for row in (head, *rows)) for i in range(len(head))]
    if most is not None:
        used = sum(widths[:-1]) + 2 * (len(widths) - 1)
        room = max(most - used, 12)
        rows = [(*row[:-1], cut(row[-1], room)) for row in rows]
    lines = [paint("  ".join(_pad(head, widths)).rstrip(), "bold")]
    lines += ["  ".join(_pad(row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def _pad(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [pad(cell, size) for cell, size in zip(row, widths, strict=True)]


def pad(text: str, columns: int) -> str:
    """`text` with spaces up to `columns`."""
    return text + " " * (columns - width(text))


def clock(at: float, now: float | None = None, seconds: bool = False) -> str:
    """Local time of day; with the date when it is not today's."""
    when, today = time.localtime(at), time.localtime(now)
    text = time.strftime("%H:%M:%S" if seconds else "%H:%M", when)
    return text if when[:3] == today[:3] else f"{time.strftime('%Y-%m-%d', when)} {text}"


def age(seconds: float) -> str:
    """A rough duration in one unit or two: 75 gives "75s", 7500 gives "2h5m"."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    if left < 3600:
        return f"{left // 60}m"
    if left < 2 * 86400:
        return f"{left // 3600}h{left % 3600 // 60}m" if left % 3600 >= 60 else f"{left // 3600}h"
    return f"{left // 86400}d"
