"""Logs of all tasks of a run, read once or followed: from pods while they exist, then from /log.

Each line is yielded once, although pods are created and deleted. The lines of one task come in the
order of printing. The lines of different tasks are sorted by time. But if a line arrives after
later lines were already yielded, it comes after them. `None` is yielded at least twice a second,
however slow the API server or a node is. If some tasks cannot be read, a notice names them. A few
connections poll the tasks in turn, so that 600 tasks can be followed. If /log is not mounted, the
last lines of a deleted pod may be missing, which is reported.

This module polls and does not use streams (`follow=true`). For each of 600 tasks, a stream would
need a thread and a connection in this process, and two connections in the API server. Also, a
stream that died with its node looks like a quiet task. A poll costs the API server about 2 ms. If
each of 500 users follows four tasks, there are 250 polls a second while the tasks are quiet, and
2000 if all tasks print all the time. If each task were polled every 0.4 s, there would be 5000
polls a second in both cases. If 600 tasks print, lines are up to 15 s late; if few tasks print, up
to 1 s.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from ...errors import NotFound
from ...i18n import _
from ...kube.api import access, labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.informer import CacheUpdate, Informer
from ...lifecycle.messages import shorten
from ...spec import Phase, TFCluster
from ..base import Counts, LogLine, every_line, in_time_order
from .pod_log import PodLog

SHORTEST_PAUSE = 1.0
"""Seconds after which a task that printed is polled again."""
LONGEST_PAUSE = 8.0
"""Maximum seconds after which a quiet task is polled again; the pause doubles after each poll
without lines.
"""
REQUESTS_PER_SECOND = 40.0
"""Maximum polls per second for all tasks together, not counting the first poll of each task."""


@dataclass
class _TaskPoll:
    at: float = 0.0
    pause: float = 0.0
    pending: bool = False
    woken: bool = False


class PollSchedule:
    """The times at which the tasks of a run are polled. Each task is identified by its index."""

    def __init__(self, tasks: int) -> None:
        self._turns = [_TaskPoll() for _ in range(tasks)]

    def due(self, now: float, most: int) -> list[int]:
        """Return at most `most` tasks to poll now, the most overdue first. A returned task is not
        due again until `answered` is called for it.
        """
        found = [i for i, turn in enumerate(self._turns) if not turn.pending and turn.at <= now]
        found = sorted(found, key=lambda i: self._turns[i].at)[: max(0, most)]
        for each in found:
            self._turns[each].pending = True
        return found

    def wake(self, task: int) -> None:
        """Make a task due at once, because its pod has changed and may have first or last lines."""
        turn = self._turns[task]
        turn.at, turn.pause, turn.woken = 0.0, 0.0, turn.pending

    def answered(self, task: int, now: float, found: bool, behind: bool) -> None:
        """Record that a poll of a task was answered. `found` is whether the answer had lines. If
        `behind` is true, the task's log has more lines, and the task is polled again without a
        pause.
        """
        turn = self._turns[task]
        turn.pending = False
        behind, turn.woken = behind or turn.woken, False
        turn.pause = (
            SHORTEST_PAUSE if found else min(LONGEST_PAUSE, 2 * (turn.pause or SHORTEST_PAUSE / 2))
        )
        # Each task waits at least `len(…) / REQUESTS_PER_SECOND` seconds, so that all tasks
        # together are polled at most REQUESTS_PER_SECOND times a second.
        turn.at = now if behind else now + max(turn.pause, len(self._turns) / REQUESTS_PER_SECOND)


# -- sorting lines of polled tasks -----------------------------------------------------------------

PATIENCE = 1.0
"""Maximum seconds that a line waits for the answers of other tasks, which may have earlier
lines.
"""
FIRST_PATIENCE = 3.0
"""Maximum seconds that a line waits until every task has answered once."""
MOST_WAITING = 100_000
"""Maximum waiting lines; above this number, the earliest lines are yielded at once."""
MOST_CHARACTERS = 64 << 20
"""Maximum characters of all waiting lines."""


class TimeSorter:
    """A buffer in which each line waits until the other tasks were polled, too. The buffer's size
    is bounded, because the backlog of one busy task may be larger than memory.
    """

    def __init__(self, tasks: int) -> None:
        self._asked = [float("-inf")] * tasks
        self._printed = [0.0] * tasks
        self._waiting: list[tuple[float, int, float, LogLine]] = []
        self._characters = 0
        self._number = itertools.count()

    def put(self, task: int, lines: Sequence[LogLine], asked: float, now: float) -> None:
        """Add the lines with which a task answered a poll that began at `asked`."""
        self._asked[task] = asked
        for line in lines:
            at = self._printed[task] = max(self._printed[task], line.at or 0.0)
            heapq.heappush(self._waiting, (at, next(self._number), now, line))
            self._characters += len(line.text)

    def due(self, now: float) -> Iterator[LogLine]:
        """Yield the lines that need not wait any longer."""
        all_asked = min(self._asked)
        patience = FIRST_PATIENCE if all_asked == float("-inf") else PATIENCE
        until = max(all_asked, now - patience)
        while self._waiting and (
            self._waiting[0][2] <= until
            or len(self._waiting) > MOST_WAITING
            or self._characters > MOST_CHARACTERS
        ):
            yield self._pop()

    def rest(self) -> Iterator[LogLine]:
        """Yield all remaining lines."""
        while self._waiting:
            yield self._pop()

    def _pop(self) -> LogLine:
        line = heapq.heappop(self._waiting)[-1]
        self._characters -= len(line.text)
        return line


# -- tasks that cannot be read ---------------------------------------------------------------------
# One notice names all of these tasks. It comes after some seconds and is repeated only if further
# tasks fail. Another notice comes when all tasks can be read again.

REPORT_AFTER = 3.0
"""Maximum seconds without an answer from a task; after this time the first notice names the task.
"""
REPORT_AGAIN_AFTER = 30.0
"""Minimum seconds between two notices. The second notice comes only if further tasks have become
unreadable.
"""
OWN_PREFIX = "tfcluster: "
"""Prefix of lines that TFCluster itself adds to the output; the runtime in the tasks uses this
prefix, too.
"""


class UnreadableTasks:
    """The tasks that do not answer while the logs are followed."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._why = ""
        self._reported: set[str] = set()
        self._reported_at = 0.0

    def record(self, task: str, why: str, now: float) -> None:
        """Record why a task could not be read; `why` is empty if the task was read. An empty `task`
        stands for the run itself.
        """
        if why:
            self._since.setdefault(task, now)
            self._why = why
        else:
            self._since.pop(task, None)

    def next_notice(self, now: float) -> str | None:
        """Return the notice that is due now, if any."""
        if not self._since:
            had, self._reported = self._reported, set()
            return OWN_PREFIX + _("all tasks can be read again") if had else None
        late = {task for task, since in self._since.items() if now - since >= REPORT_AFTER}
        if late <= self._reported or (
            self._reported and now - self._reported_at < REPORT_AGAIN_AFTER
        ):
            return None
        self._reported, self._reported_at = self._reported | late, now
        return unreadable_notice(sorted(late), self._why) + " " + _("(retrying)")


