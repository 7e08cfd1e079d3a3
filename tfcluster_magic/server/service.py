"""The service that all routes of a server share: manager, worker, events, streams and TensorBoards.

A server has one service, however many tabs are open. The service owns these objects from the start
of the extension to its end. Data about a run that is not in its record, such as its progress, is
cached, so reading it is cheap.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_server.services.contents.fileio import FileManagerMixin

from ..backends.base import Backend
from ..errors import InvalidRequest, Problem, TFClusterError
from ..i18n import _
from ..launch.launch_as_command import portable_source
from ..launch.project import ProjectFinder
from ..output.run_card import run_bundle, run_view
from ..output.usage import graphs_link
from ..progress.run_progress import Progress
from ..runs.manager import ENDING_TIMEOUT, ClusterManager
from ..runs.watcher import RunWatcher, WatchedRun
from ..spec import ProgramKind, TFCluster
from ..web import problem
from .log_streams import LogStreams
from .run_events import RunEvents, register_schema
from .tensorboards import ServerBoards
from .worker import READ_WITHIN, Worker

if TYPE_CHECKING:
    from logging import Logger

GRAPHS_KEPT = 600.0
"""Seconds for which the address of the site with graphs of runs is cached."""


def files_root(serverapp: Any) -> Path | None:
    """Return the root folder of the file browser; None if it shows no files of this machine."""
    contents = serverapp.contents_manager
    if not isinstance(contents, FileManagerMixin):
        return None  # `root_dir` would not be the folder that the browser shows
    return Path(os.path.abspath(contents.root_dir))  # type: ignore[attr-defined]


def browsed_file(root: Path | None, said: str, field: str) -> Path:
    """Return the file at path `said` in the file browser; links out of `root` are allowed.

    A full path below `root` is accepted too.

    Raises:
        InvalidRequest: the path is outside the root, or there is no root.
    """
    if root is None:
        allowed = _(
            "the file browser of this server does not show files of this machine: "
            "use a URL, or `%tfcluster launch` in a notebook"
        )
        raise InvalidRequest([Problem(field, said, allowed)])
    top = os.path.abspath(root)
    browsed, full = (os.path.normpath(p) for p in (os.path.join(top, said.lstrip("/")), said))
    if os.path.isabs(full) and not os.path.lexists(browsed):
        browsed = full  # a full path, as in a shell
    if os.path.commonpath([top, browsed]) == top:
        return Path(browsed)
    allowed = _(
        "use a path below {root}, the root of the file browser; for any other, use "
        "`%tfcluster launch` in a notebook"
    ).format(root=top)
    raise InvalidRequest([Problem(field, said, allowed)])


def browsed_path(root: Path | None, path: str, *, hidden: bool = False) -> str | None:
    """Return the path at which the file browser shows the file with the full path `path`; "" for
    the root. The reverse of `browsed_file`.

    Return None for a path that the file browser does not show: outside the root, or in a hidden
    folder without `hidden`. Existence is not checked, because a volume may hang.
    """
    if root is None or not os.path.isabs(path):
        return None
    for top in (str(root), _real_path(root)):
        found = os.path.relpath(os.path.normpath(path), top)
        parts = found.split(os.sep)
        if parts[0] == os.pardir:
            continue
        if found == os.curdir:
            return ""
        return "/".join(parts) if hidden or not any(p.startswith(".") for p in parts) else None
    return None


@lru_cache(maxsize=8)
def _real_path(root: Path) -> str:
    return os.path.realpath(root)


# Removals of runs. Callers do not wait until the tasks of the run have ended. If several callers
# remove the same run, they share one removal. The pages are notified when it is done. After a
# failure the run keeps its state and shows the reason until the next removal.

REMOVE_OUTPUT_WITHIN = 60.0
"""Maximum seconds for removing a run's output, in addition to the seconds for ending the run."""


