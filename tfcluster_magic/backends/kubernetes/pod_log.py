"""The log of one task: the logs of its pods, one after the other, then the copy of the log in /log.

Each line is yielded once, despite broken connections, new attempts, log rotation, a clock that
steps back, and the end of a pod. A cursor marks the last yielded line. Each answer is searched for
that line, and the lines after it are new. Time stamps do not suffice, because clocks may step back
and lines may have equal stamps. So a line is recognized by its place among the lines with the same
stamp, or by the lines before it. If a pod is deleted before its log was read to the end, the rest
is read from the copy.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (read log)
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, path
from ..base import LOOK_BEHIND, Counts, LogLine, every_line
from ..log_files import TaskLog

StampedLine = tuple[str, bytes]
"""A line of a log as the API server returns it: the node's time stamp, and the text."""


@dataclass
class LogCursor:
    """A mark of the last line that was yielded from a log."""

    stamp: str = ""
    same: int = 0
    """Number of consecutive yielded lines, up to this one, that have the same time stamp."""
    length: int = 0
    """Number of bytes of the marked line that were yielded; the line may still grow if it has no
    end yet.
    """

    def move(self, line: StampedLine) -> None:
        """Move the mark to `line`, the line after the marked line."""
        stamp, text = line
        self.same = self.same + 1 if stamp == self.stamp else 1
        self.stamp, self.length = stamp, len(text)

    def since(self, margin: float) -> str:
        """Return the time that is `margin` seconds before the marked line, in whole seconds as the
        API requires.
        """
        zone = self.stamp[29:].replace("Z", "+00:00")
        second = datetime.fromisoformat(self.stamp[:19] + zone)
        return (second - timedelta(seconds=margin)).isoformat()

    def find(self, said: Sequence[StampedLine], cut: bool) -> int | None:
        """Return the index of the marked line in `said`, the API's answer; None if the answer does
        not contain the line. `cut` is whether earlier lines, perhaps with the same stamp, are
        missing in the answer.
        """
        end = next((i for i in range(len(said) - 1, -1, -1) if said[i][0] == self.stamp), None)
        if end is None:
            return None
        begin = end
        while begin and said[begin - 1][0] == self.stamp:
            begin -= 1
        if cut and not begin:
            return None
        return min(begin + self.same - 1, end)


def position_after(lines: Sequence[str], given: Sequence[str]) -> int | None:
    """Return the index in `lines` after the latest occurrence of `given`; None if `given` does not
    occur. The last line of `given` may have grown in `lines`.
    """
    *before, last = given
    for at in range(len(lines) - 1, len(before) - 1, -1):
        if lines[at].startswith(last) and list(lines[at - len(before) : at]) == before:
            return at + 1
    return None


# -- the log ---------------------------------------------------------------------------------------

_SILENCE = 10.0
"""A request for a log fails if no byte arrives for this many seconds."""
_RECENT = 2000
"""Maximum lines of an ordinary request (`tailLines`), which asks for new lines. With `sinceTime`
alone, a kubelet would read the whole file.
"""
_FEW = 5
"""Maximum lines of the first request for new lines if the previous one found none. To find the last
N lines that count, N plus this number of lines are requested first.
"""
_MARGIN = 5.0
"""Requests for new lines begin this many seconds before the time of the marked line. So no line is
missed if the node's clock steps back by less than that.
"""
_KEPT = 20
_REST = ""
"""Used in place of a time stamp for text that continues the previous line."""
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}\S+")


@dataclass
class PodLogState:
    """A pod of a task, and how far its log was read. `over` is whether the pod has ended, so that
    it prints nothing more.
    """

    name: str
    over: bool = False
    here: bool = True
    mark: LogCursor = field(default_factory=LogCursor)
    quiet: bool = False
    """Whether the last answer had nothing new."""
    read: bool = False
    gone: bool = False
    problem: ApiError | None = None
    """The error of the last request if it failed: the node or the API server did not answer."""


