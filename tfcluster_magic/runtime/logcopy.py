"""A copy of the task's output on the log volume, which may never slow or stop the task.

A daemon thread writes what a bounded queue holds. When the volume fails, or does not answer until
the queue is full, the copy ends for good and `problem` says why. Standard library, Python 3.8.
"""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 4 * 1024 * 1024
HANGS = "the volume does not answer"


class LogCopy:
    """Appends to `path`; `wake` is called, from any thread, when `problem` was set."""

    def __init__(self, path: str, wake: Callable[[], None], limit: int = LIMIT) -> None:
        self.path = path
        self.problem = ""
        self.dropped = 0
        self._limit = limit
        self._wake = wake
        self._queue: list[bytes] = []
        self._size = 0
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
                self.dropped += data.count(b"\n")
                return
            self._queue.append(data)
            self._size += len(data)
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Wait until everything is written, at most so long."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            self._changed.wait_for(lambda: self._ended or bool(self.problem), seconds)
            if not self._ended and not self.problem:
                self._give_up(HANGS)

    def _give_up(self, why: str, unwritten: bytes = b"") -> None:
        self.problem = why
        self.dropped += b"".join([unwritten, *self._queue]).count(b"\n")
        self._queue.clear()
        self._changed.notify_all()
        self._wake()

    def _take(self, written: int) -> bytes:
        """The next bytes to write; b'' at the end."""
        with self._changed:
            self._size -= written
            self._changed.wait_for(lambda: self._queue or self._closing or self.problem)
            data = b"".join(self._queue)
            self._queue.clear()
            self._ended = not data
            self._changed.notify_all()
            return data

    def _run(self) -> None:
        rest = memoryview(b"")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o644)
            data = self._take(0)
            while data:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                data = self._take(len(data))
        except OSError as error:
            with self._changed:
                if not self.problem:
                    self._give_up(error.strerror or str(error), bytes(rest))
