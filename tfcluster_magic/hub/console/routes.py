"""The routes of the console: the page, and the one API behind page and command line.

Promises that whatever changes something, or shows what a program printed, is in the audit log
before it happens. Below the service's prefix:

    GET    api/clusters                       q, owner, phase, reason, sort, limit, offset
    POST   api/clusters/stop                  {"runs": [{"owner", "name", "uid"}], "reason"}
    GET    api/clusters/OWNER/RUN/logs        task, lines
    GET    api/leaks
    DELETE api/leaks                          {"owner", "id"}
    GET    api/audit                          limit, before
    GET    api/audit/export                   JSON lines
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyterhub.utils import url_path_join
from tornado.template import Loader
from tornado.web import Application, StaticFileHandler

from ... import validation
from ...errors import InvalidRequest, Problem, TFClusterError
from ...i18n import _
from ...models import Model, Stop
from . import table
from .audit import AuditLog, Entry, entry
from .handlers import POLICY, Callback, ConsoleHandler, Nothing, problem
from .listing import Listing
from .world import World

PAGES = Path(__file__).parent / "pages"
MOST_AT_ONCE = 500
MOST_REASON = 500
LINES = 100


@dataclass
class Console:
    """What the routes share."""

    world: World
    audit: AuditLog
    prefix: str
    hub: str
    started: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.listing = Listing(self.world)


class Meant(Model, frozen=True):
    """A run that is to be stopped; with `uid` this one and none that has its name since."""

    owner: str
    name: str
    uid: str = ""


class StopRequest(Model, frozen=True):
    """Which runs are to be stopped, and why."""

    runs: tuple[Meant, ...]
    reason: str


class LeakMeant(Model, frozen=True):
    """A leak that is to be removed."""

    owner: str
    id: str


class Page(ConsoleHandler):
    """The page; its script asks for everything else."""

    is_page = True

    async def get(self) -> None:
        """The page, or for who is no administrator one that says so."""
        self._show("console.html", user=self.who)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Tell it on a page."""
        told = problem(status_code, (kwargs.get("exc_info") or (None, None))[1])
        self.set_status(told["status"])
        self._show("refused.html", detail=told["detail"])

    def _show(self, name: str, **words: object) -> None:
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Security-Policy", POLICY.format(nonce=nonce))
        words |= {"nonce": nonce, "hub": self.console.hub, "prefix": self.console.prefix}
        xsrf = self.xsrf_token.decode("ascii") if name == "console.html" else ""
        self.finish(Loader(str(PAGES)).load(name).generate(xsrf=xsrf, **words))


class Clusters(ConsoleHandler):
    """Runs of everyone, a page at a time."""

    async def get(self) -> None:
        """Rows that fit; 304 to who has them already."""
        asked = table.query(_words(self))
        listing = self.console.listing
        seen = await listing.seen()
        about = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
        tag = f'"{self.console.started}-{listing.version}-{about}"'
        self.set_header("Etag", tag)
        self.set_header("Cache-Control", "no-cache")
        if self.request.headers.get("If-None-Match") == tag:
            self.set_status(304)
            self.finish()
            return
        page = table.page(seen.rows, asked)
        fields = {name: getattr(page, name) for name in page.__struct_fields__}
        self.reply({**fields, "missed": seen.missed})


class StopClusters(ConsoleHandler):
    """One or many are stopped, with a reason that each owner sees."""

    async def post(self) -> None:
        """What became of each, in the order of the request."""
        asked = validation.read(self.body(), StopRequest)
        reason = " ".join(asked.reason.split())
        if not reason or len(reason) > MOST_REASON:
            rule = _("say why, in at most {most} characters: the owner reads it")
            raise InvalidRequest(
                [Problem("reason", asked.reason, rule.format(most=MOST_REASON))],
                _("nothing was stopped"),
            )
        if not 0 < len(asked.runs) <= MOST_AT_ONCE:
            rule = _("a whole number from {least} to {most}").format(least=1, most=MOST_AT_ONCE)
            raise InvalidRequest([Problem("runs", len(asked.runs), rule)], _("nothing was stopped"))
        stop = Stop(reason=reason, by=_("admin {name}").format(name=self.who))
        entries = await noted(self, "stop", [(run.owner, run.name) for run in asked.runs], reason)
        done = await asyncio.gather(*(self._stop(run, stop) for run in asked.runs))
        self.console.listing.expire()
        results = [detail or "done" for detail in done]
        await asyncio.to_thread(self.console.audit.ended, entries, results)
        told = [
            {"owner": run.owner, "name": run.name, "ok": not detail, "detail": detail}
            for run, detail in zip(asked.runs, done, strict=True)
        ]
        self.reply({"results": told})

    async def _stop(self, run: Meant, stop: Stop) -> str:
        """Why it was not stopped; nothing when it was."""
        try:
            await self.console.world.stop(run.owner, run.name, run.uid, stop)
        except TFClusterError as error:
            return str(error)
        return ""


