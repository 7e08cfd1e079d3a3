"""Streams of logs to browsers, read in threads and sent in batches of bounded size.

Batches are sent in the order in which they were read, and are read only as fast as the browser
receives them. Each stream has a thread, because a read blocks while a volume hangs. At most
`MOST_STREAMS` streams are open at a time; one whose thread hangs counts until the thread returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from ..backends.base import LogLine
from ..errors import (
    BackendUnavailable,
    InvalidRequest,
    Problem,
    TensorFlowLog,
    last_overwrite,
    strip_controls,
)
from ..i18n import _
from ..spec import TFCluster
from .expressions import ExpressionRefused, Matcher, TooSlow

MOST_LINES = 500
MOST_CHARACTERS = 256 * 1024
"""Maximum characters in a batch, not counting its last line."""
MOST_STREAMS = 32
HANGS_AFTER = 2.0
"""A stream counts as hanging if its thread still runs this many seconds after its end."""

MOST_SEARCHED = 20_000
"""Maximum characters at the start of a line that a search examines."""
MOST_AROUND = 20_000
"""Maximum lines that `around` yields."""
MOST_CHARACTERS_AROUND = 8 << 20
"""Maximum characters of the lines that `around` yields, not counting the first and last line."""
LOOK_UP = 0.3
"""Seconds after which a reader that skips lines checks whether it is still needed."""

Lines = Iterable[LogLine | None]
Encode = Callable[[list[LogLine]], bytes]


class LogStreams:
    """The log streams of one server."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._open: set[LogStream] = set()

    def begin(self, run: TFCluster, read: Callable[[], Lines], encode: Encode) -> LogStream:
        """Start to read a log in a thread, and return its stream. Raises BackendUnavailable if
        there are too many streams, or a stream of `run` hangs.
        """
        self._open = {stream for stream in self._open if stream.is_alive()}
        if any(stream.uid == run.metadata.uid and stream.hangs for stream in self._open):
            raise BackendUnavailable(
                _(
                    "the storage with the logs of {name} does not answer; the logs are shown "
                    "when it answers again"
                ).format(name=run.metadata.name)
            )
        if len(self._open) >= self._most:
            raise BackendUnavailable(
                _("{count} logs are already open: close some and try again").format(
                    count=len(self._open)
                )
            )
        stream = LogStream(asyncio.get_running_loop(), run.metadata.uid, read, encode)
        self._open.add(stream)
        stream.start()
        return stream

    def end(self) -> None:
        """Close all streams."""
        for stream in self._open:
            stream.close()


class LogStream:
    """A log that is being sent to a browser. A thread reads it, at most two batches ahead."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, uid: str, read: Callable[[], Lines], encode: Encode
    ) -> None:
        self.uid = uid
        self._loop, self._read, self._encode = loop, read, encode
        self._batches: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._taken = threading.Semaphore(2)
        self._closed = threading.Event()
        self._closed_at = math.inf
        context = contextvars.copy_context()  # so that messages are in the request's language
        self._thread = threading.Thread(
            target=context.run, args=(self._work,), name="tfcluster-logs", daemon=True
        )
        self.start, self.is_alive = self._thread.start, self._thread.is_alive

    def close(self) -> None:
        """Stop reading."""
        if not self._closed.is_set():
            self._closed_at = time.monotonic()
        self._closed.set()
        self._taken.release()

    @property
    def hangs(self) -> bool:
        """Whether the thread still runs `HANGS_AFTER` seconds after `close`. A thread that does not
        hang notices `close` within half a second.
        """
        return self.is_alive() and time.monotonic() > self._closed_at + HANGS_AFTER

    async def next(self, within: float | None) -> bytes | None:
        """Return the next batch: b"" if there is nothing new, None after the last batch.

        Raises:
            TimeoutError: nothing arrived within this many seconds, not even b"".
        """
        batch = await asyncio.wait_for(self._batches.get(), within)
        self._taken.release()
        if isinstance(batch, BaseException):
            raise batch
        return batch

    def _work(self) -> None:
        try:
            for batch in _batches(self._read(), self._encode):
                if not self._put(batch):
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - `next` raises the error
            self._put(error)

    def _put(self, batch: bytes | BaseException | None) -> bool:
        self._taken.acquire()
        if self._closed.is_set():
            return False
        try:
            self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)
        except RuntimeError:
            return False  # the server has ended
        return True


def _batches(lines: Lines, encode: Encode) -> Iterator[bytes]:
    """Yield the lines in batches, and b"" whenever there is nothing new."""
    batch: list[LogLine] = []
    characters = 0
    for line in lines:
        if line is not None:
            batch.append(line)
            characters += len(line.text)
            if len(batch) < MOST_LINES and characters < MOST_CHARACTERS:
                continue
        yield encode(batch) if batch else b""
        batch, characters = [], 0
    if batch:
        yield encode(batch)


# -- parts of a log --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberedLine(LogLine):
    """A line with its index in its task's log, from 0."""

    number: int = 0


