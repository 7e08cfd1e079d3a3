"""Many tasks' lines as one stream: `worker-0 | step 300`, every task in its colour. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..backends.base import LogLine
from ..spec import TFCluster
from ..spec.names import task_name
from .text import TASK_COLOURS, Paint, settled, tame


def task_names(cluster: TFCluster) -> list[str]:
    """The names of all tasks of a run, in reading order."""
    counts = cluster.spec.replicas.counts
    return [task_name(t, i) for t, count in counts.items() for i in range(count)]


class Prefixer:
    """Turns `LogLine`s of one run into lines of one stream.

    Args:
        tasks: the tasks that will be seen; the longest name sets the width, the order the colours.
        paint: whether to use colours.
        prefix: whether lines begin with their task's name; without it they are as printed, and the
            caller has to clean them for a terminal.
    """

    def __init__(self, tasks: Iterable[str], paint: Paint, prefix: bool = True) -> None:
        names = list(tasks)
        self._width = max((len(name) for name in names), default=0)
        self._colours = {name: TASK_COLOURS[i % len(TASK_COLOURS)] for i, name in enumerate(names)}
        self._paint, self._prefix = paint, prefix

    def __call__(self, line: LogLine) -> str:
        """One line of the stream, without its newline."""
        if not self._prefix:
            return line.text
        mark = self._paint(
            f"{line.task:<{self._width}} |", self._colours.get(line.task, TASK_COLOURS[0])
        )
        return f"{mark} {tame(settled(line.text))}".rstrip()