class Logs(ConsoleHandler):
    """The last lines of a task. Somebody else's output: each look is in the audit log."""

    async def get(self, owner: str, name: str) -> None:
        """The lines."""
        task = self.get_query_argument("task")
        lines = table.query({"limit": [self.get_query_argument("lines", str(LINES))]}).limit
        entries = await noted(self, "logs", [(owner, f"{name} {task}")])
        audit = self.console.audit
        try:
            told = await self.console.world.tail(owner, name, task, lines)
        except TFClusterError as error:
            await asyncio.to_thread(audit.ended, entries, [str(error)])
            raise
        await asyncio.to_thread(audit.ended, entries, ["shown"])
        self.reply({"owner": owner, "name": name, "task": task, "lines": told})


class Leaks(ConsoleHandler):
    """What nobody owns any more."""

    async def get(self) -> None:
        """Every leak."""
        found = await self.console.world.leaks()
        self.reply({"items": found.items, "missed": found.missed})

    async def delete(self) -> None:
        """Remove one."""
        leak = validation.read(self.body(), LeakMeant)
        entries = await noted(self, "remove leak", [(leak.owner, leak.id)])
        audit = self.console.audit
        try:
            await self.console.world.remove(leak.owner, leak.id)
        except TFClusterError as error:
            await asyncio.to_thread(audit.ended, entries, [str(error)])
            raise
        await asyncio.to_thread(audit.ended, entries, ["done"])
        self.reply({"owner": leak.owner, "id": leak.id})


class Audit(ConsoleHandler):
    """The audit log, newest first."""

    async def get(self) -> None:
        """A page of it; `next` is the `before` of the page after it."""
        limit = table.query({"limit": [self.get_query_argument("limit", "100")]}).limit
        said = self.get_query_argument("before", "")
        before = int(said) if said.isascii() and said.isdigit() and len(said) < 16 else None
        found = await asyncio.to_thread(self.console.audit.page, limit, before)
        self.reply({"items": found.items, "next": found.next})


class Export(ConsoleHandler):
    """The audit log as it is."""

    async def get(self) -> None:
        """Each line of the file."""
        await noted(self, "export audit log", [("", "")])
        self.set_header("Content-Type", "application/jsonl")
        self.set_header("Content-Disposition", 'attachment; filename="audit.jsonl"')
        for block in self.console.audit.export():
            self.write(block)
            await self.flush()


async def noted(
    handler: ConsoleHandler, what: str, whom: Sequence[tuple[str, str]], reason: str = ""
) -> list[Entry]:
    """Write into the audit log what is going to be done; raises when that cannot be written."""
    source = str(handler.request.remote_ip)
    made = [entry(handler.who, what, owner, target, reason, source) for owner, target in whom]
    await asyncio.to_thread(handler.console.audit.asked, made)
    return made


def application(console: Console) -> Application:
    """All routes below the prefix."""
    shared = {"console": console}
    routes: list[tuple[Any, ...]] = [
        ("", Page, shared),
        ("api/clusters", Clusters, shared),
        ("api/clusters/stop", StopClusters, shared),
        ("api/clusters/([^/]+)/([^/]+)/logs", Logs, shared),
        ("api/leaks", Leaks, shared),
        ("api/audit", Audit, shared),
        ("api/audit/export", Export, shared),
        ("oauth_callback", Callback),
        (
            r"static/((?:console|more|shared)\.js|console\.css)",
            StaticFileHandler,
            {"path": str(PAGES)},
        ),
    ]
    below = [(url_path_join(console.prefix, path), *rest) for path, *rest in routes]
    return Application(
        below,
        cookie_secret=secrets.token_bytes(32),
        default_handler_class=Nothing,
        default_handler_args=shared,
    )


def _words(handler: ConsoleHandler) -> dict[str, list[str]]:
    return {name: handler.get_query_arguments(name) for name in handler.request.query_arguments}
