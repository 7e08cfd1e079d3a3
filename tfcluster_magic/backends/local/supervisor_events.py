"""The events that end a supervisor's sleep, and the steady clock by which a supervisor measures
time.

Events are an ended child, SIGTERM, a task's report and a line in the pipe `control`. No event is
missed while the supervisor is busy. This module owns the pipes, the FIFO and the signal handlers.
The clock counts epoch seconds. It continues evenly even if the machine's clock is set or the
machine sleeps.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ... import state_files
from ...spec import Stop, TaskExit

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_EPOCH = time.time() - time.clock_gettime(_STEADY)
_JUMP = 1.0
"""Threshold in seconds: if the machine's clock and the steady clock differ by more, the machine's
clock was set. A smaller difference comes from reading them one after the other.
"""


def steady_now() -> float:
    """Return the time in epoch seconds of a steady clock, set from the machine's clock when this
    process began.
    """
    return _EPOCH + time.clock_gettime(_STEADY)


def from_wall_clock(at: float) -> float:
    """Convert a time of the machine's clock, reported just now, to the steady clock."""
    jumped = steady_now() - time.time()
    return at + jumped if abs(jumped) > _JUMP else at


# -- events ----------------------------------------------------------------------------------------

_LONGEST_REPORT = 64 * 1024
"""Maximum bytes of an unterminated report; a task's reports are shorter than 4 KiB."""
_MOST_READ = 1 << 20


class TaskReport(msgspec.Struct):
    """One report of a task: a line that the task's `task.py` wrote into the report pipe."""

    task: str
    attempt: int
    event: str
    since: float | None = None
    exit: TaskExit | None = None
    problem: str = ""
    peer: str = ""
    words: str = ""
    sign: str = ""
    own: int = 0
    ports: tuple[int, ...] = ()
    cores: float = 0.0
    seconds: float = 0.0
    folder: str = ""
    gone: bool = False


@dataclass
class EventBatch:
    """The events of one wait; `stop` is a stop request that its sender could not write to disk."""

    children: bool = False
    terminate: bool = False
    knocked: bool = False
    stop: Stop | None = None
    reports: tuple[TaskReport, ...] = ()


class SupervisorEvents:
    """The event sources of one supervisor; tasks write to `report_fd`."""

    def __init__(self, control: Path) -> None:
        """Take over the process's signals. Raises OSError."""
        self._signals, wake = os.pipe()
        self._reports, self.report_fd = os.pipe()
        self._path = control
        self._control = self._open()
        for fd in (self._signals, wake, self._reports):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _ignore_signal)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self._partial = b""
        self._selector = selectors.DefaultSelector()
        for fd in (self._signals, self._reports, self._control):
            self._selector.register(fd, selectors.EVENT_READ)

    def _open(self) -> int:
        """Open the pipe by which other processes wake the supervisor. If the path of the pipe has
        something else, such as a regular file, rename that first. Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISFIFO(os.lstat(self._path).st_mode):
                state_files.put_aside(self._path)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._path, 0o600)
        # Opened for writing as well, so that the pipe never reaches end of file.
        how = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path, how)

    def renew(self) -> None:
        """Open the pipe again if somebody has removed it or put something else in its place. If no
        pipe can be created on the disk, SIGTERM and a stop request on disk still work.
        """
        with contextlib.suppress(OSError):
            try:
                if os.path.samestat(os.lstat(self._path), os.fstat(self._control)):
                    return
            except FileNotFoundError:
                if state_files.is_gone(self._path.parent):
                    return
            fresh = self._open()
            self._selector.unregister(self._control)
            os.close(self._control)
            self._control = fresh
            self._selector.register(fresh, selectors.EVENT_READ)

    def wait(self, until: float) -> EventBatch:
        """Sleep until something happens, at the latest until `until` (epoch seconds)."""
        self._selector.select(max(0.0, until - steady_now()))
        numbers, knocks = _drain(self._signals), _drain(self._control)
        return EventBatch(
            children=signal.SIGCHLD in numbers,
            terminate=signal.SIGTERM in numbers,
            knocked=bool(knocks),
            stop=_stop_in(knocks),
            reports=self._read_reports(),
        )

    def _read_reports(self) -> tuple[TaskReport, ...]:
        *lines, self._partial = (self._partial + _drain(self._reports)).split(b"\n")
        self._partial = self._partial[-_LONGEST_REPORT:]
        found = []
        for line in lines:
            # A program may write anything into the pipe; only the lines of task.py count.
            with contextlib.suppress(state_files.Unreadable):
                found.append(_parse_report(line))
        return tuple(found)


def _parse_report(line: bytes) -> TaskReport:
    report = state_files.decode(line, TaskReport, exact=True)
    # a report of an exit also has the fields of the termination message
    if report.event == "exit":
        fields = state_files.decode(line, dict[str, object])
        message = {k: v for k, v in fields.items() if k not in TaskReport.__struct_fields__}
        report.exit = state_files.decode(msgspec.json.encode(message), TaskExit, exact=True)
    return report


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing: the number is read from the wake-up descriptor."""


def _drain(fd: int) -> bytes:
    drained = b""
    with contextlib.suppress(BlockingIOError):
        while len(drained) < _MOST_READ:  # a fast writer must not keep the loop from ending
            drained += os.read(fd, 65536)
    return drained


def _stop_in(knocks: bytes) -> Stop | None:
    for line in knocks.splitlines():
        if line:
            with contextlib.suppress(state_files.Unreadable):
                return state_files.decode(line, Stop, exact=True)
    return None