class Search:
    """A search for log lines. It compares the text of a line in the form in which a page shows it.

    Args:
        text: the text to find.
        tasks: the tasks whose logs are read.
        case: whether upper and lower case differ.
        most: number of matches after which it stops.
        before: a time in Unix seconds; find only lines printed before this time, or at an unknown
            time, and stop once all tasks have reached this time.
        tensorflow_logs: whether to include log lines of TensorFlow's C++ code.
        regex: whether the text is a JavaScript regular expression.
    """

    def __init__(
        self,
        text: str,
        tasks: Collection[str],
        *,
        case: bool = False,
        most: int | None = None,
        before: float | None = None,
        tensorflow_logs: bool = True,
        regex: bool = False,
    ) -> None:
        self._case, self._most, self._before = case, most, before
        self._text, self._regex = text if case or regex else text.casefold(), regex
        self._tasks, self._tensorflow_logs = tasks, tensorflow_logs
        self.printed: Counter[str] = Counter()
        """The number of searched lines of each task."""

    def __call__(self, lines: Lines) -> Lines:
        """Yield the matches among `lines`."""
        found = 0
        earlier = self._without_tensorflow_logs(self._earlier(_numbered(lines, Counter())))
        for line in self._expressed(earlier) if self._regex else self._having_text(earlier):
            yield line
            found += line is not None
            if found == self._most:
                return

    def _earlier(self, lines: Iterable[NumberedLine | None]) -> Iterator[NumberedLine | None]:
        earlier = set(self._tasks)
        for line in lines:
            before = self._before
            if line is None or before is None or line.at is None or line.at < before:
                if line is not None:
                    self.printed[line.task] += 1
                yield line
                continue
            earlier.discard(line.task)
            if not earlier:
                return

    def _without_tensorflow_logs(
        self, lines: Iterable[NumberedLine | None]
    ) -> Iterator[NumberedLine | None]:
        logs: defaultdict[str, TensorFlowLog] = defaultdict(TensorFlowLog)
        for line in lines:
            if (
                line is None
                or self._tensorflow_logs
                or not logs[line.task].hides(self._shown(line))
            ):
                yield line

    def _having_text(self, lines: Iterable[NumberedLine | None]) -> Lines:
        for line in lines:
            if line is None:
                yield None
                continue
            shown = self._shown(line)
            if self._text in (shown if self._case else shown.casefold()):
                yield line

    def _expressed(self, lines: Iterable[NumberedLine | None]) -> Lines:
        """Yield the lines that the expression matches, matched in batches."""
        batch: list[tuple[NumberedLine, str]] = []
        characters = 0
        try:
            with closing(Matcher(self._text, self._case)) as matcher:
                for line in chain(lines, [None]):
                    if line is not None:
                        shown = self._shown(line)
                        batch.append((line, shown))
                        characters += len(shown)
                        if len(batch) < MOST_LINES and characters < MOST_CHARACTERS:
                            continue
                    yield None
                    for answer in matcher.matches([shown for _line, shown in batch]):
                        if answer is None:
                            yield None
                            continue
                        for (each, _shown), matched in zip(batch, answer, strict=True):
                            if matched:
                                yield each
                    batch, characters = [], 0
        except ExpressionRefused as error:
            allowed = _("the server cannot search for {part}: simplify it, or search for a text")
            raise self._refused(allowed.format(part=error)) from None
        except TooSlow:
            allowed = _("it takes too long or too much memory: simplify it, or search for a text")
            raise self._refused(allowed) from None

    def _refused(self, allowed: str) -> InvalidRequest:
        problem = Problem("search", self._text, allowed)
        return InvalidRequest([problem], _("older lines cannot be searched"))

    @staticmethod
    def _shown(line: LogLine) -> str:
        text = line.text[:MOST_SEARCHED]
        # Remove control characters only from lines that have any, because removing them takes
        # longer than the search.
        return text if text.isprintable() else strip_controls(last_overwrite(text))


def around(lines: Lines, task: str, number: int, most: int) -> Lines:
    """Yield at most `most` lines around line `number` of a task; none if there is no such line."""
    before: deque[LogLine] = deque()
    found, size, left = False, 0, most - most // 2
    for line in _numbered(lines, Counter()):
        if line is None:
            yield None
            continue
        if not found and (line.task, line.number) == (task, number):
            yield from before
            found, size = True, 0
        size += len(line.text)
        if found:
            yield line
            left -= 1
            if not left or size > MOST_CHARACTERS_AROUND // 2:
                return
            continue
        before.append(line)
        while len(before) > most // 2 or (len(before) > 1 and size > MOST_CHARACTERS_AROUND // 2):
            size -= len(before.popleft().text)


def _numbered(lines: Lines, given: Counter[str]) -> Iterator[NumberedLine | None]:
    """Yield the lines with their numbers, and regularly None, so that the caller can check whether
    to stop. `given` has the number of lines of each task that are already numbered, and is updated.
    """
    looked_up = time.monotonic()
    for line in lines:
        if line is None or time.monotonic() - looked_up >= LOOK_UP:
            yield None
            looked_up = time.monotonic()
        if line is not None:
            number = given[line.task]
            given[line.task] += 1
            yield NumberedLine(line.task, line.text, line.at, number)
