"""Routes of archives of users' data.

GET    api/archives
POST   api/archives              {"user", "reason", "remove"}
GET    api/archives/FILE         the archive itself
DELETE api/archives/FILE
"""

from __future__ import annotations

import asyncio
import time

from ....errors import Conflict, InvalidRequest, NotFound, Problem, TFClusterError, one_line
from ....i18n import _
from ....launch import validation
from ....spec import Model, Stop
from ...audit import AuditEntry
from ...auth.accounts import normalized_name
from ..archives import Archives
from ..hub_users import HubUser
from ..sites.base import SiteRun
from .base import MOST_REASON, ConsoleHandler, ConsolePage, write_audit

PATIENCE = 180.0
"""Maximum seconds to wait for a user's servers and clusters to end."""
_BLOCK = 256 * 1024


class ArchiveRequest(Model, frozen=True):
    """The user whose data to pack, and the reason. With `remove`, the user is then deleted from the
    hub.
    """

    user: str
    reason: str
    remove: bool = False


class _ArchivesRoute(ConsoleHandler):
    @property
    def archives(self) -> Archives:
        """The archives of this site. Raises NotFound if the site makes no archives."""
        if self.console.archives is None:
            raise NotFound(_("this site has no archives"))
        return self.console.archives


class ArchivesPage(ConsolePage):
    """The page of archives."""

    title = "Archives"
    template = "archives.html"


class AllArchives(_ArchivesRoute):
    """Lists all archives, and begins new ones."""

    async def get(self) -> None:
        """Answer with all archives, including those in progress."""
        self.reply({"items": await asyncio.to_thread(self.archives.list)})

    async def post(self) -> None:
        """Begin an archive: stop the user's servers and clusters, pack the data, read it back."""
        asked = validation.read_model(self.body(), ArchiveRequest)
        reason, name = one_line(" ".join(asked.reason.split())).strip(), normalized_name(asked.user)
        if not reason or len(reason) > MOST_REASON:
            rule = _("give a reason of at most {most} characters; the owner sees it")
            wrong = Problem("reason", asked.reason, rule.format(most=MOST_REASON))
            raise InvalidRequest([wrong], _("nothing was packed"))
        users = {one.name: one for one in await self.console.people.all()}
        if name not in users:
            raise NotFound(_("the hub has no user {name}").format(name=name))
        if asked.remove and name == self.who:
            raise Conflict(_("you cannot remove yourself"))
        what = "archive and remove" if asked.remove else "archive"
        archives = self.archives
        entries = await write_audit(self, what, [(name, "")], reason)
        stop = Stop(reason=reason, by=_("admin {name}").format(name=self.who))

        async def before() -> None:
            await self._end(users[name], stop)

        async def after(detail: str) -> None:
            await self._after(entries, name, detail, remove=asked.remove)

        try:
            made = archives.begin(name, before, after)
        except TFClusterError as error:
            await asyncio.to_thread(self.console.audit.ended, entries, [str(error)])
            raise
        self.set_status(202)
        self.reply(made)

    async def _after(
        self, entries: list[AuditEntry], name: str, detail: str, *, remove: bool
    ) -> None:
        result = detail or "done"
        try:
            if remove and not detail:
                await self._refuse_who_runs(name)
                await self.console.people.forget(name)
        except TFClusterError as error:
            result = _("the data was packed, but the user was not removed: {why}").format(why=error)
            raise TFClusterError(result) from None
        finally:
            await asyncio.to_thread(self.console.audit.ended, entries, [result])

    async def _end(self, user: HubUser, stop: Stop) -> None:
        """Stop everything that a user runs. Raises TFClusterError."""
        people, site = self.console.people, self.console.site
        for server, state in user.servers.items():
            if state != "stopped":
                await people.stop(user.name, server)
        asked: set[str] = set()
        deadline = time.monotonic() + PATIENCE
        while True:
            left, up, unsure = await self._running(user.name)
            for row in left:
                if row.uid not in asked:
                    asked.add(row.uid)
                    try:
                        await site.stop(user.name, row.name, row.uid, stop)
                    except Conflict:  # the run is already ending
                        continue
            if not left and not up and not unsure:
                return
            if time.monotonic() > deadline:
                if unsure and not left:
                    text = _("nothing was packed, because it is not known what {name} runs: {why}")
                    raise Conflict(text.format(name=user.name, why=unsure))
                names = ", ".join(row.name for row in left) or _("a server")
                text = _("nothing was packed, because {names} is still running")
                raise Conflict(text.format(names=names))
            await asyncio.sleep(0.5)

    async def _running(self, name: str) -> tuple[list[SiteRun], bool, str]:
        """Return a user's active clusters, whether one of their servers runs, and why this may be
        incomplete (empty if it is complete).
        """
        people = self.console.people
        people.expire()
        seen = await self.console.site.runs()  # not cached, unlike a page's rows
        rows = [one for one in seen.rows if one.owner == name and one.active]
        missed = [one.detail for one in seen.missed if one.owner in ("", name)]
        servers = [one.servers for one in await people.all() if one.name == name]
        up = any(state != "stopped" for each in servers for state in each.values())
        return rows, up, "; ".join(missed)

    async def _refuse_who_runs(self, name: str) -> None:
        """Raise Conflict if a cluster or server was started while the data was packed."""
        left, up, unsure = await self._running(name)
        if unsure:
            raise Conflict(unsure)
        if left or up:
            names = ", ".join(row.name for row in left) or _("a server")
            text = _("{names} was started after the data was packed: archive the data again")
            raise Conflict(text.format(names=names))


class OneArchive(_ArchivesRoute):
    """One archive."""

    async def get(self, file: str) -> None:
        """Answer with the archive's content; each download is in the audit log."""
        path = await asyncio.to_thread(self.archives.path, file)
        entries = await write_audit(self, "download archive", [("", file)])
        self.set_header("Content-Type", "application/gzip")
        self.set_header("Content-Length", str(path.stat().st_size))
        self.set_header("Content-Disposition", f'attachment; filename="{file}"')
        with await asyncio.to_thread(path.open, "rb") as out:
            while block := await asyncio.to_thread(out.read, _BLOCK):
                self.write(block)
                await self.flush()
        await asyncio.to_thread(self.console.audit.ended, entries, ["shown"])

    async def delete(self, file: str) -> None:
        """Delete the archive."""
        path = await asyncio.to_thread(self.archives.path, file)
        entries = await write_audit(self, "delete archive", [("", path.name)])
        try:
            await asyncio.to_thread(self.archives.remove, file)
        except TFClusterError as error:
            await asyncio.to_thread(self.console.audit.ended, entries, [str(error)])
            raise
        await asyncio.to_thread(self.console.audit.ended, entries, ["done"])
        self.reply({"file": file})


HANDLERS = (
    ("archives", ArchivesPage),
    ("api/archives", AllArchives),
    ("api/archives/([^/]+)", OneArchive),
)
