"""Plain text for a terminal or a cell: colours, tables, times, and tasks' log lines."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Sequence

from ..backends.base import LogLine
from ..errors import last_overwrite, one_line, sanitize_text, strip_controls
from ..spec import Phase, Reason, Status, TaskState, TFCluster
from ..spec.names import task_name

__all__ = ["last_overwrite", "one_line", "sanitize_text"]  # re-exported with the functions below

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


FAILING = "Failing"
"""The word that is shown in place of the phase while the cause of a failure is not known yet."""


def is_failing(status: Status) -> bool:
    """Return whether a task has failed and the cause is still being determined."""
    return status.reason is Reason.INVESTIGATING and status.phase.is_active


_READABLE = {"red": 160, "green": 28, "yellow": 130, "cyan": 30}
"""Shades of xterm's 256 colours with a contrast of about 4.5 on white and on black."""


class Paint:
    """A painter of words in colours; without colours, it returns words unchanged.

    Args:
        enabled: whether to use colours.
        in_terminal: true if the words are shown in a terminal, false for the output of a cell.
    """

    def __init__(self, enabled: bool, *, in_terminal: bool = False) -> None:
        self.enabled = enabled
        self._in_terminal = in_terminal

    def __call__(self, text: str, colour: str) -> str:
        """Return `text` in `colour`: a key of `_CODES`."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.enabled and text else text

    def word(self, text: str, colour: str) -> str:
        """Return `text` bold, in a shade of `colour` that is readable on white and on black. The
        colour `dim` is used as it is, and not bold.

        In the output of a cell, the colour itself is used, because JupyterLab shows bold colours
        darker. A terminal shows bold colours paler, so there a shade of `_READABLE` replaces the
        colour.
        """
        if not self.enabled or colour == "dim":
            return self(text, colour)
        shade = f"38;5;{_READABLE[colour]}" if self._in_terminal else f"{_CODES[colour]}"
        return f"\x1b[1;{shade}m{text}\x1b[0m"

    def state(self, state: Phase | TaskState) -> str:
        """Return a phase or a task's state in its colour."""
        return self.word(state.value, COLOURS[state])

    def phase(self, status: Status) -> str:
        """Return the phase of a run in its colour; `Failing` if a failure will soon end it."""
        if is_failing(status):
            return self.word(FAILING, COLOURS[Phase.FAILED])
        return self.state(status.phase)


PLAIN = Paint(enabled=False)


def spreadsheet_cell(text: str) -> str:
    """Return `text` for a CSV file, so that no spreadsheet reads it as a formula."""
    plain = one_line(text)
    return f"'{plain}" if plain.lstrip().startswith(("=", "+", "-", "@")) else plain


def width(text: str) -> int:
    """Return the number of terminal columns that `text` takes."""
    plain = strip_controls(text)
    if plain.isascii():
        return len(plain)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in plain
    )


def cut(text: str, most: int) -> str:
    """Return `text` in at most `most` columns; an ellipsis replaces a removed end."""
    if width(text) <= most:
        return text
    while text and width(text) > most - 1:
        text = text[:-1]
    return text + "…"


_MAY_NOT_BEGIN_A_LINE = "，。；：、！？）》」』】…"  # noqa: RUF001 - Chinese punctuation


def fold(text: str, columns: int) -> list[str]:
    """Return lines of at most `columns`, broken at spaces and next to wide characters."""
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
    """Return a table whose last column is cut so that a line takes at most `most` columns."""
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
    """Return `text` padded with spaces to `columns`."""
    return text + " " * (columns - width(text))


def clock(at: float, now: float | None = None, seconds: bool = False) -> str:
    """Return the local time of day, with the date if it is not today's."""
    when, today = time.localtime(at), time.localtime(now)
    text = time.strftime("%H:%M:%S" if seconds else "%H:%M", when)
    return text if when[:3] == today[:3] else f"{time.strftime('%Y-%m-%d', when)} {text}"


def zoned(at: float) -> str:
    """Return the local date and time with the zone, such as `2026-11-26 22:41 +0800`, for readers
    who may be in another time zone.
    """
    return time.strftime("%Y-%m-%d %H:%M %z", time.localtime(at))


def age(seconds: float) -> str:
    """Return a rough duration in one or two units: 75 gives "75s", 7500 gives "2h5m"."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    if left < 3600:
        return f"{left // 60}m"
    if left < 2 * 86400:
        return f"{left // 3600}h{left % 3600 // 60}m" if left % 3600 >= 60 else f"{left // 3600}h"
    return f"{left // 86400}d"


# Log lines of many tasks as one stream: `worker-0 | step 300`, each task in its own colour.


def task_names(cluster: TFCluster) -> list[str]:
    """Return the names of all tasks of a run, in reading order."""
    counts = cluster.spec.replicas.counts
    return [task_name(t, i) for t, count in counts.items() for i in range(count)]


def printed_at(line: LogLine) -> str:
    """Return the local time at which a line was printed, as a prefix of the line. If the time is
    unknown, return spaces of the same width.
    """
    if line.at is None:
        return " " * len("2026-01-31 10:00:00.000 ")
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    return f"{clock}.{int(line.at % 1 * 1000):03d} "


class Prefixer:
    """A formatter that turns the `LogLine`s of one run into lines of one stream.

    Args:
        tasks: the tasks of the run. The longest name sets the width of the prefix, and the order of
            the tasks sets their colours.
        paint: whether to use colours.
        prefix: whether lines begin with their task's name. Without a prefix, lines are returned as
            printed, and the caller must clean them for a terminal.
    """

    def __init__(self, tasks: Iterable[str], paint: Paint, prefix: bool = True) -> None:
        names = list(tasks)
        self._width = max((len(name) for name in names), default=0)
        self._colours = {name: TASK_COLOURS[i % len(TASK_COLOURS)] for i, name in enumerate(names)}
        self._paint, self._prefix = paint, prefix

    def __call__(self, line: LogLine) -> str:
        """Return one line of the stream, without its newline."""
        if not self._prefix:
            return line.text
        mark = self._paint(
            f"{line.task:<{self._width}} |", self._colours.get(line.task, TASK_COLOURS[0])
        )
        return f"{mark} {sanitize_text(last_overwrite(line.text))}".rstrip()
