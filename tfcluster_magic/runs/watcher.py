"""Every run as it changes, for views that stay open: the page's push and the panel.

There is one watch however many listen, the newest state of each run is there at any time without
asking the backend, and a volume that hangs stops nothing but progress. Owns two threads while
somebody listens: one watches the records, one reads how far the active runs are. Neither keeps a
process from ending. It never raises for a backend that is away: `problem` says so until it answers
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..backends.base import Removed
from ..errors import BackendUnavailable, TFClusterError
from ..i18n import _
from ..progress.run_observation import Observer
from ..progress.run_progress import Progress
from ..spec import TFCluster
from .manager import ClusterManager

PROGRESS_INTERVAL = 1.0
"""Seconds between looks at how far the active runs are."""
PROGRESS_BUDGET = 0.5
"""Seconds of each look that go to runs that have ended: there may be hundreds after a start."""
RETRY_PAUSES = (1.0, 2.0, 5.0)
"""Seconds before a watch that failed is tried again: the first times, and then always the last."""
SILENCE_LIMIT = 3.0
"""Seconds without a word after which the backend hangs; a watch says something twice a second."""


@dataclass(frozen=True)
class WatchedRun:
    """What is known of a run: its record, its progress, its silent tasks, and that nobody carries
    out requests.
    """

    cluster: TFCluster
    progress: Progress | None = None
    silent: str = ""
    away: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the sentences that are shown beside the record."""
        return tuple(text for text in (self.outage, self.silent) if text)

    @property
    def outage(self) -> str:
        """Return why nobody carries out requests for the run; empty for a run that is over."""
        return "" if _is_over(self) else self.away


Listener = Callable[[str, WatchedRun | None], None]
"""Called with a run's name and what is known of it now, None when it is removed, in a thread of the
watcher: it must not block. With the name "" when `problem` has changed."""


