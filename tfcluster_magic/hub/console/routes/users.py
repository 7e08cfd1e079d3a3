"""Routes of users: their table, importing a class, links, servers and overrides.

GET    api/users                 q, group, server, sort, limit, offset, kept
GET    api/users/import          progress of the current import
POST   api/users/import          {"csv", "group", "dryRun", "withoutNotebook"}
POST   api/users/links           {"names", "reset", "withoutNotebook"}
POST   api/users/servers         {"users", "do": "start"|"stop"|"delete", "server"}
GET    api/overrides
PUT    api/overrides/USER        {"until", "reason", "quota", "storage", "budget"}
DELETE api/overrides/USER
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Literal

from jupyterhub.utils import get_browser_protocol

from ....errors import Conflict, InvalidRequest, NotFound, Problem, TFClusterError
from ....i18n import _, ngettext
from ....launch import validation
from ....output.text import zoned
from ....spec import Model
from ...audit import AuditEntry
from ...auth.accounts import LINK_HOURS, allowed_name, normalized_name
from ...auth.commands import AccountState
from ...tenancy.overrides import Override, checked_override, entitled
from .. import class_import, tables
from ..class_import import ClassImport, ImportedLine, browser_link
from ..hub_users import HubUser
from .base import MOST_AT_ONCE, ConsoleHandler, ConsolePage, query_words, write_audit


class UsersPage(ConsolePage):
    """The page of users."""

    title = "Users"
    template = "users.html"


class Users(ConsoleHandler):
    """All users; each request gets one page of the table."""

    async def get(self) -> None:
        """Answer with the matching rows, and the users whose clusters could not be read."""
        asked = tables.USERS.query(query_words(self))
        console, now = self.console, time.time()
        (users, accounts), look, policy, overrides = await asyncio.gather(
            console.people.recent(),
            console.run_cache.look(kept=asked.kept),
            console.site_policy.policy(),
            console.site_policy.overrides(),
        )

        def entitlement(user: HubUser) -> Any:
            return entitled(policy, user.groups, overrides.get(user.name), now)

        used = console.storage_cache.used()
        found = tables.user_rows(
            users,
            accounts or {},
            entitlement,
            look.seen.rows,
            used,
            has_claims=console.site_policy.has_claims,
        )
        page = tables.USERS.page(found, asked)
        fields: dict[str, Any] = {"items": page.items, "total": page.total, "all": page.all}
        fields |= {"servers": page.counts}
        fields["groups"] = sorted({group for one in users for group in one.groups})
        fields |= {"missed": look.seen.missed, "seenAt": look.at, "note": look.note}
        self.reply({**fields, "ownAccounts": accounts is not None})


class ImportRequest(Model, frozen=True):
    """A CSV file with the users of a class; `group` is for lines without a group."""

    csv: str
    group: str = ""
    dry_run: bool = False
    without_notebook: bool = False
    """Whether to create accounts for people who would get no notebook."""


class ImportUsers(ConsoleHandler):
    """Imports the users of a class."""

    async def get(self) -> None:
        """Answer with the number of lines done and in total; 0 of 0 while nothing is imported."""
        progress = self.console.importing.progress
        self.reply({"done": progress.done, "total": progress.total})

    async def post(self) -> None:
        """Import the users of the class and answer with the result of each line. With `dryRun`,
        answer with the plan for each line instead.
        """
        asked = validation.read_model(self.body(), ImportRequest)
        lines = class_import.read_class(asked.csv, asked.group)
        site = self.console.site
        # A check of each account's programs would take minutes for a class.
        refusal = (
            _no_refusal if asked.without_notebook else partial(site.why_no_notebook, run=False)
        )
        console = self.console
        work = ClassImport(console.people, hub_address(self), console.site_policy, refusal)
        if asked.dry_run:
            await work.look(lines)
            self._tell([work.plan(line) for line in lines], dry_run=True)
            return
        async with self.console.importing as progress:  # one at a time, see `Importing`
            await work.look(lines)
            planned = [one for line in lines if (one := work.plan(line)).ok and one.steps]
            whom = [(one.name, one.group) for one in planned]
            entries = await write_audit(self, "import", whom) if whom else []
            progress.total = len(entries)

            async def ended(told: Sequence[ImportedLine]) -> None:
                these = entries[progress.done : progress.done + len(told)]
                results = [one.detail or ", ".join(one.steps) for one in told]
                await asyncio.to_thread(self.console.audit.ended, these, results)
                progress.done += len(told)

            self._tell(await work.do(lines, ended), dry_run=False)

    def _tell(self, told: Sequence[ImportedLine], *, dry_run: bool) -> None:
        self.reply(
            {
                "dryRun": dry_run,
                "lines": told,
                "changed": sum(bool(one.ok and one.steps) for one in told),
                "wrong": sum(not one.ok for one in told),
            }
        )


def _no_refusal(_name: str) -> str:
    return ""


def hub_address(handler: ConsoleHandler) -> str:
    """Return the hub's address in the caller's browser, with a slash at the end."""
    request = handler.request
    return f"{get_browser_protocol(request)}://{request.host}{handler.console.hub}"


class LinksRequest(Model, frozen=True):
    """The people who get a link that sets a password; missing accounts are created."""

    names: tuple[str, ...]
    reset: bool = False
    """Whether a link replaces an existing password; otherwise the account keeps its password."""
    without_notebook: bool = False
    """Whether to create accounts for people who would get no notebook."""


class Links(ConsoleHandler):
    """Creates links that invite people or reset passwords."""

    async def post(self) -> None:
        """Answer with a link for each name; in case of an error, make no link. `leftAlone` lists
        the people who have a password and keep it. Raises HasPassword if all of them keep it.
        """
        asked = validation.read_model(self.body(), LinksRequest)
        if not 0 < len(asked.names) <= MOST_AT_ONCE:
            rule = _("a whole number from {least} to {most}").format(least=1, most=MOST_AT_ONCE)
            raise InvalidRequest([Problem("names", len(asked.names), rule)], _("no link was made"))
        names = sorted({allowed_name(name) for name in asked.names})
        people = self.console.people
        people.expire()
        if (there := await people.accounts()) is None:
            raise NotFound(_("this hub has no passwords, because users sign in at a provider"))
        new = [name for name in names if name not in there]
        for name in () if asked.without_notebook else new:
            if why := await asyncio.to_thread(self.console.site.why_no_notebook, name):
                text = _("{name} would get no notebook. {why}")
                raise Conflict(text.format(name=name, why=why))
        keep = [name for name in names if not asked.reset and _has_password(there.get(name))]
        if keep == names:
            raise HasPassword(_kept(names))
        names = [name for name in names if name not in keep]
        again = [name for name in names if name in there]
        entries = await write_audit(self, "invite", [(name, "") for name in new])
        entries += await write_audit(self, "new link", [(name, "") for name in again])
        audit = self.console.audit
        try:
            made = await people.links(names, reset=asked.reset)
        except TFClusterError as error:
            await asyncio.to_thread(audit.ended, entries, [str(error)] * len(entries))
            raise
        # No link is made for somebody who has set a password meanwhile.
        results = ["done" if one.owner in made else _kept([one.owner]) for one in entries]
        await asyncio.to_thread(audit.ended, entries, results)
        keep += [name for name in names if name not in made]
        if not made:
            raise HasPassword(_kept(names))
        address = hub_address(self)
        links = {name: browser_link(link, address) for name, link in made.items()}
        self.set_status(201)
        self.reply({"links": links, "leftAlone": sorted(keep), "hours": LINK_HOURS})


class HasPassword(Conflict):
    """The account has a password, and the request does not ask to replace it."""


def _has_password(account: AccountState | None) -> bool:
    return account is not None and account.state == "password"


def _kept(names: Sequence[str]) -> str:
    text = ngettext(
        "{names} already has a password. To replace it: New link… on the page "
        "Users, or `tfcluster admin users invite {names} --reset`",
        "{names} already have passwords. To replace them: New link… on the page "
        "Users, or `tfcluster admin users invite --reset NAME…`",
        len(names),
    )
    return text.format(names=", ".join(names))


class ServersRequest(Model, frozen=True):
    """The users whose server to start, stop or delete; `server` is empty for the default one."""

    users: tuple[str, ...]
    do: Literal["start", "stop", "delete"]
    server: str = ""


class Servers(ConsoleHandler):
    """Starts, stops and deletes servers."""

    async def post(self) -> None:
        """Answer with the result for each user, in the order of the request."""
        asked = validation.read_model(self.body(), ServersRequest)
        if not 0 < len(asked.users) <= MOST_AT_ONCE:
            rule = _("a whole number from {least} to {most}").format(least=1, most=MOST_AT_ONCE)
            raise InvalidRequest([Problem("users", len(asked.users), rule)], _("nothing was done"))
        if asked.do == "delete" and not asked.server:
            rule = _("name a server: the default server cannot be deleted, only stopped")
            raise InvalidRequest([Problem("server", "", rule)], _("nothing was done"))
        whom = [(user, asked.server) for user in asked.users]
        entries = await write_audit(self, f"{asked.do} server", whom)
        done = await asyncio.gather(*(self._tried(asked, user) for user in asked.users))
        results = [detail or "done" for detail in done]
        await asyncio.to_thread(self.console.audit.ended, entries, results)
        told = [
            {"user": user, "ok": not detail, "detail": detail}
            for user, detail in zip(asked.users, done, strict=True)
        ]
        self.reply({"results": told})

    async def _tried(self, asked: ServersRequest, user: str) -> str:
        people = self.console.people
        try:
            if asked.do == "start":
                await people.start(user, asked.server)
            else:
                await people.stop(user, asked.server, remove=asked.do == "delete")
        except TFClusterError as error:
            return str(error)
        return ""


class OverrideRequest(Model, frozen=True):
    """The limits to set for a user until a time, and the reason."""

    until: float
    reason: str
    quota: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    budget: dict[str, Any] = {}


class AllOverrides(ConsoleHandler):
    """All overrides."""

    async def get(self) -> None:
        """Answer with the overrides in force, by user."""
        now = time.time()
        found = await self.console.site_policy.overrides()
        self.reply(
            {
                "items": [
                    {"user": user, "override": each}
                    for user, each in sorted(found.items())
                    if each.until > now
                ]
            }
        )


class OneOverride(ConsoleHandler):
    """The override of one user."""

    async def put(self, name: str) -> None:
        """Set the override; it replaces an earlier one."""
        asked = validation.read_model(self.body(), OverrideRequest)
        now = time.time()
        fields = {field: getattr(asked, field) for field in asked.__struct_fields__}
        override = checked_override(Override(**fields, by=self.who, at=now), now)
        user = await self._user(name)
        entries = await write_audit(
            self, "override", [(user.name, shown(override))], override.reason
        )
        await self._do(entries, self.console.site_policy.override(user.name, user.groups, override))
        self.reply({"user": user.name, "override": override})

    async def delete(self, name: str) -> None:
        """Remove the override."""
        name = normalized_name(name)
        if name not in await self.console.site_policy.overrides():
            raise NotFound(_("{name} has no override").format(name=name))
        users = {one.name: one for one in await self.console.people.all()}
        user = users.get(name, HubUser(name=name))
        entries = await write_audit(self, "clear override", [(name, "")])
        await self._do(entries, self.console.site_policy.override(name, user.groups, None))
        self.reply({"user": name})

    async def _do(self, entries: list[AuditEntry], deed: Awaitable[bool]) -> None:
        audit = self.console.audit
        try:
            await deed
        except TFClusterError as error:
            await asyncio.to_thread(audit.ended, entries, [str(error)])
            raise
        await asyncio.to_thread(audit.ended, entries, ["done"])

    async def _user(self, name: str) -> HubUser:
        for one in await self.console.people.all():
            if one.name == normalized_name(name):
                return one
        text = _("the hub has no user {name}; `tfcluster admin users` lists them")
        raise NotFound(text.format(name=name))


def shown(override: Override) -> str:
    """Return an override as a text for the audit log."""
    parts = {**override.quota, **override.storage, **override.budget}
    what = ", ".join(f"{key} {value}" for key, value in parts.items())
    return f"{what} until {zoned(override.until)}"


HANDLERS = (
    ("users", UsersPage),
    ("api/users", Users),
    ("api/users/import", ImportUsers),
    ("api/users/links", Links),
    ("api/users/servers", Servers),
    ("api/overrides", AllOverrides),
    ("api/overrides/([^/]+)", OneOverride),
)
