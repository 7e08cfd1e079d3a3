"""The child's output on its way: from its pipe to our stdout at once, then to memory and the copy.

Bytes stay as they are. A stdout that takes no more for now holds the child back, as any pipe does;
one that fails loses lines and says so; the copy never matters. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import select
import stat
import time

from lastlines import LastLines
from logcopy import is_within_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from logcopy import LogCopy
    from loop import Loop

STDOUT = 1
CHUNK = 64 * 1024
# A pipe that poll() calls writable takes so much without blocking.
PAGE = 4096


class Output:
    """Owns the read end of the child's pipe, and our stdout.

    `copied` is called with why nothing is copied, once, and with "" when that is over.
    """

    def __init__(self, loop: Loop, copy: LogCopy, copied: Callable[[str], None]) -> None:
        self.last = LastLines()
        self._loop = loop
        self._copy = copy
        self._copied = copied
        self._told: list[str] = []
        self._pipe = -1
        self._pending = b""
        self._notes: list[bytes] = []
        self._at_line_start = True
        self._lost = 0
        self._piece = PAGE
        try:
            if stat.S_ISREG(os.fstat(STDOUT).st_mode):
                self._piece = CHUNK
                if is_within_line("/proc/self/fd/1"):
                    self._pending = b"\n"
        except OSError:
            # Started without a stdout: the copy is all there is.
            self._piece = 0
        loop.on_signal(0, self._tell_copy)

    def open(self) -> int:
        """A pipe for a child: its write end, to be closed by the caller after the fork."""
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        self._loop.on_fd(self._pipe, select.POLLIN, self._readable)
        return write

    def say(self, text: str, copied: bool = True) -> None:
        """Put a line of our own into the task's log, as soon as the child's line is complete."""
        line = f"tfcluster: {text}\n".encode("utf-8", "replace")
        self._notes.append(line)
        if self._at_line_start:
            self._pass_on(b"")
        if copied:
            self._copy.put(line)

    def drain(self, seconds: float) -> None:
        """Pass on what the pipe still holds, and give stdout at most so long to take it.

        Does not wait for the pipe's end: a process that got hold of its other end may live on.
        """
        until = time.monotonic() + seconds
        while self._read() and time.monotonic() < until:
            self._write(until)
        self._end_line()
        self._write(until)

    def close(self, seconds: float) -> None:
        """Give the copy at most so long to be complete, else say what is missing in it."""
        self._copy.close(seconds)
        self._tell_copy()
        if self._copy.dropped:
            text = f"lines missing in {self._copy.path}: {self._copy.dropped}"
            self.say(text, copied=False)
        self._end_line()
        self._write(time.monotonic() + 0.1)

    def _end_line(self) -> None:
        """Let our own lines out although the child's last one has no end, and never will."""
        if self._notes and not self._at_line_start:
            self._pass_on(b"\n")

    def _readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Pass one piece on; whether there was one."""
        if self._pipe < 0:
            return False
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.last.put(data)
            self._pass_on(data)
            self._copy.put(data)
        else:
            self._loop.off_fd(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        return bool(data)

    def _pass_on(self, data: bytes) -> None:
        self._at_line_start = data.endswith(b"\n") if data else self._at_line_start
        complete = data.rfind(b"\n") + 1
        if self._notes and (complete or self._at_line_start):
            self._pending += b"".join([data[:complete], *self._notes, data[complete:]])
            self._notes.clear()
        else:
            self._pending += data
        self._write(0.0)
        if self._pending:
            # Hold the child back until stdout takes more.
            self._loop.off_fd(self._pipe)
            self._loop.on_fd(STDOUT, select.POLLOUT, self._resume)

    def _resume(self) -> None:
        self._write(0.0)
        if not self._pending:
            self._loop.off_fd(STDOUT)
            if self._pipe >= 0:
                self._loop.on_fd(self._pipe, select.POLLIN, self._readable)

    def _write(self, until: float) -> None:
        """Write what is pending as far as stdout takes it without blocking, waiting until then."""
        if not self._piece:
            self._pending = b""
        poll = select.poll()
        poll.register(STDOUT, select.POLLOUT)
        while self._pending:
            if not poll.poll(max(0, int((until - time.monotonic()) * 1000))):
                return
            try:
                if self._lost:
                    gap = f"\ntfcluster: {self._lost} lines are missing here\n".encode()
                    os.write(STDOUT, gap)
                    self._lost = 0
                self._pending = self._pending[os.write(STDOUT, self._pending[: self._piece]) :]
            except BlockingIOError:
                return
            except OSError:
                # A full disk, or a reader that has gone: training matters more than its output.
                self._lost += self._pending.count(b"\n")
                self._pending = b""

    def _tell_copy(self) -> None:
        """Say when the copy stops and when it goes on again: the first time, and no other."""
        first = self._copy.first
        if first and not self._told:
            self._tell(first, f"was stopped: {first}; training goes on")
        if len(self._told) == 1 and not self._copy.problem:
            missing = f"{self._copy.dropped} lines are missing in it"
            self._tell("", f"goes on: {missing}")

    def _tell(self, problem: str, text: str) -> None:
        self._told.append(problem)
        self.say(f"the copy of this log in {self._copy.path} {text}", copied=False)
        self._copied(problem)
