"""A copy of the task's output on the log volume, which may never slow or stop the task.

A daemon thread writes what a bounded queue holds. While the volume fails (full, gone), or does not
answer until the queue is full, what comes is dropped and counted, and `problem` says why; when it
takes files again the copy says what is missing in it and goes on, from the beginning of a line.
Standard library, Python 3.8.
"""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 4 * 1024 * 1024
HANGS = "the volume does not answer"
GONE = "its file was removed"
# Seconds between two tries, the second number at most: each that fails takes twice as long.
AGAIN = (2.0, 60.0)
# A copy that goes on for a line or two, and stops again, would be no news to anybody.
ROOM = 256 * 1024


class LogCopy:
    """Appends to `path`; `wake` is called, from any thread, when `problem` has changed.

    `first` is the first problem that there was, `dropped` how many lines are missing.
    """

    def __init__(self, path: str, wake: Callable[[], None], limit: int = LIMIT) -> None:
        self.path = path
        self.problem = ""
        self.first = ""
        self.dropped = 0
        self._limit = limit
        self._wake = wake
        self._queue: list[bytes] = []
        self._size = 0
        self._cut = False
        self._last = b"\n"
        self._begun = False
        self._closing = False
        self._ended = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start writing, what was put before included. Call after the last fork."""
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, data: bytes) -> None:
        """Take the next piece of output. Never blocks."""
        with self._changed:
            if not self.problem and self._size + len(data) > self._limit:
                self._give_up(HANGS)
            if self.problem:
                self._drop(data)
                return
            if self._cut:  # the beginning of this line is missing already
                rest = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
                self._drop(data[: len(data) - len(rest)])
                data = rest
            if data:
                self._queue.append(data)
                self._size += len(data)
                self._changed.notify()

    def close(self, seconds: float) -> None:
        """Wait until everything is written, at most so long; what stopped is tried once more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self.problem == HANGS, seconds)
            if not self._ended and not self.problem:
                self._give_up(HANGS)

    def _drop(self, data: bytes) -> None:
        if data:
            self.dropped += data.count(b"\n")
            self._cut = not data.endswith(b"\n")

    def _give_up(self, why: str, unwritten: bytes = b"") -> None:
        self.problem = why
        self.first = self.first or why
        self._drop(b"".join([unwritten, *self._queue]))
        self._queue.clear()
        self._size = 0
        self._changed.notify_all()
        self._wake()

    def _run(self) -> None:
        wait = AGAIN[0]
        while not self._write():
            with self._changed:
                if not self._closing:
                    self._changed.wait_for(lambda: self._closing, wait)
                elif self.problem:
                    break
            wait = min(2 * wait, AGAIN[1])
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _write(self) -> bool:
        """Write until there is no more, which is true; false when the volume fails."""
        rest, fd, tried = memoryview(b""), -1, False
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o644)
            linked = os.fstat(fd).st_nlink > 0
            if not self._begun and is_within_line(self.path):
                os.write(fd, b"\n")
            self._begun = True
            while True:
                if self.problem:
                    tried = True
                    self._resume(fd)
                    tried = False
                data = self._take()
                if data is None:
                    return True
                rest = memoryview(data)
                while rest:
                    count = os.write(fd, rest)
                    self._last, rest = bytes(rest[count - 1 : count]), rest[count:]
                self._written(len(data))
                if linked and not os.fstat(fd).st_nlink:
                    raise OSError(GONE)
        except OSError as error:
            with self._changed:
                if not tried and not self.problem:
                    self._give_up(error.strerror or str(error), bytes(rest))
            return False
        finally:
            if fd >= 0:
                os.close(fd)

    def _resume(self, fd: int) -> None:
        """Go on with a volume that takes files again. Raises OSError when it does not."""
        room = os.fstatvfs(fd)
        if self.problem != HANGS and room.f_bavail * room.f_frsize < ROOM:
            raise OSError(self.problem)
        note = b"tfcluster: lines are missing here: %d by now\n" % self.dropped
        left = memoryview(note if self._last == b"\n" else b"\n" + note)
        while left:
            left = left[os.write(fd, left) :]
        self._last = b"\n"
        with self._changed:
            self.problem = ""
            self._wake()

    def _take(self) -> bytes | None:
        """The next bytes to write, none when something went wrong meanwhile; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing or self.problem)
            data = b"".join(self._queue)
            self._queue.clear()
            return data if data or self.problem else None

    def _written(self, count: int) -> None:
        with self._changed:
            self._size = max(0, self._size - count)


def is_within_line(path: str) -> bool:
    """Whether the last line of a file has no end: who wrote it was killed, and the next one begins
    a line of its own.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
    except OSError:
        return False