class PodLog:
    """The log of one task; not thread-safe.

    Args:
        file: the copy of the log, if its volume is mounted here.
        counts: returns which lines count towards the number of lines that `seek_last` is asked for.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        task: str,
        file: Path | None,
        counts: Counts = every_line,
    ) -> None:
        self.task, self._counts = task, counts
        self._api, self._namespace, self._file = api, namespace, file
        self._pods: dict[str, PodLogState] = {}
        self._open: deque[tuple[PodLogState, Iterator[StampedLine], bool]] = deque()
        self._copy: TaskLog | None = None
        self._rest: Iterator[LogLine] = iter(())
        self._given = 0
        self._tail: int | None = None
        self._sought = False
        self._last: deque[str] = deque(maxlen=_KEPT)
        self.behind = False
        """Whether more can be read at once."""

    @property
    def missing(self) -> bool:
        """Whether the task has no pod, or a pod whose log could not be read to its end."""
        return self._copy is None and (
            not self._pods or self.problem is not None or self.is_cut_off
        )

    @property
    def is_cut_off(self) -> bool:
        """Whether a pod was deleted before its log was read to the end, and there is no copy of the
        log.
        """
        return self._copy is None and any(
            not pod.read and (pod.gone or not pod.here) for pod in self._pods.values()
        )

    @property
    def problem(self) -> ApiError | None:
        """The error that kept an existing pod's log from being read; None if the log or its copy
        was read.
        """
        asked = (pod.problem for pod in self._pods.values() if pod.here)
        return next(filter(None, asked), None) if self._copy is None else None

    @property
    def is_copied(self) -> bool:
        """Whether the lines come from the copy of the log in /log, because the pod is deleted."""
        return self._copy is not None

    @property
    def empty(self) -> bool:
        """Whether no line was ever yielded."""
        return not self._given

    def update_pods(self, pods: Sequence[Object], attempts: int) -> None:
        """Store the current pods of the task, given oldest first; `attempts` is the number of times
        that the task was started.
        """
        present = {str(pod["metadata"]["uid"]): pod for pod in pods}
        for uid, pod in self._pods.items():
            pod.here = uid in present
        if self.is_cut_off or (not self._pods and len(present) < attempts):
            self.use_copy()
        for uid, found in present.items():
            pod = self._pods.setdefault(uid, PodLogState(str(found["metadata"]["name"])))
            pod.over = (found.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def seek_last(self, count: int) -> None:
        """Make the next `read` begin with the last `count` lines for which `counts` is true."""
        self._tail = count
        if self._copy is not None:
            self._copy.seek_last(count)
            return
        self._open.clear()
        self._last.clear()
        for pod in reversed(self._pods.values()):
            found, before, counted = self._last_of(pod, count)
            for line in found[:before]:
                self._advance(pod, line)
            self._open.appendleft((pod, iter(found[before:]), False))
            count -= counted
        self._given, self._sought = 0, True

    def _last_of(self, pod: PodLogState, count: int) -> tuple[list[StampedLine], int, int]:
        """Request lines from the end of a pod's log until they contain `count` lines that count
        (lines for which `counts` is true). Return the lines, the index of the first line to show,
        and how many of the lines from this index on count. That number is smaller than `count` if
        the log has fewer such lines.
        """
        behind = 0 if self._counts is every_line else LOOK_BEHIND
        asked = count + _FEW + behind
        while True:
            found = list(self._request(pod, tailLines=asked))
            known = self._counts([_text(line) for line in found])
            at, counted = len(found), 0
            while at > 0 and counted < count:
                at -= 1
                counted += known[at]
            if (counted == count and at >= behind) or len(found) < asked:
                return found, at, counted
            asked *= 4

    def read(self, most: int | None = None, last: bool = False) -> Iterator[LogLine]:
        """Yield every new line. Stop after `most` bytes, and then set `behind` to True to say that
        there are more lines. With `last`, also yield the last line of the copy in /log if its
        newline is missing.
        """
        if self._copy is not None:
            yield from self._rest
            yield from self._copy.read(most, last)
            self.behind = self._copy.behind
            return
        size, self.behind = 0, False
        for stream in self._streams():
            pod, lines, over = stream
            for line in lines:
                yield self._advance(pod, line)
                size += len(line[1])
                if most is not None and size >= most:
                    self._open.appendleft(stream)
                    self.behind = True
                    return
            pod.read = over and not pod.gone and pod.problem is None

    def use_copy(self) -> None:
        """Continue with the copy of the log, after the lines that were already yielded; do nothing
        if there is no copy.
        """
        if self._copy is not None or self._file is None or not self._file.exists():
            return
        self._copy = TaskLog(self.task, [self._file], self._counts)
        self._open.clear()
        if self._tail is None:
            lines = self._copy.read()
            ahead = [line.text for line in islice(lines, self._given)]
            grown = self._grown(ahead[-1]) if ahead and len(ahead) == self._given else ()
            self._rest = iter([*grown, *lines])
        elif not self._last:
            self._copy.seek_last(self._tail)
        else:
            self._copy.seek_last(_RECENT)
            self._rest = iter(self._after_last(list(self._copy.read())))

    def _after_last(self, lines: list[LogLine]) -> list[LogLine]:
        texts = [line.text for line in lines]
        for count in (len(self._last), 1):  # the copy may lack lines that TFCluster itself printed
            at = position_after(texts, list(self._last)[-count:])
            if at is not None:
                return [*self._grown(lines[at - 1].text), *lines[at:]]
        return lines

    def _grown(self, line: str) -> Sequence[LogLine]:
        """Return the text that was added to the line that was yielded last."""
        more = line[len(self._last[-1]) :] if line.startswith(self._last[-1]) else ""
        return [LogLine(self.task, more)] if more else []

    # -- pods --------------------------------------------------------------------------------------

    def _streams(self) -> Iterator[tuple[PodLogState, Iterator[StampedLine], bool]]:
        while self._open:
            yield self._open.popleft()
        if self._sought:  # `seek_last` has just read these lines
            self._sought = False
            return
        for pod in list(self._pods.values()):
            if pod.here and not pod.read:
                # `over` is read before the log, so that no line printed before the pod's end is
                # missed
                over = pod.over
                yield pod, self._new_lines(pod), over

    def _new_lines(self, pod: PodLogState) -> Iterator[StampedLine]:
        """Return the lines of a pod that have not been yielded yet."""
        if not pod.mark.stamp:
            return self._request(pod)
        found: list[StampedLine] = []
        for query in self._queries(pod, found):
            said = list(self._request(pod, **query))
            if pod.gone or pod.problem is not None:
                return iter(())
            found[:] = said
            cut = len(said) >= query.get("tailLines", len(said) + 1)
            at = pod.mark.find(said, cut)
            if at is not None:
                grown = said[at][1][pod.mark.length :]
                new = [(_REST, grown), *said[at + 1 :]] if grown else said[at + 1 :]
                pod.quiet = not new
                return iter(new)
            if not cut and "sinceTime" in query:
                break
        return iter(found)  # the node has started a new file, so all its lines are new

    def _queries(self, pod: PodLogState, said: list[StampedLine]) -> Iterator[dict[str, Any]]:
        """Yield queries, each for more lines than the one before; the caller stops when it finds
        the marked line. `said` has the answer to the previous query.
        """
        if pod.quiet:
            yield {"tailLines": _FEW}
            if said and said[-1][0] < pod.mark.stamp:
                # The node's clock stepped back: a query by time would hide the lines printed since
                # then.
                yield {"tailLines": _RECENT}
                yield {}
                return
        since = pod.mark.since(_MARGIN)
        yield {"sinceTime": since, "tailLines": _RECENT}
        yield {"sinceTime": since}

    def _request(self, pod: PodLogState, **query: Any) -> Iterator[StampedLine]:
        where = path("pods", self._namespace, pod.name, "log")
        asked: dict[str, Any] = {"container": labels.CONTAINER, "timestamps": "true", **query}
        pod.gone, pod.problem = False, None
        try:
            for line in self._api.lines(where, silence=_SILENCE, **asked):
                stamp, _space, text = line.partition(b" ")
                if not _STAMP.fullmatch(stamp):  # an error text of the kubelet instead of a log
                    words = line.decode("utf-8", "replace")
                    pod.problem = ApiError(500, "InternalError", words)
                    return
                yield stamp.decode(), text
        except ApiError as error:
            if error.unanswered:
                pod.problem = error
            elif error.gone:
                pod.gone = True
            elif error.status != 400:  # 400: the container has not started yet
                raise

    def _advance(self, pod: PodLogState, line: StampedLine) -> LogLine:
        text = _text(line)
        if line[0] == _REST:
            pod.mark.length += len(line[1])
            self._last.append(self._last.pop() + text)
        else:
            pod.mark.move(line)
            self._given += 1
            self._last.append(text)
        return LogLine(self.task, text, _printed_at(pod.mark.stamp))


def _printed_at(stamp: str) -> float | None:
    """Convert a node's time stamp to seconds since the epoch."""
    try:
        zone = stamp[29:].replace("Z", "+00:00")
        return datetime.fromisoformat(stamp[:26] + zone).timestamp()
    except ValueError:
        return None


def _text(line: StampedLine) -> str:
    return line[1].decode("utf-8", "replace").rstrip("\r")
