"""How a task ended, as its report says it: cause, code, signal, last lines (models.TaskExit in JSON).

Pure but for the memory counters it is given. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import signal
import time

import oom
from lastlines import LastLines
from taskconfig import TaskConfig

# Signals by which somebody outside ends a process; any other (SEGV, ABRT, ...) is the program's own doing.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def not_started(detail: str) -> dict:
    """The exit of a task whose child never ran."""
    return _taken("NotStarted", time.time(), detail=detail)


def _taken(cause: str, at: float, **more: object) -> dict:
    taken = {"cause": cause, "finishedAt": at, "exitCode": None, "signal": None}
    return dict(taken, **dict({"follows": False, "lastLines": [], "detail": ""}, **more))


class Ending:
    """What is known at the end; `stopping` and `problem` (why nothing was started) are set by the owner."""

    def __init__(self, config: TaskConfig, status, at: float, last: LastLines, memory: oom.OomWatch) -> None:  # type: ignore[no-untyped-def]
        self._at = at
        self._last = last
        self._memory = memory
        self._shell = config.is_shell
        self.stopping = False
        self.problem = ""
        self.code = None  # type: ignore[var-annotated]
        self.signal = None  # type: ignore[var-annotated]
        if status is not None and os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        elif status is not None:
            self.code = os.WEXITSTATUS(status)

    def _cause(self) -> tuple:
        """(cause, detail)."""
        ended_by = self.signal
        if self._shell and self.code and self.code - 128 in FROM_OUTSIDE:
            # The shell's way of saying that what it ran was killed.
            ended_by = self.code - 128
        if self.stopping:
            forced = self.signal == signal.SIGKILL
            return "Stopped", "did not end within the grace period, killed" if forced else ""
        if self.problem:
            return "NotStarted", self.problem
        if ended_by == signal.SIGKILL and self._memory.anywhere():
            return "OOMKilled", _memory_detail()
        if self._memory.own() and (self.code != 0 or self._shell):
            return "OOMKilled", _memory_detail()
        if self.code == 0:
            return "Completed", ""
        if ended_by in FROM_OUTSIDE:
            return "Killed", "killed by %s from outside" % signal.Signals(ended_by).name
        return "Error", "ended by %s" % _name(self.signal) if self.signal else ""

    def taken(self) -> dict:
        """The report."""
        cause, detail = self._cause()
        failed = cause in ("Error", "OOMKilled", "Killed")
        return _taken(
            cause,
            self._at,
            exitCode=self.code,
            signal=self.signal,
            follows=failed and cause == "Error" and self._last.follows(),
            lastLines=self._last.lines(),
            detail=detail,
        )

    def exit_status(self) -> int:
        """What our own process ends with: the child's code, 128 + signal, 0 when stopped in time."""
        if self.signal and not (self.stopping and self.signal != signal.SIGKILL):
            return 128 + self.signal
        if self.stopping:
            return 0
        return 1 if self.problem else int(self.code or 0)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def _memory_detail() -> str:
    limit = oom.limit()
    return "the kernel killed it for memory%s" % (" (limit %s)" % limit if limit else "")