class RunWatcher:
    """The runs of one manager, as they change."""

    def __init__(self, manager: ClusterManager) -> None:
        self._manager = manager
        self._lock = threading.RLock()
        self._known: dict[str, WatchedRun] = {}
        self._removed: set[str] = set()
        self._listeners: tuple[Listener, ...] = ()
        self._ended = threading.Event()
        self._problem: TFClusterError | None = None
        self._told_problem = self._away = ""
        self._heard_at = time.monotonic()
        self._complete = threading.Event()

    @property
    def problem(self) -> TFClusterError | None:
        """Why nothing new is heard of the runs; None while all is well."""
        problem = self._problem
        if (
            problem is None
            and self._listeners
            and time.monotonic() - self._heard_at > SILENCE_LIMIT
        ):
            return BackendUnavailable(
                _("the backend does not answer; what runs goes on, and is shown again by itself")
            )
        return problem

    def known(self) -> dict[str, WatchedRun]:
        """What is known of all runs now, by name."""
        with self._lock:
            return dict(self._known)

    def complete(self, within: float) -> bool:
        """Whether every run is known; waits for it at most so many seconds."""
        return self._complete.wait(within)

    def learn(self, cluster: TFCluster) -> None:
        """Take what a verb has just answered: the watch, which looks now and then, is behind it."""
        with self._lock:
            if self._listeners:
                self._record(self._ended, cluster)

    def removed(self, name: str, uid: str) -> None:
        """Take that somebody has just removed a run: what the watch had read of it is past."""
        with self._lock:
            self._removed.add(uid)
            self._drop(self._ended, name, uid)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every known run, then of each change; returns how to end it."""
        with self._lock:
            first = not self._listeners
            for name, known in self._known.items():
                listener(name, known)
            self._listeners = (*self._listeners, listener)
            if first:
                self._begin()

        def end() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)
                if not self._listeners:
                    self._ended.set()
                    self._complete.clear()
                    self._known.clear()

        return end

    def _begin(self) -> None:
        self._ended = ended = threading.Event()
        self._heard_at, self._problem, self._told_problem = time.monotonic(), None, ""
        self._away = ""
        for work in (self._watch, self._look):
            threading.Thread(
                target=work, args=(ended,), name=f"tfcluster-watcher{work.__name__}", daemon=True
            ).start()

    def _watch(self, ended: threading.Event) -> None:
        failures = 0
        seen: dict[str, str] = {}
        while not ended.is_set():
            self._heard_at = time.monotonic()
            missed = set(self.known())
            try:
                for change in self._manager.backend.watch():
                    if ended.is_set():
                        return
                    failures, self._heard_at = 0, time.monotonic()
                    self._set_problem(ended, None)
                    if isinstance(change, Removed):  # not one of that name that is new since
                        self._drop(ended, change.name, seen.get(change.name, ""))
                    elif change is not None:
                        missed.discard(change.metadata.name)
                        seen[change.metadata.name] = change.metadata.uid
                        self._record(ended, change)
                    else:  # every run has been told: the others went while nothing was heard
                        while missed:
                            self._tell(ended, missed.pop(), None)
                        self._complete.set()
                        self._check_outage(ended)
            except TFClusterError as problem:
                self._set_problem(ended, problem)
            except Exception as error:  # noqa: BLE001 - a watch that ends silently is never noticed
                self._set_problem(ended, TFClusterError(f"{type(error).__name__}: {error}"))
            ended.wait(RETRY_PAUSES[min(failures, len(RETRY_PAUSES) - 1)])
            failures += 1

    def _record(self, ended: threading.Event, cluster: TFCluster) -> None:
        with self._lock:
            before = self._known.get(cluster.metadata.name)
            if cluster.metadata.uid in self._removed:
                return
            if before is None or before.cluster.metadata.uid != cluster.metadata.uid:
                self._tell(ended, cluster.metadata.name, WatchedRun(cluster, away=self._away))
            elif before.cluster != cluster and not _is_outdated(cluster, before.cluster):
                self._tell(ended, cluster.metadata.name, replace(before, cluster=cluster))

    def _check_outage(self, ended: threading.Event) -> None:
        """Check whether somebody carries out requests, while that matters to any run."""
        away = self._manager.outage(known.cluster for known in self.known().values())
        with self._lock:
            if away == self._away or ended.is_set():
                return
            self._away = away
            for name, known in self.known().items():
                self._tell(ended, name, replace(known, away=away))

    def _look(self, ended: threading.Event) -> None:
        """Read progress: of runs that still have tasks again and again, of others to its end."""
        # Of this thread alone: an earlier one may hang with its own.
        observer = Observer(self._unseen)
        done: set[str] = set()
        while not ended.wait(PROGRESS_INTERVAL):
            self._tell_problem(ended)  # a watch that hangs says nothing itself
            current = self.known()
            done &= {known.cluster.metadata.uid for known in current.values()}
            until = time.monotonic() + PROGRESS_BUDGET
            for name, known in sorted(current.items(), key=lambda item: _is_over(item[1])):
                uid = known.cluster.metadata.uid
                if uid in done:
                    continue
                if ended.is_set() or (_is_over(known) and time.monotonic() > until):
                    break
                try:
                    progress = observer.progress(known.cluster)
                    remarks = (
                        observer.silence(known.cluster, time.time()),
                        observer.lost(known.cluster),
                    )
                    silent = "; ".join(filter(None, remarks))
                except Exception:  # noqa: BLE001 - of one run: the others' progress goes on
                    observer.forget(known.cluster)
                    continue
                # not `==`: the loss of a training that has diverged is not equal to itself
                same = repr((known.progress, known.silent)) == repr((progress, silent))
                if same and _is_over(known):
                    done.add(uid)
                    observer.forget(known.cluster)
                elif not same:
                    self._add(ended, name, uid, progress, silent)

    def _unseen(self, folder: str) -> str | None:
        return self._manager.backend.unseen(folder)

    def _add(
        self,
        ended: threading.Event,
        name: str,
        uid: str,
        progress: Progress | None,
        silent: str,
    ) -> None:
        with self._lock:
            now = self._known.get(name)
            if now is not None and now.cluster.metadata.uid == uid:
                self._tell(ended, name, replace(now, progress=progress, silent=silent))

    def _drop(self, ended: threading.Event, name: str, uid: str) -> None:
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.cluster.metadata.uid == uid:
                self._tell(ended, name, None)

    def _tell(self, ended: threading.Event, name: str, known: WatchedRun | None) -> None:
        with self._lock:
            if ended.is_set():
                return
            if known is None:
                self._known.pop(name, None)
            else:
                self._known[name] = known
            for listener in self._listeners:
                listener(name, known)

    def _set_problem(self, ended: threading.Event, problem: TFClusterError | None) -> None:
        with self._lock:
            if not ended.is_set():
                self._problem = problem
                self._tell_problem(ended)

    def _tell_problem(self, ended: threading.Event) -> None:
        with self._lock:
            now = str(self.problem or "")
            if ended.is_set() or now == self._told_problem:
                return
            self._told_problem = now
            for listener in self._listeners:
                listener("", None)


def _is_over(known: WatchedRun) -> bool:
    return known.cluster.status.released_at is not None


def _is_outdated(cluster: TFCluster, known: TFCluster) -> bool:
    """Whether a record was read before the known one: a run does not take back its end."""
    ended = known.status.phase.is_final and not cluster.status.phase.is_final
    return ended or (known.spec.stop is not None and cluster.spec.stop is None)
