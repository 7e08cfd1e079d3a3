"""A watcher of all runs, for views that stay open: the pages that receive events, and the panel in
notebooks.

All listeners share one watch, and the newest state of each run is available without asking the
backend. While there are listeners, one daemon thread watches the records and another reads
progress, so that a hanging volume stops only progress. If the backend does not answer, no error is
raised: `problem` has the reason until the backend answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..backends.base import Removed
from ..errors import BackendUnavailable, TFClusterError
from ..i18n import _
from ..progress.run_observation import Observer
from ..progress.run_progress import Progress
from ..spec import TFCluster
from .manager import ClusterManager

if TYPE_CHECKING:
    from ..usage.summary import TypeUsage

PROGRESS_INTERVAL = 1.0
"""Seconds between reads of the active runs' progress."""
PROGRESS_BUDGET = 0.5
"""Maximum seconds that each reading of progress spends on ended runs. When the watcher starts,
there may be hundreds of ended runs whose progress has not been read yet.
"""
RETRY_PAUSES = (1.0, 2.0, 5.0)
"""Seconds before retries of a failed watch; the last value repeats."""
SILENCE_LIMIT = 3.0
"""Seconds of silence after which the backend counts as hanging; a watch yields twice a second."""


@dataclass(frozen=True)
class WatchedRun:
    """The known state of a run: its record, progress, silent tasks, an outage, why it could not be
    deleted, and, after its end, what its tasks used.
    """

    cluster: TFCluster
    progress: Progress | None = None
    silent: str = ""
    away: str = ""
    undeleted: str = ""
    used: tuple[TypeUsage, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences that views show with the record: about an outage, a failed deletion and
        silent tasks.
        """
        return tuple(text for text in (self.outage, self.undeleted, self.silent) if text)

    @property
    def outage(self) -> str:
        """Why requests for the run are not carried out; empty for a run that is over."""
        return "" if _is_over(self) else self.away


Listener = Callable[[str, WatchedRun | None], None]
"""A function that a watcher thread calls with the name and the state of a run; the state is None if
the run was removed. It must not block. The name is "" when `problem` has changed.
"""


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
        """The error because of which no changes are received; None while changes are received."""
        problem = self._problem
        if (
            problem is None
            and self._listeners
            and time.monotonic() - self._heard_at > SILENCE_LIMIT
        ):
            return BackendUnavailable(
                _(
                    "the backend does not answer; running tasks continue, and the list updates "
                    "automatically"
                )
            )
        return problem

    def known(self) -> dict[str, WatchedRun]:
        """Return what is known of all runs now, by name."""
        with self._lock:
            return dict(self._known)

    def complete(self, within: float) -> bool:
        """Wait at most `within` seconds until all runs are known; return whether they are."""
        return self._complete.wait(within)

    def learn(self, cluster: TFCluster) -> None:
        """Record the state of a run that an action returned; the watch reports it only later."""
        with self._lock:
            if self._listeners:
                self._record(self._ended, cluster)

    def removed(self, name: str, uid: str) -> None:
        """Record a deletion, so that the watch does not show the run again."""
        with self._lock:
            self._removed.add(uid)
            self._drop(self._ended, name, uid)

    def undeleted(self, cluster: TFCluster, why: str) -> None:
        """Record why a run could not be deleted, so that views can show it. `why` is empty while
        the deletion is being tried.
        """
        name, uid = cluster.metadata.name, cluster.metadata.uid
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.cluster.metadata.uid == uid and known.undeleted != why:
                self._tell(self._ended, name, replace(known, undeleted=why))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every known run, then for each change; return a function that ends
        the calls.
        """
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
                    if isinstance(change, Removed):
                        # the run is identified by its uid, so that a newer run of the same name is
                        # not removed
                        self._drop(ended, change.name, seen.get(change.name, ""))
                    elif change is not None:
                        missed.discard(change.metadata.name)
                        seen[change.metadata.name] = change.metadata.uid
                        self._record(ended, change)
                    else:  # every run was reported, so the missing ones have been deleted
                        while missed:
                            self._tell(ended, missed.pop(), None)
                        self._complete.set()
                        self._check_outage(ended)
            except TFClusterError as problem:
                self._set_problem(ended, problem)
            except Exception as error:  # noqa: BLE001 - `problem` must show any failure
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
        """Check for an outage of the operator if any run waits for it."""
        away = self._manager.outage(known.cluster for known in self.known().values())
        with self._lock:
            if away == self._away or ended.is_set():
                return
            self._away = away
            for name, known in self.known().items():
                self._tell(ended, name, replace(known, away=away))

    def _look(self, ended: threading.Event) -> None:
        """Read the progress of active runs repeatedly; read that of ended runs until it does not
        change any more.
        """
        # Each thread has an observer of its own, because an earlier thread may hang in its
        # observer.
        observer = Observer(self._unseen)
        done: set[str] = set()
        while not ended.wait(PROGRESS_INTERVAL):
            self._tell_problem(ended)  # the thread whose watch hangs cannot report this itself
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
                    used = self._manager.used(known.cluster) if _is_over(known) else ()
                except Exception:  # noqa: BLE001 - one run must not stop the progress of the others
                    observer.forget(known.cluster)
                    continue
                # not `==`: a diverged training's loss (NaN) is not equal to itself
                before = (known.progress, known.silent, known.used)
                same = repr(before) == repr((progress, silent, used))
                if same and _is_over(known):
                    done.add(uid)
                    observer.forget(known.cluster)
                elif not same:
                    self._add(ended, name, uid, progress=progress, silent=silent, used=used)

    def _unseen(self, folder: str) -> str | None:
        return self._manager.backend.unseen(folder)

    def _add(self, ended: threading.Event, name: str, uid: str, **seen: Any) -> None:
        with self._lock:
            now = self._known.get(name)
            if now is not None and now.cluster.metadata.uid == uid:
                self._tell(ended, name, replace(now, **seen))

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
    """Return whether `cluster` is an older state of the run than `known`: `known` has ended or was
    asked to stop, and `cluster` does not show this yet.
    """
    ended = known.status.phase.is_final and not cluster.status.phase.is_final
    return ended or (known.spec.stop is not None and cluster.spec.stop is None)
