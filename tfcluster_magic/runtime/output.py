"""Forwarding of a program's output from its pipe to this process's stdout, to memory, and to a copy
of the log.

Bytes are not changed. If stdout accepts no more output for now, the child blocks, as with any pipe.
If stdout fails, lines are lost and the log says so. The copy on the log volume never slows or stops
the task. Standard library only, Python 3.8.
"""

from __future__ import annotations

import os
import select
import stat
import struct
import threading
import time

from printed_errors import LastLines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from process import EventLoop


# ---- when lines were printed ----
# The times are in a folder next to the log, so the log contains exactly what the program printed. A
# file of times has records of 16 bytes: (offset in the log, milliseconds since 1970). Output from
# this offset to the offset of the next record was printed at this time; the time 0 means unknown.
# `backends/log_files.py` reads the times; a log without times is readable, too. A file with
# `MOST_RECORDS` is thinned: its newest quarter is kept, and the rest is reduced to one record for
# each interval. The times of the first lines are exact to 2 s after a day of output, and to 16 s
# after ten days.


TIMES_FOLDER = ".tfcluster-times"
TIMES_RECORD = struct.Struct(">QQ")
# Pieces of output printed within this many milliseconds share one record.
TIMES_STEP = 10
MOST_RECORDS = 128 * 1024  # 2 MiB
# A pair of delays in seconds before a failing file is tried again: the first delay, which doubles
# after each failure, and the maximum.
RETRY_SECONDS = (2.0, 60.0)