def unreadable_notice(tasks: Sequence[str], why: str) -> str:
    """Return a notice that these tasks cannot be read. An empty name stands for the run itself."""
    named = [task for task in tasks if task]
    what = shorten(named) if named else _("the run")
    return OWN_PREFIX + _("{what} cannot be read: {why}").format(what=what, why=why)


def cut_off_notice(tasks: Sequence[str], folder: str) -> str:
    """Return a notice that the last lines of tasks were lost with their pods."""
    return OWN_PREFIX + _(
        "the last lines of {tasks} may be missing: their pods are gone, and {folder}, which has "
        "them, is not mounted here"
    ).format(tasks=shorten(list(tasks)), folder=folder)


# -- the logs of a run -----------------------------------------------------------------------------

HEARTBEAT = 0.3
"""Maximum seconds between two items that `RunLogs` yields."""
_TICK = 0.1
CONNECTIONS = 16
_PART = 1 << 20
"""Maximum bytes of a task's log that are read at once. The lines of one such part are yielded
before the next part is read.
"""
REFUSAL_PATIENCE = 10.0
"""Maximum seconds to wait for a server that refuses requests, as servers do for some seconds after
a restart.
"""

QUICK = 2.0
"""If the last read of a log fails within this many seconds, the cause was probably a broken
connection, and the log is read once more.
"""
FINAL_PHASES = {phase.value for phase in Phase if phase.is_final}

Lines = Iterator[LogLine | None]


