"""Runs that are being removed: whoever asks does not have to wait for their tasks to end.

Promises one removal of each run however many ask for it, and that the pages hear of it when it is
done. Owns the tasks that wait; one that fails leaves the run as it is then, which is shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..runs.manager import ClusterManager
from ..runs.waiting import ENDING
from ..runs.watcher import Feed
from ..spec import TFCluster
from .worker import READ_WITHIN, Worker

if TYPE_CHECKING:
    from logging import Logger

FILES = 60.0
"""Seconds for removing the output of a run, beyond those for its end."""


class Removals:
    """The removals of one server; used from its loop only."""

    def __init__(self, manager: ClusterManager, feed: Feed, worker: Worker, log: Logger) -> None:
        self._manager, self._feed, self._worker, self._log = manager, feed, worker, log
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def remove(self, run: TFCluster, with_logs: bool, within: float) -> bool:
        """Remove a run that is asked to end; whether it was gone in so many seconds.

        Raises:
            TFClusterError: it cannot be removed, and this was known in time.
        """
        uid = run.metadata.uid
        if uid not in self._under_way:
            task = asyncio.get_running_loop().create_task(self._remove(run, with_logs))
            self._under_way[uid] = task
            task.add_done_callback(lambda done: self._done(run, done))
        task = self._under_way[uid]
        await asyncio.wait([task], timeout=within)
        if task.done():
            task.result()
        return task.done()

    def end(self) -> None:
        """Wait for none of them any more."""
        for task in self._under_way.values():
            task.cancel()

    async def _remove(self, run: TFCluster, with_logs: bool) -> None:
        name = run.metadata.name
        within = READ_WITHIN + run.spec.lifecycle.grace + ENDING + FILES
        await self._worker.call(self._manager.delete, name, with_logs=with_logs, within=within)
        self._feed.removed(name, run.metadata.uid)

    def _done(self, run: TFCluster, task: asyncio.Task[None]) -> None:
        self._under_way.pop(run.metadata.uid, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.warning("TFCluster: %s was not removed: %s", run.metadata.name, error)
