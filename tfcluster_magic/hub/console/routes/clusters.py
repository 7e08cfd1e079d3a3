"""Routes of everyone's clusters, and of leaks (see `Leak`).

GET    api/clusters                       q, owner, phase, reason, sort, limit, offset, kept
POST   api/clusters/stop                  {"runs": [{"owner", "name", "uid"}], "reason"}
GET    api/clusters/OWNER/RUN/logs        task, lines
GET    api/leaks
DELETE api/leaks                          {"owner", "id"}
GET    api/home/USER                      one user's clusters; only for the hub's home page
"""

from __future__ import annotations

import asyncio
import hmac
import os
from typing import Any

import msgspec
from msgspec.structs import replace
from tornado.web import HTTPError

from ....errors import TFClusterError
from ....i18n import _
from ....launch import validation
from ....lifecycle.messages import shown
from ....spec import Model, Phase, Stop
from .. import tables
from ..service import KEY, home_key
from ..sites.base import runs_for_home
from .base import (
    ChosenObject,
    ConsoleHandler,
    ConsolePage,
    change_each,
    is_known,
    query_words,
    write_audit,
)

LINES = 100


class ClustersPage(ConsolePage):
    """The page of clusters and leaks."""

    title = "Clusters"
    template = "console.html"


class StopRequest(Model, frozen=True):
    """Runs to stop, and why."""

    runs: tuple[ChosenObject, ...]
    reason: str


class LeakToRemove(Model, frozen=True):
    """A leak to remove."""

    owner: str
    id: str


class Clusters(ConsoleHandler):
    """Everyone's runs; each request gets one page of the table."""

    async def get(self) -> None:
        """Answer with the matching rows and the time at which they were read; 304 if the caller has
        them already.
        """
        asked = tables.RUNS.query(query_words(self))
        cache = self.console.run_cache
        look = await cache.look(kept=asked.kept)
        if is_known(self, asked, look):
            return
        page = tables.RUNS.page(look.seen.rows, asked)
        graphs = await self.console.site.graphs(page.items)
        rows = [
            replace(row, message=shown(row), messages=(), graphs=graphs.get(row.uid, ""))
            for row in page.items
        ]
        fields: dict[str, Any] = {"items": rows, "total": page.total, "all": page.all}
        fields["phases"] = {phase.value: page.counts[phase.value] for phase in Phase}
        self.reply({**fields, "missed": look.seen.missed, "seenAt": look.at, "note": look.note})


class StopClusters(ConsoleHandler):
    """Stops runs with a reason that each owner sees."""

    async def post(self) -> None:
        """Answer with the result for each run, in the order of the request."""
        asked = validation.read_model(self.body(), StopRequest)
        by = _("admin {name}").format(name=self.who)

        async def stop(run: ChosenObject, reason: str) -> None:
            stop = Stop(reason=reason, by=by)
            await self.console.site.stop(run.owner, run.name, run.uid, stop)

        await change_each(self, "stop", asked.runs, asked.reason, stop)


class Logs(ConsoleHandler):
    """The last log lines of a task; each reading is in the audit log."""

    is_audited = True

    async def get(self, owner: str, name: str) -> None:
        """Answer with the last log lines of the task."""
        task = self.get_query_argument("task")
        lines = tables.row_limit(self.get_query_argument("lines", str(LINES)))
        entries = await write_audit(self, "logs", [(owner, f"{name} {task}")])
        audit = self.console.audit
        try:
            told = await self.console.site.tail(owner, name, task, lines)
        except TFClusterError as error:
            await asyncio.to_thread(audit.ended, entries, [str(error)])
            raise
        await asyncio.to_thread(audit.ended, entries, ["shown"])
        self.reply({"owner": owner, "name": name, "task": task, "lines": told})


class LeaksRoute(ConsoleHandler):
    """Leaks of the site."""

    async def get(self) -> None:
        """Answer with every leak."""
        found = await self.console.site.leaks()
        self.reply({"items": found.items, "missed": found.missed})

    async def delete(self) -> None:
        """Remove a leak."""
        leak = validation.read_model(self.body(), LeakToRemove)
        entries = await write_audit(self, "remove leak", [(leak.owner, leak.id)])
        audit = self.console.audit
        try:
            await self.console.site.remove(leak.owner, leak.id)
        except TFClusterError as error:
            await asyncio.to_thread(audit.ended, entries, [str(error)])
            raise
        await asyncio.to_thread(audit.ended, entries, ["done"])
        self.reply({"owner": leak.owner, "id": leak.id})


class UserClusters(ConsoleHandler):
    """The runs of one user, for the hub, which has authenticated the user."""

    async def prepare(self) -> None:
        """Admit only the hub, by its key. Raises HTTPError 403."""
        key = home_key(os.environ["JUPYTERHUB_API_TOKEN"])
        if not hmac.compare_digest(self.request.headers.get(KEY, "").encode(), key.encode()):
            raise HTTPError(403, "only the hub's home page may use this")
        self.expect_body()

    async def get(self, name: str) -> None:
        """Answer with the user's runs, as `UserRuns`."""
        found = runs_for_home(await self.console.site.runs_of(name))
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(found))


HANDLERS = (
    ("", ClustersPage),
    ("api/clusters", Clusters),
    ("api/clusters/stop", StopClusters),
    ("api/clusters/([^/]+)/([^/]+)/logs", Logs),
    ("api/leaks", LeaksRoute),
    ("api/home/([^/]+)", UserClusters),
)