class Removals:
    """The removals of runs that one server carries out; used only from the server's event loop."""

    def __init__(
        self,
        manager: ClusterManager,
        watcher: RunWatcher,
        events: RunEvents,
        worker: Worker,
        log: Logger,
    ) -> None:
        self._manager, self._watcher, self._events = manager, watcher, events
        self._worker, self._log = worker, log
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()  # number of waiting callers, by the uid of the run

    async def remove(self, run: TFCluster, with_logs: bool, within: float) -> bool:
        """Remove a run; return whether it was removed within `within` seconds.

        Raises:
            TFClusterError: the removal failed within that time. (A later failure is reported to the
                pages.)
        """
        uid = run.metadata.uid
        if uid not in self._under_way:
            self._watcher.undeleted(run, "")
            task = asyncio.get_running_loop().create_task(self._remove(run, with_logs))
            self._under_way[uid] = task
            task.add_done_callback(lambda done: self._done(run, done))
        task = self._under_way[uid]
        self._waiting[uid] += 1
        try:
            await asyncio.wait([task], timeout=within)
        finally:
            self._waiting -= Counter([uid])
        if task.done():
            task.result()
        return task.done()

    def end(self) -> None:
        """Stop waiting for all removals."""
        for task in self._under_way.values():
            task.cancel()

    async def _remove(self, run: TFCluster, with_logs: bool) -> None:
        name = run.metadata.name
        within = READ_WITHIN + run.spec.lifecycle.grace + ENDING_TIMEOUT + REMOVE_OUTPUT_WITHIN
        await self._worker.call(self._manager.delete, name, with_logs=with_logs, within=within)
        self._watcher.removed(name, run.metadata.uid)

    def _done(self, run: TFCluster, task: asyncio.Task[None]) -> None:
        name, uid = run.metadata.name, run.metadata.uid
        self._under_way.pop(uid, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log.warning("TFCluster: %s was not deleted: %s", name, error)
        self._watcher.undeleted(run, _("It was not deleted: {why}").format(why=error))
        if not self._waiting[uid]:  # waiting callers get the error as their answer
            why = _("{name} was not deleted: {why}").format(name=name, why=error)
            self._events.fail(name, problem(error) | {"detail": why})


class Service:
    """The shared service, created once by the extension.

    Args:
        serverapp: the Jupyter server; `c.ClusterManager` in its configuration applies.
        counts_as_activity: whether running clusters keep an idle server from being stopped.
    """

    def __init__(self, serverapp: Any, counts_as_activity: bool = False) -> None:
        self.serverapp = serverapp
        self.log = serverapp.log
        self._counts_as_activity = counts_as_activity
        self.streams = LogStreams()
        self._projects: ProjectFinder | None = None
        self._graphs_url, self._graphs_expire = "", 0.0
        register_schema(serverapp.event_logger)

    @cached_property
    def manager(self) -> ClusterManager:
        """The cluster manager, configured by the server's `c.ClusterManager`."""
        return ClusterManager(parent=self.serverapp)

    async def backend(self) -> Backend:
        """Return the backend. The manager chooses the backend in a thread, because the choice may
        need a request over the network.
        """
        return await self.worker.call(self._backend)

    def _backend(self) -> Backend:
        return self.manager.backend

    @cached_property
    def worker(self) -> Worker:
        """The worker that runs calls that may block."""
        return Worker()

    @cached_property
    def watcher(self) -> RunWatcher:
        """The watcher of all runs."""
        return RunWatcher(self.manager)

    @cached_property
    def run_events(self) -> RunEvents:
        """The object that sends the changes of runs to the pages."""
        logger = self.serverapp.event_logger
        return RunEvents(self.watcher, logger, self.log, self._watched_view, self._look)

    @cached_property
    def removals(self) -> Removals:
        """The removals in progress."""
        return Removals(self.manager, self.watcher, self.run_events, self.worker, self.log)

    @cached_property
    def boards(self) -> ServerBoards:
        """The TensorBoards that pages show."""
        return ServerBoards(self.manager, self.worker, partial(files_root, self.serverapp))

    def projects(self, root: Path) -> ProjectFinder:
        """Return the finder of projects below the file browser's folder, which caches them."""
        if self._projects is None or self._projects.root != root:
            self._projects = ProjectFinder(root)
        return self._projects

    def start(self) -> None:
        """Start watching in the running loop, unless already started."""
        self.run_events.start()

    async def stop(self) -> None:
        """Stop events, log streams and TensorBoards of this server; clusters keep running."""
        self.run_events.stop()
        self.streams.end()
        self.removals.end()
        await self.boards.close()

    def view(self, cluster: TFCluster, *, whole: bool = False) -> dict[str, Any]:
        """Return a run as pages get it, with data from outside its record."""
        (view,) = self.views([cluster], whole=whole)
        return view

    def views(self, clusters: Sequence[TFCluster], *, whole: bool = False) -> list[dict[str, Any]]:
        """Return runs in the form that pages get, as `view` does for one run."""
        known, views = self.watcher.known(), []
        for cluster in clusters:
            beside = known.get(cluster.metadata.name)
            if beside is None or beside.cluster.metadata.uid != cluster.metadata.uid:
                beside = WatchedRun(cluster)
            # The given record may be newer than the watcher's copy.
            beside = replace(beside, cluster=cluster)
            views.append(self._watched_view(beside, whole=whole))
        return views

    def _watched_view(self, run: WatchedRun, *, whole: bool = False) -> dict[str, Any]:
        view = run_view(
            run.cluster, run.progress, run.notes, away=run.outage, used=run.used, whole=whole
        )
        metadata, status = run.cluster.metadata, run.cluster.status
        link = graphs_link(self._graphs_url, metadata.name, metadata.created_at, status.finished_at)
        return view | {"places": self.places(run.cluster), "graphs": link}

    def look_for_graphs(self) -> None:
        """Request the address of the site that shows graphs of runs, unless the cached one is
        recent.
        """
        if time.monotonic() < self._graphs_expire:
            return
        self._graphs_expire = time.monotonic() + GRAPHS_KEPT
        with suppress(TFClusterError):
            self._graphs_url = self.manager.backend.graphs_url()

    def places(self, cluster: TFCluster) -> dict[str, str]:
        """Return the file browser's paths of a run's `program`, `folder` and `output`, without
        paths that the file browser does not show.
        """
        program = cluster.spec.program
        is_file = program is not None and program.kind in (ProgramKind.FILE, ProgramKind.FOLDER)
        paths = {
            "program": portable_source(program) if is_file else None,
            "folder": program.working_dir if program is not None else None,
            "output": cluster.status.paths.get("output"),
        }
        root = files_root(self.serverapp)
        hidden = bool(getattr(self.serverapp.contents_manager, "allow_hidden", False))
        shown = {
            what: browsed_path(root, path, hidden=hidden) for what, path in paths.items() if path
        }
        return {what: path for what, path in shown.items() if path is not None}

    def progress(self, cluster: TFCluster) -> Progress | None:
        """Return the cached progress of a run; None if it is unknown."""
        known = self.watcher.known().get(cluster.metadata.name)
        if known is None or known.cluster.metadata.uid != cluster.metadata.uid:
            return None
        return known.progress

    def outputs(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the notebook outputs of runs by name; unknown runs are left out. This may block,
        because it reads the usage of the tasks of runs that have just ended.
        """
        known = self.watcher.known()
        found = {name: known[name] for name in names if name in known}
        return {
            name: run_bundle(
                run.cluster,
                run.progress,
                run.notes,
                away=run.outage,
                used=run.used or self.manager.used(run.cluster),
            )
            for name, run in found.items()
        }

    def _look(self) -> None:
        """Report running clusters to Jupyter Server's idle culler if configured.
        `RunEvents` calls this every second.
        """
        if self._counts_as_activity and any(
            k.cluster.active for k in self.watcher.known().values()
        ):
            times = self.serverapp.web_app.settings["last_activity_times"]
            times["tfcluster"] = datetime.now(timezone.utc)
