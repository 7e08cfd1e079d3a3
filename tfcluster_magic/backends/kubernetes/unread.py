"""What a reader of logs is told of tasks that cannot be read at the moment. Pure.

Promises one sentence for all of them, not at once (a cut of seconds is no news) and not again
while nothing else is wrong, and one when all can be read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...i18n import _
from ...lifecycle.messages import shorten

PATIENCE = 3.0
"""Seconds without an answer before it is told."""
AGAIN = 30.0
"""Seconds after which it is told that further tasks cannot be read."""
OURS = "tfcluster: "
"""How a line begins that no task has printed, as those of the runtime do."""


class Unread:
    """The tasks that do not answer while they are followed."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._why = ""
        self._reported: set[str] = set()
        self._reported_at = 0.0

    def record(self, task: str, why: str, now: float) -> None:
        """`why` a task, or "" for the run itself, could not be read; empty when it was."""
        if why:
            self._since.setdefault(task, now)
            self._why = why
        else:
            self._since.pop(task, None)

    def next_notice(self, now: float) -> str | None:
        """What has to be told now, if anything."""
        if not self._since:
            had, self._reported = self._reported, set()
            return OURS + _("all tasks can be read again") if had else None
        late = {task for task, since in self._since.items() if now - since >= PATIENCE}
        if late <= self._reported or (self._reported and now - self._reported_at < AGAIN):
            return None
        self._reported, self._reported_at = self._reported | late, now
        return cannot_be_read(sorted(late), self._why) + " " + _("(it is tried again)")


def cannot_be_read(tasks: Sequence[str], why: str) -> str:
    """That tasks cannot be read; the run itself is the one without a name."""
    named = [task for task in tasks if task]
    what = shorten(named) if named else _("the run")
    return OURS + _("{what} cannot be read: {why}").format(what=what, why=why)


def is_cut_off(tasks: Sequence[str], folder: str) -> str:
    """That what tasks printed last went with their pods."""
    return OURS + _(
        "the last lines of {tasks} may be missing: their pods are gone, and {folder}, which has "
        "them, is not mounted here"
    ).format(tasks=shorten(list(tasks)), folder=folder)