class RunLogs:
    """The logs of one run.

    Args:
        api: the connection to the API server.
        cluster: the run.
        tasks: the tasks to read.
        folder: the run's output folder, if it is mounted here.
        counts: returns which lines count towards `tail`.
    """

    def __init__(
        self,
        api: Api,
        cluster: TFCluster,
        tasks: Sequence[str],
        folder: Path | None,
        counts: Counts = every_line,
    ) -> None:
        self._api, self._cluster, self._folder = api, cluster, folder
        self._namespace = cluster.metadata.owner
        head = cluster.metadata
        self._selector = labels.label_query(labels.run_selector(head.name, head.uid))
        self._logs = [
            PodLog(api, self._namespace, task, folder and folder / f"{task}.log", counts)
            for task in tasks
        ]
        self._changed: SimpleQueue[CacheUpdate] = SimpleQueue()
        self._unsought = {log.task for log in self._logs}

    def once(self, tail: int | None) -> Lines:
        """Yield every existing line, or the last `tail` lines of each task; yield `None` while
        waiting.

        Raises:
            NotFound: some tasks have no output that can still be read.
            ApiError: no task could be read.
        """
        self._update_pods(self._list_pods(), self._logs)
        with self._pool() as pool:
            yield from self._read_all(pool, tail)
        if all(log.problem is not None and log.empty for log in self._logs):
            assert self._logs[0].problem is not None
            raise self._logs[0].problem
        yield from self._missing_notices()
        self._check(self._cluster.status.started_at is not None)

    def follow(self, tail: int | None) -> Lines:
        """Yield lines as they come, until the run has ended and all lines were yielded. Start with
        the last `tail` lines of each task. Yield `None` at least twice a second.
        """
        name = self._cluster.metadata.name
        collections = [path(kind, self._namespace) for kind in ("tfclusters", "pods")]
        runs = Informer(self._api, collections[0], fields=f"metadata.name={name}")
        pods = Informer(
            self._api, collections[1], selector=self._selector, changed=self._changed.put
        )
        with self._pool() as pool:
            try:
                for informer in (runs, pods):
                    informer.start()
                    self._wait_for(informer)
                yield from self._poll(pool, runs, pods, tail)
                self._update_pods(pods.every(), self._logs)
                started = bool(self._status(runs).get("startTime"))
            finally:
                runs.stop()
                pods.stop()
            yield from self._read_all(pool, tail)
        yield from self._missing_notices()
        self._check(started)

    # -- following ---------------------------------------------------------------------------------

    def _poll(
        self, pool: ThreadPoolExecutor, runs: Informer, pods: Informer, tail: int | None
    ) -> Lines:
        turns, silent = PollSchedule(len(self._logs)), UnreadableTasks()
        asked: dict[Future[list[LogLine]], tuple[int, float]] = {}
        sorter = TimeSorter(len(self._logs))
        said_at = time.monotonic()
        numbers = {log.task: number for number, log in enumerate(self._logs)}
        while True:
            over = self._is_over(runs)
            while not self._changed.empty():
                task = labels.task_of(self._changed.get().object)
                if task in numbers:
                    turns.wake(numbers[task])
            now = time.monotonic()
            due = [] if over else turns.due(now, CONNECTIONS - len(asked))
            self._update_pods(pods.every() if due else [], [self._logs[each] for each in due])
            for each in due:
                asked[pool.submit(self._read_next, self._logs[each], tail)] = each, now
            done = wait(asked, _TICK, FIRST_COMPLETED).done if asked else set()
            for future in done:
                each, at = asked.pop(future)
                log, lines = self._logs[each], future.result()
                sorter.put(each, lines, at, time.monotonic())
                turns.answered(each, time.monotonic(), bool(lines), log.behind)
                silent.record(log.task, self._why(log.problem), time.monotonic())
            yield from sorter.due(time.monotonic())
            if over and not asked:
                yield from sorter.rest()
                return
            silent.record("", self._why(self._problem(runs, pods)), time.monotonic())
            if news := silent.next_notice(time.monotonic()):
                yield LogLine(self._logs[0].task, news)
            if time.monotonic() - said_at >= HEARTBEAT:
                said_at = time.monotonic()
                yield None
            if not done and not asked:
                time.sleep(_TICK)

    def _problem(self, runs: Informer, pods: Informer) -> ApiError | None:
        """Return the error that keeps the informers from receiving changes now; None if there is
        none. Raise the error if the server refuses requests for longer than `REFUSAL_PATIENCE`
        seconds.
        """
        found = next(((i, i.problem) for i in (runs, pods) if i.problem is not None), None)
        if found is None:
            return None
        informer, problem = found
        if not problem.unanswered and time.monotonic() - informer.heard > REFUSAL_PATIENCE:
            raise problem
        return problem

    def _why(self, problem: ApiError | None) -> str:
        return (
            ""
            if problem is None
            else str(access.explain_api_error(problem, server=self._api.server))
        )

    def _is_over(self, runs: Informer) -> bool:
        """Return whether the run has ended, apart from parameter servers that outlive it."""
        status = self._status(runs)
        return not status or status.get("phase") in FINAL_PHASES

    def _status(self, runs: Informer) -> Object:
        """Return the run's status; empty if the run is gone, even if another run has its name
        now.
        """
        head = self._cluster.metadata
        found = runs.get(self._namespace, head.name)
        if found is None or found["metadata"]["uid"] != head.uid:
            return {}
        return found.get("status") or {"phase": "Queued"}

    def _wait_for(self, informer: Informer) -> None:
        while not informer.synced.wait(0.05):
            if informer.problem is not None:
                raise informer.problem

    # -- reading -----------------------------------------------------------------------------------

    @contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        pool = ThreadPoolExecutor(min(CONNECTIONS, len(self._logs)))
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _read_next(self, log: PodLog, tail: int | None) -> list[LogLine]:
        """Return the next lines of a task. If `tail` is set, the first call for a task begins with
        the task's last `tail` lines.
        """
        if tail is not None and log.task in self._unsought:
            log.seek_last(tail)
            if log.problem is not None:
                return []
        self._unsought.discard(log.task)
        return list(log.read(_PART))

    def _read_last(self, log: PodLog, tail: int | None) -> list[LogLine]:
        began = time.monotonic()
        lines = self._read_next(log, tail)
        if log.problem is not None and time.monotonic() - began < QUICK:
            time.sleep(HEARTBEAT)
            lines += self._read_next(log, tail)
        return lines

    def _read_all(self, pool: ThreadPoolExecutor, tail: int | None) -> Lines:
        """Yield all existing lines; while a task's lines are yielded, the logs of the next tasks
        are read.

        The lines are in the order of printing. But if `tail` is None and there are more tasks than
        connections, the lines come task by task.
        """
        if tail is None and len(self._logs) > CONNECTIONS:
            ahead: deque[Future[list[LogLine]]] = deque()
            coming = iter(self._logs)
            for log in self._logs:
                while len(ahead) < CONNECTIONS and (following := next(coming, None)):
                    ahead.append(pool.submit(self._read_last, following, tail))
                future = ahead.popleft()
                yield from _none_until_done(future)
                yield from self._rest(log, future.result())
            return
        asked = [pool.submit(self._read_last, log, tail) for log in self._logs]
        for future in asked:
            yield from _none_until_done(future)
        yield from in_time_order(
            [
                self._rest(log, future.result())
                for log, future in zip(self._logs, asked, strict=True)
            ]
        )

    def _rest(self, log: PodLog, lines: Sequence[LogLine]) -> Iterator[LogLine]:
        """Yield all lines of a task: first `lines`, which were already read, and then the rest of
        the log.
        """
        yield from lines
        while log.behind:
            yield from log.read(_PART)
        if log.missing:
            log.use_copy()
        if log.is_copied:
            yield from log.read(last=True)

    def _update_pods(self, pods: Sequence[Object], logs: Sequence[PodLog]) -> None:
        status = self._cluster.status
        found: dict[str | None, list[Object]] = {}
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
            found.setdefault(labels.task_of(pod), []).append(pod)
        for log in logs:
            attempts = status.attempt + status.restarts.get(log.task, 0)
            log.update_pods(found.get(log.task, []), attempts)

    def _list_pods(self) -> list[Object]:
        where = path("pods", self._namespace)
        return self._api.every(where, labelSelector=self._selector).items

    # -- missing lines -----------------------------------------------------------------------------

    def _missing_notices(self) -> Iterator[LogLine]:
        """Yield notices about tasks whose lines are incomplete."""
        for log in self._logs:
            if log.problem is not None:
                told = unreadable_notice([log.task], self._why(log.problem))
                yield LogLine(log.task, told)
        cut = [log.task for log in self._logs if log.is_cut_off and not log.empty]
        if cut:
            folder = self._cluster.status.paths.get("output", "/log")
            yield LogLine(cut[0], cut_off_notice(cut, folder))

    def _check(self, started: bool) -> None:
        """Raise NotFound if the run has `started` and the output of some tasks cannot be read
        anywhere.
        """
        lost = [log.task for log in self._logs if log.missing and log.empty and not log.problem]
        if not lost or self._folder is not None or not started:
            return
        raise NotFound(
            _(
                "the pods of {tasks} are gone, and the volume that keeps their output is not "
                "mounted here: read {folder} in a notebook of the cluster"
            ).format(tasks=shorten(lost), folder=self._cluster.status.paths.get("output", "/log"))
        )


def _none_until_done(future: Future[list[LogLine]]) -> Iterator[None]:
    while not wait([future], HEARTBEAT).done:
        yield None
