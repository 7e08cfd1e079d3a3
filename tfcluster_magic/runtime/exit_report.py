"""How a task ended, as its report says it: cause, code, signal, last lines (TaskExit in JSON).

Pure but for the counters and lines it is given. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import signal
import time

import oom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lastlines import LastLines

# By these somebody outside ends a process; any other (SEGV, ABRT, ...) is the program's own doing.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What Python ends with after an exception that nobody caught.
RAISED = 1
SHELL_SIGNAL = 128


class Child:
    """How the child itself ended; all None when it never ran or could not be collected."""

    def __init__(self, status: int | None, shell: bool) -> None:
        self.ran = status is not None
        self.shell = shell
        self.code: int | None = None
        self.signal: int | None = None
        if status is not None and os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        elif status is not None:
            self.code = os.WEXITSTATUS(status)

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, or that ended what the shell ran, as the shell tells it."""
        if self.shell and self.code and self.code - SHELL_SIGNAL in FROM_OUTSIDE:
            return self.code - SHELL_SIGNAL
        return self.signal


def judge(child: Child, memory: oom.OomWatch) -> tuple[str, str]:
    """(cause, detail) of a child that ended by itself."""
    by = child.killed_by
    # A shell hides that what it ran was killed for memory, so its exit code does not count; another
    # program that lost a helper and still says 0 has coped.
    if (by == signal.SIGKILL and memory.around()) or (
        memory.own() and (child.shell or child.code != 0)
    ):
        limit = oom.limit()
        return "OOMKilled", "killed by the kernel for memory" + (limit and f" (limit {limit})")
    if child.code == 0:
        return "Completed", ""
    if by in FROM_OUTSIDE:
        return "Killed", f"killed by {_name(by)} from outside"
    return "Error", f"ended by {_name(child.signal)}" if child.signal else ""


def stopped(child: Child) -> tuple[str, str]:
    """(cause, detail) of a child that was asked to end."""
    if child.signal == signal.SIGKILL:
        return "Stopped", "it did not end within the grace period and was killed"
    return "Stopped", ""


def taken(
    cause: str,
    detail: str,
    at: float = 0.0,
    child: Child | None = None,
    last: LastLines | None = None,
) -> dict[str, Any]:
    """The report of an exit at `at` (epoch seconds, now when 0)."""
    raised = child is not None and child.code == RAISED
    return {
        "cause": cause,
        "finishedAt": at or time.time(),
        "exitCode": child.code if child else None,
        "signal": child.signal if child else None,
        "follows": cause == "Error" and last is not None and last.follows(raised),
        "lastLines": last.lines(raised) if last else [],
        "detail": detail,
    }


def exit_status(cause: str, child: Child) -> int:
    """What our own process ends with: the child's code, 128 + signal, as of SIGTERM when stopped.

    Never 0 when stopped: a Job would count the task as done and not start it again.
    """
    if cause == "Stopped" and child.signal != signal.SIGKILL:
        return SHELL_SIGNAL + signal.SIGTERM
    if child.signal:
        return SHELL_SIGNAL + child.signal
    return 1 if child.code is None else child.code


def _name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
