"""What the tasks of a run have printed: from pods while these are there, then from copies in /log.

Promises each line once and in order for each task, also while pods come and go; a word at least
twice a second, however long the API server or a node takes; and a sentence where tasks cannot be
read. A few connections ask in turns (`turns` says why), so that 600 tasks can be followed. Where
/log is not mounted, what a pod printed in its last moments may go with it, which is told.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from ...errors import NotFound
from ...i18n import _
from ...kube.api import access, labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.informer import Informer, Update
from ...lifecycle.messages import shorten
from ...spec import Phase, TFCluster
from ..base import Counts, LogLine, every_line
from . import unread
from .pod_log import PodLog
from .turns import Turns
from .unread import Unread

POLL = 0.3
"""Seconds without a word, at most."""
_TICK = 0.1
AT_ONCE = 16
_PART = 1 << 20
"""Bytes of one task that are read before its lines are shown; of so many tasks at once."""
REFUSED = 10.0
"""Seconds that a server which refuses is waited for: after its own restart it does so for some."""

QUICK = 2.0
"""Seconds within which a refusal is a cut connection, and asked again at the end of a run."""
FINAL = {phase.value for phase in Phase if phase.is_final}

Lines = Iterator[LogLine | None]


class Reader:
    """The logs of one run.

    Args:
        api: the connection.
        cluster: the run.
        tasks: those to read.
        folder: the run's output folder, where it is mounted here.
        counts: whether a line is one of the last ones that are wanted.
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
        self._selector = (
            f"{labels.NAME}={cluster.metadata.name},{labels.UID}={cluster.metadata.uid}"
        )
        self._logs = [
            PodLog(api, self._namespace, task, folder and folder / f"{task}.log", counts)
            for task in tasks
        ]
        self._changed: SimpleQueue[Update] = SimpleQueue()
        self._unsought = {log.task for log in self._logs}

    def once(self, tail: int | None) -> Lines:
        """Every line that is there, task by task; None while they are waited for.

        Raises:
            NotFound: nothing of some tasks can be read any more.
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
        """Lines as they come, until the run has ended and all of them were given; None at least
        twice a second.
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
                started = bool(self._status(runs).get("startedAt"))
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
        turns, silent = Turns(len(self._logs)), Unread()
        asked: dict[Future[list[LogLine]], int] = {}
        said_at = time.monotonic()
        numbers = {log.task: number for number, log in enumerate(self._logs)}
        while True:
            over = self._is_over(runs)
            while not self._changed.empty():
                task = labels.task_of(self._changed.get().object)
                if task in numbers:
                    turns.wake(numbers[task])
            now = time.monotonic()
            due = [] if over else turns.due(now, AT_ONCE - len(asked))
            self._update_pods(pods.every() if due else [], [self._logs[each] for each in due])
            for each in due:
                asked[pool.submit(self._read_next, self._logs[each], tail)] = each
            done = wait(asked, _TICK, FIRST_COMPLETED).done if asked else set()
            for future in done:
                each = asked.pop(future)
                log, lines = self._logs[each], future.result()
                yield from lines
                turns.answered(each, time.monotonic(), bool(lines), log.behind)
                silent.record(log.task, self._why(log.problem), time.monotonic())
            if over and not asked:
                return
            silent.record("", self._why(self._problem(runs, pods)), time.monotonic())
            if news := silent.next_notice(time.monotonic()):
                yield LogLine(self._logs[0].task, news)
            if time.monotonic() - said_at >= POLL:
                said_at = time.monotonic()
                yield None
            if not done and not asked:
                time.sleep(_TICK)

    def _problem(self, runs: Informer, pods: Informer) -> ApiError | None:
        """Why changes are not heard of. Raises it when the server refuses for long."""
        found = next(((i, i.problem) for i in (runs, pods) if i.problem is not None), None)
        if found is None:
            return None
        informer, problem = found
        if not problem.unanswered and time.monotonic() - informer.heard > REFUSED:
            raise problem
        return problem

    def _why(self, problem: ApiError | None) -> str:
        return "" if problem is None else str(access.explain(problem, server=self._api.server))

    def _is_over(self, runs: Informer) -> bool:
        """Whether the run has ended; parameter servers that outlive it are not waited for."""
        status = self._status(runs)
        return not status or status.get("phase") in FINAL

    def _status(self, runs: Informer) -> Object:
        """The run's status; empty when the run is gone, perhaps launched again since."""
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
        pool = ThreadPoolExecutor(min(AT_ONCE, len(self._logs)))
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _read_next(self, log: PodLog, tail: int | None) -> list[LogLine]:
        """The next lines of a task, from the last `tail` ones on."""
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
            time.sleep(POLL)
            lines += self._read_next(log, tail)
        return lines

    def _read_all(self, pool: ThreadPoolExecutor, tail: int | None) -> Lines:
        """All that is there, task by task: while one is given the next ones are asked."""
        ahead: deque[Future[list[LogLine]]] = deque()
        coming = iter(self._logs)
        for log in self._logs:
            while len(ahead) < AT_ONCE and (following := next(coming, None)):
                ahead.append(pool.submit(self._read_last, following, tail))
            future = ahead.popleft()
            while not wait([future], POLL).done:
                yield None
            yield from future.result()
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

    # -- what could not be read --------------------------------------------------------------------

    def _missing_notices(self) -> Iterator[LogLine]:
        """What is told of tasks whose lines are not all there."""
        for log in self._logs:
            if log.problem is not None:
                told = unread.cannot_be_read([log.task], self._why(log.problem))
                yield LogLine(log.task, told)
        cut = [log.task for log in self._logs if log.is_cut_off and not log.empty]
        if cut:
            folder = self._cluster.status.paths.get("output", "/log")
            yield LogLine(cut[0], unread.is_cut_off(cut, folder))

    def _check(self, started: bool) -> None:
        """Raise NotFound when what was printed is nowhere that can be reached."""
        lost = [log.task for log in self._logs if log.missing and log.empty and not log.problem]
        if not lost or self._folder is not None or not started:
            return
        raise NotFound(
            _(
                "the pods of {tasks} are gone, and the volume that keeps their output is not "
                "mounted here: read {folder} in a notebook of the cluster"
            ).format(tasks=shorten(lost), folder=self._cluster.status.paths.get("output", "/log"))
        )
