"""A copy of the task's output on the log volume, which may never slow or stop the task.

A daemon thread writes what a bounded queue holds. When the volume fails, or does not answer until the queue
is full, the copy stops for good, and its owner is told why, once. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import threading
from collections import deque

LIMIT = 4 * 1024 * 1024


class LogCopy:
    """Appends to `path`; `wake` is called from the thread when `problem` was set."""

    def __init__(self, path: str, wake, limit: int = LIMIT) -> None:  # type: ignore[no-untyped-def]
        self.path = path
        self.problem = ""
        self.dropped = 0
        self._limit = limit
        self._wake = wake
        self._queue = deque()  # type: deque
        self._size = 0
        self._closing = False
        self._ended = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start writing; what was put before is kept in the queue. Call after the last fork."""
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, data: bytes) -> None:
        """Take the next piece of output. Never blocks."""
        with self._changed:
            if not self.problem and self._size + len(data) > self._limit:
                self._stop("the volume does not answer")
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
            self._changed.wait_for(lambda: self._ended or self.problem, seconds)
            if not self._ended and not self.problem:
                self._stop("the volume does not answer")

    def _stop(self, why: str, unwritten: bytes = b"") -> None:
        self.problem = why
        self.dropped += unwritten.count(b"\n") + sum(data.count(b"\n") for data in self._queue)
        self._queue.clear()
        self._size = 0
        self._changed.notify_all()
        self._wake()

    def _run(self) -> None:
        data = b""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o644)
            while True:
                with self._changed:
                    self._size -= len(data)
                    self._changed.wait_for(lambda: self._queue or self._closing or self.problem)
                    if self.problem or not self._queue:
                        self._ended = True
                        self._changed.notify_all()
                        return
                    data = b"".join(self._queue)
                    self._queue.clear()
                    self._size = len(data)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
        except OSError as error:
            with self._changed:
                if not self.problem:
                    self._stop(error.strerror or str(error), data)
