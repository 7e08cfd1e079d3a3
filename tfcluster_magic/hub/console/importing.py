"""A class comes to the hub: accounts, groups and links, line by line.

Promises that a line is done as a whole or not at all, that a wrong one keeps none of the others
from being done, and that a second run changes nothing and says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from urllib.parse import parse_qs, urlencode, urlsplit

from ...errors import InvalidRequest, Problem, TFClusterError
from ...i18n import _
from ...models import Model
from .class_list import Line
from .hub_users import HubUser, HubUsers
from .site import Site


class Imported(Model, frozen=True, omit_defaults=False):
    """What became of a line, or would: `steps` are `account`, `user`, `allowed`, `group`,
    `namespace`; none: it is all there. `link` sets the password of a new account.
    """

    line: int
    name: str
    group: str = ""
    ok: bool = True
    steps: tuple[str, ...] = ()
    link: str = ""
    detail: str = ""


class Import:
    """One import.

    Args:
        hub: the hub's API.
        address: of the hub in the browser of who asks, for links; with a slash at the end.
        site: makes beforehand what a user's notebook needs.
    """

    def __init__(self, hub: HubUsers, address: str, site: Site) -> None:
        self._hub, self._address, self._site = hub, address, site
        self._users: dict[str, HubUser] = {}
        self._accounts: dict[str, str] | None = None
        self._allowed: frozenset[str] | None = None
        self._groups: set[str] = set()
        self._unprepared: frozenset[str] = frozenset()

    async def look(self, lines: Sequence[Line]) -> None:
        """See what there is.

        Raises:
            InvalidRequest: groups are named, and the hub has them from elsewhere.
            BackendUnavailable: the hub does not answer.
        """
        self._hub.expire()
        self._users = {one.name: one for one in await self._hub.all()}
        self._accounts = await self._hub.accounts()
        self._allowed = await self._hub.allowed()
        self._groups = set(await self._hub.groups())
        self._unprepared = await self._site.unprepared({line.name for line in lines})
        if self._accounts is None and (named := [line.group for line in lines if line.group]):
            rule = _(
                "the provider that people sign in with says who is in which group: put them into "
                "it there, and import them without a group"
            )
            raise InvalidRequest([Problem("group", named[0], rule)], _("nothing was imported"))

    def plan(self, line: Line) -> Imported:
        """What would be done for a line."""
        told = Imported(line=line.number, name=line.name, group=line.group)
        if line.problem:
            return _replace(told, ok=False, detail=line.problem)
        user, steps = self._users.get(line.name), []
        if self._accounts is None:
            if user is None:
                steps.append("user")
        elif line.name not in self._accounts:
            steps.append("account")
        elif user is None:
            steps.append("user")
        if self._allowed is not None and line.name not in self._allowed:
            steps.append("allowed")
        if line.group and (user is None or line.group not in user.groups):
            steps.append("group")
        if line.name in self._unprepared:
            steps.append("namespace")
        return _replace(told, steps=tuple(steps))

    async def do(self, line: Line) -> Imported:
        """Do it; what fails half-way is taken back, and told."""
        told = self.plan(line)
        if not told.ok:
            return told
        made, link, steps = False, "", told.steps
        try:
            if line.name not in self._users:
                made = await self._hub.make(line.name)
            if "group" in steps:
                if line.group not in self._groups:
                    await self._hub.make_group(line.group)
                    self._groups.add(line.group)
                await self._hub.join(line.name, line.group)
            if "namespace" in steps:
                await self._site.prepare(line.name)
            if "allowed" in steps:
                await self._hub.allow(line.name)
            if "account" in steps:
                link = self._link(await self._hub.link(line.name))
        except TFClusterError as error:
            detail = str(error)
            if made:
                with contextlib.suppress(TFClusterError):
                    await self._hub.forget(line.name)
            return _replace(told, ok=False, steps=(), detail=detail)
        return _replace(told, link=link)

    def _link(self, of_hub: str) -> str:
        """The hub was asked on an address of its own: the same on that of the browser."""
        code = parse_qs(urlsplit(of_hub).query)["code"][0]
        return f"{self._address}set-password?{urlencode({'code': code})}"


def _replace(told: Imported, **words: object) -> Imported:
    fields = {name: getattr(told, name) for name in told.__struct_fields__}
    return Imported(**{**fields, **words})
