"""The child's output on its way: from the pipe to our stdout at once and unchanged, then to memory and the copy.

stdout that does not take more holds the child back, as a pipe does; a stdout that fails is given up, and the
copy never matters. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import select
import stat
import time

from lastlines import LastLines
from logcopy import LogCopy
from loop import Loop

CHUNK = 64 * 1024
# A pipe that poll() calls writable takes a page without blocking.
PAGE = 4096


class Output:
    """Owns the read end of the child's pipe."""

    def __init__(self, loop: Loop, copy: LogCopy) -> None:
        self.last = LastLines()
        self._loop = loop
        self._copy = copy
        self._told = False
        self._pipe = -1
        self._pending = b""
        self._fresh_line = True
        self._stdout = 1
        try:
            self._is_file = stat.S_ISREG(os.fstat(1).st_mode)
        except OSError:
            self._stdout, self._is_file = -1, True
        loop.on_signal(0, self._check_copy)

    def open(self) -> int:
        """A new pipe for a child; its write end, to be closed by the caller after the fork."""
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        self._loop.on_fd(self._pipe, select.POLLIN, self._readable)
        return write

    def say(self, text: str) -> None:
        """A line of our own in the task's log."""
        self._pass_on(self._line(text))

    def close(self, seconds: float) -> None:
        """Pass on what is left in the pipe, then give stdout and the copy so long to take it.

        Does not wait for the end of the pipe: a process that got hold of its other end may live on.
        """
        until = time.monotonic() + seconds
        while self._pipe >= 0 and time.monotonic() < until:
            if self._pending:
                self._drain(max(0.0, until - time.monotonic()))
            elif not self._read():
                break
        self._drain(max(0.0, until - time.monotonic()))
        self._copy.close(max(0.1, until - time.monotonic()))
        self._check_copy()
        if self._copy.dropped:
            text = "%d lines are missing at the end of %s" % (self._copy.dropped, self._copy.path)
            self._pending += self._line(text)
        self._drain(0.1)

    def _line(self, text: str) -> bytes:
        line = ("" if self._fresh_line else "\n") + "tfcluster: " + text + "\n"
        return line.encode("utf-8", "replace")

    def _readable(self, _events: int) -> None:
        if not self._read():
            self._loop.off_fd(self._pipe)

    def _read(self) -> bool:
        """Pass one piece on; whether there may be more now."""
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.off_fd(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
            return False
        self.last.put(data)
        self._pass_on(data)
        return True

    def _pass_on(self, data: bytes) -> None:
        self._fresh_line = data.endswith(b"\n")
        self._pending += data
        self._drain(0)
        self._copy.put(data)
        if self._pending:
            # Hold the child back until stdout takes more.
            self._loop.off_fd(self._pipe)
            self._loop.on_fd(self._stdout, select.POLLOUT, self._writable)

    def _writable(self, _events: int) -> None:
        self._drain(0)
        if not self._pending:
            self._loop.off_fd(self._stdout)
            if self._pipe >= 0:
                self._loop.on_fd(self._pipe, select.POLLIN, self._readable)

    def _drain(self, seconds: float) -> None:
        """Write what is pending as far as stdout takes it without blocking, waiting at most so long."""
        until = time.monotonic() + seconds
        while self._pending and self._stdout >= 0:
            if not self._is_file:
                poll = select.poll()
                poll.register(self._stdout, select.POLLOUT)
                if not poll.poll(max(0, int((until - time.monotonic()) * 1000))):
                    return
            try:
                size = CHUNK if self._is_file else PAGE
                written = os.write(self._stdout, self._pending[:size])
            except BlockingIOError:
                continue
            except OSError:
                # A full disk or a closed reader: training matters more than its output.
                break
            self._pending = self._pending[written:]
        self._pending = b""

    def _check_copy(self) -> None:
        if self._copy.problem and not self._told:
            self._told = True
            self.say(
                "the copy of this log in %s was stopped: %s; training goes on"
                % (self._copy.path, self._copy.problem)
            )