class LineTimes:
    """The file of the times at which pieces of the log at `path` were printed. `note` and `close`
    never raise.
    """

    def __init__(self, path: str) -> None:
        folder, name = os.path.split(path)
        self._path = os.path.join(folder, TIMES_FOLDER, name)
        self._fd = -1
        self._count = 0
        self._end = 0
        self._stamp = 0
        # Offset of the first piece whose time could not be written.
        self._unknown: int | None = None
        self._pause = RETRY_SECONDS[0]
        self._next_try = 0.0

    def note(self, offset: int, stamp: int) -> None:
        """Record that the log from `offset` on was printed at `stamp` (milliseconds since 1970).
        Call this after the log is written. If `offset` is smaller than that of an earlier call, the
        log was truncated to `offset`.
        """
        if self._unknown is None:
            # The difference is negative if the clock was set back; then a new record is written.
            if offset >= self._end and 0 <= stamp - self._stamp < TIMES_STEP:
                return
        elif time.monotonic() < self._next_try:
            self._unknown = min(self._unknown, offset)
            return
        begins = offset if self._unknown is None else min(self._unknown, offset)
        try:
            if self._fd < 0:
                self._open()
            if begins < self._end:
                self._cut(begins)
            if self._count >= MOST_RECORDS:
                self._thin()
            gap = TIMES_RECORD.pack(begins, 0) if begins < offset else b""
            records = gap + TIMES_RECORD.pack(offset, stamp)
            if os.write(self._fd, records) < len(records):
                raise OSError  # the disk is full; reopening the file removes the partial record
            self._count += len(records) // TIMES_RECORD.size
        except OSError:
            self.close()
            self._pause = RETRY_SECONDS[0] if self._unknown is None else 2 * self._pause
            self._pause = min(self._pause, RETRY_SECONDS[1])
            self._next_try = time.monotonic() + self._pause
            self._unknown = begins
        else:
            self._end, self._stamp, self._unknown = offset, stamp, None

    def close(self) -> None:
        """Close the file; the next `note` opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass  # a network volume that failed meanwhile

    def _open(self) -> None:
        try:
            # mkdir, not makedirs: a deleted output folder is not created again.
            os.mkdir(os.path.dirname(self._path), mode=0o755)
        except FileExistsError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd = os.open(self._path, flags, 0o644)
        size = TIMES_RECORD.size
        whole = os.fstat(self._fd).st_size // size
        os.ftruncate(self._fd, whole * size)  # a killed writer left a partial record
        self._count = whole
        self._end = self._offset_of(whole - 1) if whole else 0

    def _cut(self, offset: int) -> None:
        """Remove the records at and after `offset`."""
        low, high = 0, os.fstat(self._fd).st_size // TIMES_RECORD.size
        while low < high:
            middle = (low + high) // 2
            if self._offset_of(middle) < offset:
                low = middle + 1
            else:
                high = middle
        os.ftruncate(self._fd, low * TIMES_RECORD.size)
        self._count = low

    def _thin(self) -> None:
        """Replace the file by a thinned one, which has at most three quarters of `MOST_RECORDS`
        records.
        """
        size = TIMES_RECORD.size
        with open(self._path, "rb") as file:
            data = file.read(self._count * size)
        # Another process may have cut the file, even within a record, so ignore a partial last
        # record.
        records = list(TIMES_RECORD.iter_unpack(data[: len(data) // size * size]))
        newest = len(records) - MOST_RECORDS // 4
        kept = thinned(records[:newest], MOST_RECORDS // 2) + records[newest:]
        folder, name = os.path.split(self._path)
        # If this process is killed here, one of the two files is complete.
        beside = os.path.join(folder, f".{name}.thinned")
        with open(beside, "wb") as file:
            file.write(b"".join(TIMES_RECORD.pack(*record) for record in kept))
        os.replace(beside, self._path)
        os.close(self._fd)
        self._fd = -1
        self._open()

    def _offset_of(self, record: int) -> int:
        size = TIMES_RECORD.size
        data = os.pread(self._fd, size, record * size)
        if len(data) < size:
            raise OSError  # another process has cut the file
        offset: int = TIMES_RECORD.unpack(data)[0]
        return offset


def thinned(records: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Return at most `most` of the records: the first in each of many equal intervals of time, and
    those with an unknown time. If these are still too many, return the last `most` of them.
    """
    pairs = zip(records, records[1:])
    span = sum(max(0, b - a) for (_, a), (_, b) in pairs if a and b)
    # The length of an interval is a power of two milliseconds. So each interval of an earlier
    # thinning lies within one interval of this thinning, and the result is as accurate as if the
    # records had been thinned only once.
    least = (span // most).bit_length()
    kept = records
    for power in range(least, least + 8):
        kept, last = [], -1
        for offset, stamp in records:
            step = (stamp >> power) + 1 if stamp else 0
            if step != last:
                kept.append((offset, stamp))
                last = step
        if len(kept) <= most:
            return kept
    return kept[-most:]


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


# ---- the copy on the log volume ----
# A daemon thread writes output from a bounded queue. If the volume fails (full, gone), or the queue
# fills up because the volume hangs, further output is dropped, its lines are counted, and `problem`
# holds the reason.
# Once the volume accepts writes again, the copy says how many lines are missing and continues at
# the beginning of a line.


QUEUE_BYTES = 4 * 1024 * 1024
HANGS = "the volume does not answer"
REMOVED = "its file was removed"
# Minimum free bytes on a failed volume before the copy resumes; with less, the copy would
# soon stop again.
MIN_FREE_BYTES = 256 * 1024


class LogCopy:
    """A copy of the output, appended to `path`. `wake` is called, from any thread, when the
    attribute `problem` changes. `first` is the first problem, and `dropped` is the number of
    missing lines.
    """

    def __init__(self, path: str, wake: Callable[[], None], limit: int = QUEUE_BYTES) -> None:
        self.path = path
        self.problem = ""
        self.first = ""
        self.dropped = 0
        self._limit = limit
        self._wake = wake
        self._queue: list[bytes] = []
        # for each queued piece of output: the number of bytes before the piece, and its time
        self._stamps: list[tuple[int, int]] = []
        self._size = 0
        self._queued = 0
        self._cut = False
        self._last = b"\n"
        self._begun = False
        self._closing = False
        self._ended = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start writing, including output that is already queued. Call it after the last fork."""
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, data: bytes) -> None:
        """Queue the next piece of output. Never blocks."""
        with self._changed:
            if not self.problem and self._size + len(data) > self._limit:
                self._give_up(HANGS)
            if self.problem:
                self._drop(data)
                return
            if self._cut:  # leave out the rest of a line whose beginning is missing
                rest = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
                self._drop(data[: len(data) - len(rest)])
                data = rest
            if data:
                self._stamps.append((self._queued, now_ms()))
                self._queue.append(data)
                self._size += len(data)
                self._queued += len(data)
                self._changed.notify()

    def close(self, seconds: float) -> None:
        """Wait at most `seconds` until the queue is written; retry once if the copy had stopped."""
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
        self._clear()
        self._size = 0
        self._changed.notify_all()
        self._wake()

    def _clear(self) -> None:
        self._queue.clear()
        self._stamps.clear()
        self._queued = 0

    def _run(self) -> None:
        wait = RETRY_SECONDS[0]
        while not self._write():
            with self._changed:
                if not self._closing:
                    self._changed.wait_for(lambda: self._closing, wait)
                elif self.problem:
                    break
            wait = min(2 * wait, RETRY_SECONDS[1])
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _write(self) -> bool:
        """Write output until `close` is called. Return True, or False if the volume has failed."""
        rest, fd, tried = memoryview(b""), -1, False
        times = LineTimes(self.path) if self.path != os.devnull else None
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
                    self._resume(fd, times)
                    tried = False
                taken = self._take()
                if taken is None:
                    return True
                data, stamps = taken
                rest = memoryview(data)
                begins = os.fstat(fd).st_size
                while rest:
                    count = os.write(fd, rest)
                    self._last, rest = bytes(rest[count - 1 : count]), rest[count:]
                    while times and stamps and stamps[0][0] < len(data) - len(rest):
                        before, stamp = stamps.pop(0)
                        times.note(begins + before, stamp)
                self._written(len(data))
                if linked and not os.fstat(fd).st_nlink:
                    raise OSError(REMOVED)
        except OSError as error:
            with self._changed:
                if not tried and not self.problem:
                    self._give_up(error.strerror or str(error), bytes(rest))
            return False
        finally:
            if times:
                times.close()
            if fd >= 0:
                os.close(fd)

    def _resume(self, fd: int, times: LineTimes | None) -> None:
        """Resume after a failure of the volume. Raises OSError if it still fails."""
        room = os.fstatvfs(fd)
        if self.problem != HANGS and room.f_bavail * room.f_frsize < MIN_FREE_BYTES:
            raise OSError(self.problem)
        end = b"" if self._last == b"\n" else b"\n"
        begins = os.fstat(fd).st_size + len(end)
        left = memoryview(end + b"tfcluster: lines are missing here: %d by now\n" % self.dropped)
        while left:
            left = left[os.write(fd, left) :]
        if times:
            times.note(begins, now_ms())
        self._last = b"\n"
        with self._changed:
            self.problem = ""
            self._wake()

    def _take(self) -> tuple[bytes, list[tuple[int, int]]] | None:
        """Wait for output; return its bytes and their times. Return empty bytes if there is a
        problem, and None if nothing is left to write after `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing or self.problem)
            data, stamps = b"".join(self._queue), list(self._stamps)
            self._clear()
            return (data, stamps) if data or self.problem else None

    def _written(self, count: int) -> None:
        with self._changed:
            self._size = max(0, self._size - count)


def is_within_line(path: str) -> bool:
    """Return whether the last line of a file has no line end, because its writer was killed. The
    next writer then starts a new line.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
    except OSError:
        return False


# ---- the child's pipe and this process's stdout ----


STDOUT = 1
CHUNK = 64 * 1024
# Number of bytes that a pipe takes without blocking when poll() reports it writable.
PAGE = 4096


class Output:
    """The read end of the child's pipe, and the stdout of this process.

    `copied` is called with the reason when the copy stops for the first time, and with "" when it
    resumes for the first time. `heard` is called with each piece of the child's output.
    """

    def __init__(
        self,
        loop: EventLoop,
        copy: LogCopy,
        copied: Callable[[str], None],
        heard: Callable[[bytes], None] = lambda _data: None,
    ) -> None:
        self.last = LastLines()
        self._heard = heard
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
        self._times: LineTimes | None = None
        try:
            if stat.S_ISREG(os.fstat(STDOUT).st_mode):
                self._piece = CHUNK
                self._times = LineTimes(os.readlink("/proc/self/fd/1"))
                if is_within_line("/proc/self/fd/1"):
                    self._pending = b"\n"
        except OSError:
            # There is no stdout, only the copy.
            self._piece = 0
        loop.on_signal(0, self._tell_copy)

    def open(self) -> int:
        """Open a pipe for the child and return its write end, which the caller closes after the
        fork.
        """
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        self._loop.on_fd(self._pipe, select.POLLIN, self._readable)
        return write

    def say(self, text: str, copied: bool = True) -> None:
        """Write a line of TFCluster itself into the task's log, after the child's current line is
        complete. If `copied`, also write it into the copy of the log.
        """
        line = f"tfcluster: {text}\n".encode("utf-8", "replace")
        self._notes.append(line)
        if self._at_line_start:
            self._pass_on(b"")
        if copied:
            self._copy.put(line)

    def drain(self, seconds: float) -> None:
        """Forward what the pipe still holds, and wait at most `seconds` for stdout to take it. Does
        not wait for the end of the pipe, because another process may hold its write end.
        """
        until = time.monotonic() + seconds
        while self._read() and time.monotonic() < until:
            self._write(until)
        self._end_line()
        self._write(until)

    def close(self, seconds: float) -> None:
        """Wait at most `seconds` for the copy, then write to the log how many lines it lacks."""
        self._copy.close(seconds)
        self._tell_copy()
        if self._copy.dropped:
            text = f"lines missing in {self._copy.path}: {self._copy.dropped}"
            self.say(text, copied=False)
        self._end_line()
        self._write(time.monotonic() + 0.1)

    def _end_line(self) -> None:
        """Write the lines from `say` that still wait for the end of the child's last line."""
        if self._notes and not self._at_line_start:
            self._pass_on(b"\n")

    def _readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Forward one piece of output; return False if there was none."""
        if self._pipe < 0:
            return False
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.last.put(data)
            self._heard(data)
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
            # Block the child until stdout takes more.
            self._loop.off_fd(self._pipe)
            self._loop.on_fd(STDOUT, select.POLLOUT, self._resume)

    def _resume(self) -> None:
        self._write(0.0)
        if not self._pending:
            self._loop.off_fd(STDOUT)
            if self._pipe >= 0:
                self._loop.on_fd(self._pipe, select.POLLIN, self._readable)

    def _write(self, until: float) -> None:
        """Write pending bytes to stdout; wait at most until `until` (monotonic) for stdout."""
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
                count = os.write(STDOUT, self._pending[: self._piece])
                self._pending = self._pending[count:]
                if self._times is not None:
                    # The file is opened for appending, so its position after the write is the end
                    # of this piece.
                    self._times.note(os.lseek(STDOUT, 0, os.SEEK_CUR) - count, now_ms())
            except BlockingIOError:
                return
            except OSError:
                # The disk is full or the reader has gone; training continues without its output.
                self._lost += self._pending.count(b"\n")
                self._pending = b""

    def _tell_copy(self) -> None:
        """Report the first stop of the copy of the log, and the first time that it resumes."""
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
