"""Lines of tasks' log files: the last ones first, then those that come, whole and in order for each
task.

A line is given once and whole (a part waits for its newline), bytes that are no UTF-8 are replaced,
and the copy in the output folder is read where the state's own file is gone. It only reads.
Following polls: file systems such as NFS and GlusterFS tell nobody of changes.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from .. import state_files
from .base import Counts, LogLine, every_line

POLL = 0.2
_CHUNK = 256 * 1024
_ROUND = 4 * _CHUNK
"""Bytes of one task after which the others have their turn while all are followed."""
_LONGEST = 64 * 1024
"""Bytes after which a line without an end (a progress bar, binary) is given in parts."""


class TaskLog:
    """The log of one task, read from where it was left."""

    def __init__(self, task: str, places: Sequence[Path], counts: Counts = every_line) -> None:
        self.task = task
        self._places, self._counts = places, counts
        self._path: Path | None = None
        self._offset = 0
        self._partial = b""
        self.behind = False

    def seek_last(self, lines: int) -> None:
        """Go to where the last `lines` lines that count begin."""
        path = self._find()
        if path is None or (fd := _open(path)) is None:
            return
        with os.fdopen(fd, "rb") as file:
            found, size = 0, file.seek(0, os.SEEK_END)
            for at, line in lines_backwards(file, size):
                # The newline of the last line begins no further one.
                found += at < size and self._counts(_text(line))
                if found >= lines:
                    self._offset = at
                    return

    def read(self, most: int | None = None, last: bool = False) -> Iterator[LogLine]:
        """Every whole line that was there when this was called and was not given before.

        Stops after `most` bytes; `behind` then says that there is more. With `last` the part that
        has no newline is given, too.
        """
        path = self._find()
        if path is not None:
            try:
                yield from self._lines(path, most)
            except OSError:
                self._path = None  # removed meanwhile: look for it anew
        if last and self._partial:
            yield self._line(self._partial)
            self._partial = b""

    def _lines(self, path: Path, most: int | None) -> Iterator[LogLine]:
        size = os.stat(path).st_size
        if size < self._offset:
            self._offset, self._partial = 0, b""  # begun anew
        # Not to the end of the file: it may grow faster than its lines are shown.
        end = size if most is None else min(size, self._offset + most)
        self.behind = end < size
        if end == self._offset:
            return
        if (fd := _open(path)) is None:
            return
        with os.fdopen(fd, "rb") as file:
            file.seek(self._offset)
            while block := file.read(min(_CHUNK, end - self._offset)):
                self._offset += len(block)
                *whole, rest = (self._partial + block).split(b"\n")
                self._partial = rest
                for line in whole:
                    yield self._line(line)
                if len(rest) > _LONGEST:
                    self._partial = b""
                    yield self._line(rest)

    def _line(self, line: bytes) -> LogLine:
        return LogLine(self.task, _text(line))

    def _find(self) -> Path | None:
        if self._path is None:
            self._path = next((place for place in self._places if _is_file(place)), None)
        return self._path


def _is_file(place: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(place).st_mode)
    except OSError:
        return False


def _open(path: Path) -> int | None:
    """Open a log, which a program may have replaced by anything; None if it is not a file."""
    try:
        return state_files.open_regular(path, owned=False)
    except (FileNotFoundError, state_files.Unreadable):
        return None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def lines_backwards(file: BinaryIO, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before `at`, newest first, with their offsets; without the file's first line.

    A line without an end (a progress bar, binary) comes in parts, as `TaskLog.read` gives it.
    """
    begun = b""
    while at > 0:
        start = max(0, at - _CHUNK)
        file.seek(start)
        block = file.read(at - start) + begun
        begun, *whole = block.split(b"\n")
        end = start + len(block)
        for line in reversed(whole):
            yield end - len(line), line
            end -= len(line) + 1
        if len(begun) > _LONGEST and start:
            yield start, begun
            begun = b""
        at = start


def read_logs(
    places: Mapping[str, Sequence[Path]],
    tail: int | None,
    follow: bool,
    ended: Callable[[], bool],
    counts: Counts = every_line,
) -> Iterator[LogLine | None]:
    """Lines of these tasks; see `Backend.logs`. `ended` says whether the run has."""
    logs = [TaskLog(task, found, counts) for task, found in places.items()]
    if tail is not None:
        for log in logs:
            log.seek_last(tail)
    if not follow:
        for log in logs:
            yield from log.read(last=True)
        return
    while True:
        over = ended()  # before reading, so that nothing written before it is missed
        for log in logs:
            yield from log.read(None if over else _ROUND, last=over)
        if over:
            return
        if not any(log.behind for log in logs):
            yield None
            time.sleep(POLL)
