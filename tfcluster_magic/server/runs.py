"""Routes of runs: list, status, stop, delete. `launching.py` has those that start one."""

from __future__ import annotations

import time
from typing import Annotated, Any

from msgspec import Meta

from ..i18n import _
from ..launch.command_line import command_of, line_of, manifest_of
from ..output.documents import to_yaml
from ..output.stream import task_names
from ..problems import problem
from ..spec import Model, TFCluster
from .base import TFClusterHandler, guarded

GONE_WITHIN = 2.0
"""Seconds in which a removal is waited for; one that takes longer is told when it is done."""


class StopBody(Model, frozen=True):
    """What `POST …/stop` takes."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class RunsHandler(TFClusterHandler):
    """`/clusters`."""

    @guarded
    async def get(self) -> None:
        """The runs, newest first, and the number of the last event that they include."""
        push, every = self.service.push, self.flag("all")
        at, sequence = time.time(), push.sequence
        clusters = await self.call(self.service.manager.list, all_runs=every)
        failure = self.service.feed.problem
        self.reply(
            {
                "runs": self.service.views(clusters),
                "at": at,
                "stream": push.stream,
                "sequence": sequence,
                "problem": None if failure is None else problem(failure),
            }
        )


class RunHandler(TFClusterHandler):
    """`/clusters/{ref}`."""

    @guarded
    async def get(self, ref: str) -> None:
        """All of a run's record, and the words that would launch it again."""
        cluster = await self.call(self.service.manager.status, ref)
        words = await self.call(_words_of, cluster)
        self.reply(self.service.view(cluster, whole=True) | words)

    @guarded
    async def delete(self, ref: str) -> None:
        """Remove a run; one that has tasks is stopped first, and gone when they are."""
        with_logs = self.flag("logs")
        cluster = await self.meant(ref)
        if cluster.status.released_at is None:
            why = _("it is being deleted")
            cluster = await self.call(self.service.manager.stop, cluster.metadata.name, why)
            self.service.feed.learn(cluster)
        if await self.service.removals.remove(cluster, with_logs, GONE_WITHIN):
            self.set_status(204)
            self.finish()
        else:
            self.reply(self.service.view(cluster), 202)


class StopHandler(TFClusterHandler):
    """`/clusters/{ref}/stop`."""

    @guarded
    async def post(self, ref: str) -> None:
        """Ask for the end of a run."""
        wish = self.read(StopBody)
        name = (await self.meant(ref)).metadata.name
        cluster = await self.call(self.service.manager.stop, name, wish.reason)
        self.service.feed.learn(cluster)
        self.reply(self.service.view(cluster))


def _words_of(cluster: TFCluster) -> dict[str, Any]:
    """What says all of a run again: for a cell of 60 KB it takes half a second."""
    return {
        "line": line_of(cluster),
        "command": command_of(cluster),
        "yaml": to_yaml(manifest_of(cluster)),
        "tasks": task_names(cluster),
    }


ROUTES = [
    (r"clusters", RunsHandler),
    (r"clusters/([^/]+)", RunHandler),
    (r"clusters/([^/]+)/stop", StopHandler),
]
