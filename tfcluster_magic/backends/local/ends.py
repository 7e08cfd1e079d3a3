"""How a task ended: its termination message (from its file, or from its report when the disk is
full), else what the kernel says.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from ... import state_files
from ...i18n import _
from ...spec import Cause, TaskExit
from . import clock
from .tasks import Task

_MOST_LINES = 20
_MOST_CHARACTERS = 500


def how_it_ended(task: Task, wait_status: int, message: Path, log: Path) -> TaskExit:
    """The end of `task`, whose `task.py` ended with `wait_status` (wait(2)).

    Stopped is said only of a task that was asked to end; anybody else's signal is a kill from
    outside.
    """
    told = state_files.read(message, TaskExit) or task.reported
    if told is None:
        told = _from_kernel(wait_status, log)
    else:
        told = replace(told, finished_at=clock.from_wall(told.finished_at))
    if task.killed:
        return replace(
            told,
            cause=Cause.STOPPED,
            detail=_("it did not end within its grace period and was killed"),
        )
    if task.stop_asked and told.cause is Cause.KILLED:
        return replace(told, cause=Cause.STOPPED)
    if told.cause is Cause.STOPPED and not task.stop_asked:
        return replace(told, cause=Cause.KILLED)
    return told


def _from_kernel(wait_status: int, log: Path) -> TaskExit:
    code = os.waitstatus_to_exitcode(wait_status)
    lines = last_lines(log)
    if code == 127 and lines and lines[-1].startswith("tfcluster: cannot start"):
        return TaskExit(
            cause=Cause.NOT_STARTED, finished_at=clock.now(), exit_code=code, detail=lines[-1][11:]
        )
    return TaskExit(
        cause=Cause.KILLED if code < 0 else Cause.ERROR,
        finished_at=clock.now(),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        last_lines=lines,
    )


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a log file, as many and as long as a termination message holds."""
    text = state_files.tail(log, 2 * _MOST_LINES * _MOST_CHARACTERS).decode("utf-8", "replace")
    return tuple(line[:_MOST_CHARACTERS] for line in text.splitlines()[-_MOST_LINES:])
