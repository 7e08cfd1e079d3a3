"""Lines of tasks' log files: the last existing lines, then new lines, whole and in order of
printing.

In a file in the log's folder, the task records when each line was printed (runtime/output.py). A
line is yielded once and as a whole: an incomplete line waits for its newline. Invalid UTF-8 is
replaced. If the log in the state folder is gone, its copy in the output folder is read. Logs are
followed by polling, because file systems such as NFS and GlusterFS report no changes.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from .. import state_files
from .base import LOOK_BEHIND, Counts, LogLine, every_line, in_time_order

POLL = 0.2
_CHUNK = 256 * 1024
_LONGEST = 64 * 1024
"""Threshold in bytes: a longer line without an end (a progress bar, binary data) is yielded in
parts.
"""


TIMES_FOLDER, TIMES_RECORD = ".tfcluster-times", struct.Struct(">QQ")
"""A pair: the name of the folder with the files that record when logs grew, and the binary format
of one record in these files. runtime/output.py defines the same values.
"""
_RECORDS = 4096
"""Number of time records that are read together."""


class RecordedTimes:
    """The times of the lines in the log at `path`; offsets must be queried in ascending order."""

    def __init__(self, path: Path) -> None:
        self._path = path.parent / TIMES_FOLDER / path.name
        self._records: list[tuple[int, int]] = []
        self._last: tuple[int, int] | None = None
        self._next = 0
        self._place = -1
        self._stamp: int | None = None
        self._until: float = 0

    def at(self, offset: int) -> float | None:
        """Return when the byte at `offset` was printed, in seconds since the epoch; None if
        unknown.
        """
        while offset >= self._until and self._advance(offset):
            pass
        return None if self._stamp is None else self._stamp / 1000

    def reread(self) -> None:
        """Let the next query read new records from the file."""
        if self._until == float("inf"):
            self._until = 0

    def _advance(self, offset: int) -> bool:
        """Take the next record; return False if it does not apply to `offset` or does not exist."""
        if self._next >= len(self._records) and not self._read(offset):
            self._until = float("inf")
            return False
        begins, stamp = self._records[self._next]
        if begins > offset:
            self._until = begins
            return False
        self._stamp = stamp or None
        self._next += 1
        return True

    def _read(self, offset: int) -> bool:
        """Read the next records; the first read begins at the record that covers `offset`."""
        if (fd := _open(self._path)) is None:
            return False
        size = TIMES_RECORD.size
        with os.fdopen(fd, "rb") as file:
            count = file.seek(0, os.SEEK_END) // size
            try:
                if not (0 <= self._place <= count and self._is_same(file)):
                    self._place, self._last = self._find(file, count, offset), None
                file.seek(self._place * size)
                data = file.read(min(_RECORDS, max(0, count - self._place)) * size)
            except (OSError, struct.error):
                # the file of times cannot be read, or was cut; the log is readable without it
                return False
        self._records = list(TIMES_RECORD.iter_unpack(data[: len(data) // size * size]))
        self._last = self._records[-1] if self._records else self._last
        self._place += len(self._records)
        self._next = 0
        return bool(self._records)

    def _is_same(self, file: BinaryIO) -> bool:
        """Return whether the last record that was read is still at its place. The record may have
        moved, because a task removes old records from a large file.
        """
        if self._last is None:
            return self._place == 0
        file.seek((self._place - 1) * TIMES_RECORD.size)
        return file.read(TIMES_RECORD.size) == TIMES_RECORD.pack(*self._last)

    def _find(self, file: BinaryIO, count: int, offset: int) -> int:
        """Return the index of the record that covers `offset`. It is the last of the file's `count`
        records that begins at `offset` or before. Return 0 if there is none.
        """
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            file.seek(middle * TIMES_RECORD.size)
            begins = TIMES_RECORD.unpack(file.read(TIMES_RECORD.size))[0]
            low, high = (middle + 1, high) if begins <= offset else (low, middle)
        return max(0, low - 1)


class TaskLog:
    """The log of one task; each read continues where the last one ended."""

    def __init__(self, task: str, places: Sequence[Path], counts: Counts = every_line) -> None:
        self.task = task
        self._places, self._counts = places, counts
        self._path: Path | None = None
        self._times: RecordedTimes | None = None
        self._offset = 0
        self._partial = b""
        self.behind = False
        self.block = _CHUNK
        """Number of bytes that are read together, and kept until their lines are yielded."""

    def seek_last(self, lines: int) -> None:
        """Make the next `read` begin with the last `lines` lines for which `counts` is true."""
        path = self._find()
        if path is None or (fd := _open(path)) is None:
            return
        with os.fdopen(fd, "rb") as file:
            found, size = 0, file.seek(0, os.SEEK_END)
            for at, counted in _judged_backwards(lines_backwards(file, size), self._counts):
                # The empty text after a newline at the end of the file is not a line.
                found += at < size and counted
                if found >= lines:
                    self._offset = at
                    return

    def read(self, most: int | None = None, last: bool = False) -> Iterator[LogLine]:
        """Yield every new whole line that exists at the time of the call.

        Stops after `most` bytes; `behind` then says that there is more. With `last` an unterminated
        line is yielded, too.
        """
        path = self._find()
        if path is not None:
            try:
                yield from self._lines(path, most)
            except OSError:
                self._path = None  # the file was removed: search again
        if last and self._partial:
            yield self._line(self._partial, self._offset - 1)
            self._partial = b""

    def _lines(self, path: Path, most: int | None) -> Iterator[LogLine]:
        size = os.stat(path).st_size
        if size < self._offset:
            self._offset, self._partial = 0, b""  # the file was truncated
            self._times = None
        # A read ends at the size that the file has now. Otherwise it might never end, because the
        # file may grow faster than its lines are shown.
        end = size if most is None else min(size, self._offset + most)
        self.behind = end < size
        if end == self._offset:
            return
        if self._times is None:
            self._times = RecordedTimes(path)
        self._times.reread()
        # No file stays open between two blocks: hundreds of logs may be read at the same time.
        while block := self._block(path, end):
            at = self._offset - len(self._partial)
            self._offset += len(block)
            *whole, rest = (self._partial + block).split(b"\n")
            self._partial = rest
            for line in whole:
                at += len(line) + 1
                yield self._line(line, at - 1)
            if len(rest) > _LONGEST:
                self._partial = b""
                yield self._line(rest, self._offset - 1)

    def _block(self, path: Path, end: int) -> bytes:
        """Return the next bytes before `end`; empty if there are no more."""
        if self._offset >= end or (fd := _open(path)) is None:
            return b""
        with os.fdopen(fd, "rb") as file:
            file.seek(self._offset)
            return file.read(min(self.block, end - self._offset))

    def _line(self, line: bytes, end: int) -> LogLine:
        """Return a line whose last byte is at `end`; its time is the time at which it was
        complete.
        """
        at = None if self._times is None else self._times.at(end)
        return LogLine(self.task, _text(line), at)

    def _find(self) -> Path | None:
        if self._path is None:
            self._path = next((place for place in self._places if _is_file(place)), None)
            self._times = None
        return self._path


def _is_file(place: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(place).st_mode)
    except OSError:
        return False


def _open(path: Path) -> int | None:
    """Open a log. Return None if it is not a regular file: a program may have replaced the log by
    anything.
    """
    try:
        return state_files.open_regular(path, owned=False)
    except (FileNotFoundError, state_files.Unreadable):
        return None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def lines_backwards(file: BinaryIO, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before the offset `at`, newest first, each with its offset. The file's first
    line, which no newline precedes, is not yielded.

    A long line without an end (a progress bar, binary data) comes in parts, as in `TaskLog.read`.
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


def _judged_backwards(
    lines: Iterable[tuple[int, bytes]], counts: Counts
) -> Iterator[tuple[int, bool]]:
    """Yield the offsets of these lines, newest first, each with whether the line counts."""
    block: list[tuple[int, str]] = []

    def judged() -> list[tuple[int, bool]]:
        known = counts([text for _at, text in reversed(block)])
        return [(at, counted) for (at, _text), counted in zip(block, known[::-1], strict=True)]

    for at, line in lines:
        block.append((at, _text(line)))
        if len(block) == 2 * LOOK_BEHIND:
            yield from judged()[:LOOK_BEHIND]
            del block[:LOOK_BEHIND]
    yield from judged()


# -- the last line of each task --------------------------------------------------------------------

_LAST_BYTES = 16 * 1024
"""Number of bytes at the end of a log in which `last_lines` looks for the last line."""


def last_lines(
    places: Mapping[str, Sequence[Path]], counts: Counts = every_line
) -> dict[str, LogLine]:
    """Return the last line of each task, by task name: the last line for which `counts` is true,
    else an empty text with the time of the last line. A task is left out if it printed nothing, or
    if reading its log failed or took too long.
    """
    first = {task: of[0] for task, of in places.items()}
    return state_files.read_together(first, lambda task: _last_line(task, places[task], counts))


def _last_line(task: str, places: Sequence[Path], counts: Counts) -> LogLine | None:
    path = next((place for place in places if _is_file(place)), None)
    if path is None or (fd := _open(path)) is None:
        return None
    try:
        with os.fdopen(fd, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            # the first half only says how the lines in the second half are to be judged
            start = max(0, size - 2 * _LAST_BYTES)
            file.seek(start)
            lines = file.read(size - start).split(b"\n")
    except OSError:
        return None
    found: tuple[int, str] | None = None
    end = size
    texts = [_text(line) for line in lines]
    for line, text, counted in zip(lines[::-1], texts[::-1], counts(texts)[::-1], strict=True):
        if end <= size - _LAST_BYTES:
            break
        if text.strip():
            if counted:
                found = end, text
                break
            found = found or (end, "")
        end -= len(line) + 1
    if found is None:
        return None
    at, text = found
    return LogLine(task, text, RecordedTimes(path).at(min(at, size - 1)))


def read_logs(
    places: Mapping[str, Sequence[Path]],
    tail: int | None,
    follow: bool,
    ended: Callable[[], bool],
    counts: Counts = every_line,
) -> Iterator[LogLine | None]:
    """Yield lines of these tasks; see `Backend.logs`. `ended` returns whether the run has ended."""
    logs = [TaskLog(task, found, counts) for task, found in places.items()]
    for log in logs:
        log.block = max(_CHUNK // len(logs), _LONGEST // 4)
        if tail is not None:
            log.seek_last(tail)
    if not follow:
        yield from in_time_order([log.read(last=True) for log in logs])
        return
    while True:
        over = ended()  # asked before reading, so that nothing written before the end is missed
        yield from in_time_order([log.read(last=over) for log in logs])
        if over:
            return
        yield None
        time.sleep(POLL)
