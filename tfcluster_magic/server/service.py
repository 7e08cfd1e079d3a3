"""What the routes of one server share: the door to the clusters, the worker, what is being watched.

Owns the life of these, from the start of the extension to its end; one for each server, however
many tabs are open. What it knows of a run beside its record was read before: asking is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any

from ..backends.base import Backend
from ..output.view import run_view
from ..runs.manager import ClusterManager
from ..runs.watcher import Feed, Known
from ..spec import TFCluster
from .files import files_root
from .logs import Streams
from .push import Push, register
from .removals import Removals
from .tensorboards import ServerBoards
from .worker import Worker


class Service:
    """Made once by the extension; `serverapp` is the Jupyter server that it serves.

    Args:
        serverapp: the server; `c.ClusterManager` of its configuration counts.
        counts_as_activity: whether running clusters keep an idle server from being stopped.
    """

    def __init__(self, serverapp: Any, counts_as_activity: bool = False) -> None:
        self.serverapp = serverapp
        self.log = serverapp.log
        self._counts_as_activity = counts_as_activity
        self.streams = Streams()
        register(serverapp.event_logger)

    @cached_property
    def manager(self) -> ClusterManager:
        """The door to the clusters, configured by `c.ClusterManager` of the server."""
        return ClusterManager(parent=self.serverapp)

    async def backend(self) -> Backend:
        """The world of the clusters. Which one it is may have to be asked, so never on the loop."""
        return await self.worker.call(self._backend)

    def _backend(self) -> Backend:
        return self.manager.backend

    @cached_property
    def worker(self) -> Worker:
        """Calls that may block."""
        return Worker()

    @cached_property
    def feed(self) -> Feed:
        """Every run as it changes."""
        return Feed(self.manager)

    @cached_property
    def run_events(self) -> Push:
        """What tells the pages."""
        return Push(self.feed, self.serverapp.event_logger, self.log, self._look)

    @cached_property
    def removals(self) -> Removals:
        """The runs that are being removed."""
        return Removals(self.manager, self.feed, self.worker, self.log)

    @cached_property
    def boards(self) -> ServerBoards:
        """The TensorBoards that pages see."""
        return ServerBoards(self.manager, self.worker, partial(files_root, self.serverapp))

    def start(self) -> None:
        """Begin to watch, in the running loop; what has begun goes on."""
        self.run_events.start()

    async def stop(self) -> None:
        """Give back what this server holds. Clusters go on."""
        self.run_events.stop()
        self.streams.end()
        self.removals.end()
        await self.boards.close()

    def view(self, cluster: TFCluster, *, whole: bool = False) -> dict[str, Any]:
        """A run as the page gets it, with what is known beside its record."""
        (view,) = self.views([cluster], whole=whole)
        return view

    def views(self, clusters: Sequence[TFCluster], *, whole: bool = False) -> list[dict[str, Any]]:
        """Runs as the page gets them, each as `view`."""
        known, views = self.feed.known(), []
        for cluster in clusters:
            beside = known.get(cluster.metadata.name)
            if beside is None or beside.cluster.metadata.uid != cluster.metadata.uid:
                beside = Known(cluster)
            beside = replace(beside, cluster=cluster)  # it may be over by now
            view = run_view(cluster, beside.progress, beside.notes, away=beside.outage, whole=whole)
            views.append(view)
        return views

    def _look(self) -> None:
        """Every second: tell Jupyter Server's idle culler of running clusters, when asked to."""
        if self._counts_as_activity and any(k.cluster.active for k in self.feed.known().values()):
            times = self.serverapp.web_app.settings["last_activity_times"]
            times["tfcluster"] = datetime.now(timezone.utc)
