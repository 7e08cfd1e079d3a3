"""Imports a class from a CSV file: creates accounts, users, groups and links.

Each line is imported completely or not at all. A wrong line is reported with its number and does
not stop the others. Importing the same file again changes nothing and says so. The hub gets a few
requests for each batch of lines, and answers other requests between batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec.structs import replace

from ...errors import InvalidRequest, Problem, TFClusterError
from ...i18n import _
from ...spec import Model
from ..auth.accounts import allowed_name
from ..auth.commands import AccountState
from ..user_limits import SitePolicy
from .hub_users import HubUser, HubUsers

MOST_USERS = 2000
_GROUP = re.compile(r"[^\s/,;]{1,255}")
_NAMES = ("name", "username", "user")


class ClassLine(Model, frozen=True):
    """One line: a user and a group (empty for none), or the problem with the line."""

    number: int
    name: str
    group: str = ""
    problem: str = ""


def read_class(text: str, group: str = "") -> list[ClassLine]:
    """Return the lines of a CSV file; `group` is the default group.

    Raises:
        InvalidRequest: the file as a whole is not a list of users.
    """
    if group and not _GROUP.fullmatch(group):
        raise _refused("group", group, group_rule())
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        head = [cell.strip().casefold() for cell in next(rows, [])]
        column = next((head.index(word) for word in _NAMES if word in head), None)
        if column is None:
            rule = _("begin with a line of column names that includes `name`: name,group")
            raise _refused(_("line {number}").format(number=1), ",".join(head), rule)
        of_group = head.index("group") if "group" in head else None
        found = list(_lines(rows, column, of_group, group))
    except csv.Error as error:
        where = _("line {number}").format(number=rows.line_num)
        raise _refused(where, str(error), _("use valid CSV")) from None
    if not 0 < len(found) <= MOST_USERS:
        rule = _("a whole number from {least} to {most}").format(least=1, most=MOST_USERS)
        raise _refused(_("lines with users"), len(found), rule)
    return found


def _lines(
    rows: Iterator[list[str]], column: int, of_group: int | None, group: str
) -> Iterator[ClassLine]:
    seen: dict[str, int] = {}
    while True:
        number = rows.line_num + 1  # type: ignore[attr-defined]
        cells = next(rows, None)
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            continue
        said = cells[column] if column < len(cells) else ""
        theirs = cells[of_group].strip() if of_group is not None and of_group < len(cells) else ""
        try:
            name = allowed_name(said)
        except InvalidRequest as error:
            yield ClassLine(number=number, name=said, problem=str(error.problems[0]))
            continue
        if theirs and not _GROUP.fullmatch(theirs):
            problem = str(Problem("group", theirs, group_rule()))
            yield ClassLine(number=number, name=name, problem=problem)
        elif name in seen:
            text = _("name: got {name!r}; line {number} already has this user: list each user once")
            yield ClassLine(
                number=number, name=name, problem=text.format(name=said, number=seen[name])
            )
        else:
            seen[name] = number
            yield ClassLine(number=number, name=name, group=theirs or group)


def group_rule() -> str:
    """Return the rule for names of groups."""
    return _("use a group name without spaces, slashes, commas and semicolons")


def _refused(field: str, value: object, rule: str) -> InvalidRequest:
    return InvalidRequest([Problem(field, value, rule)], _("nothing was imported"))


# -- import

PORTION = 25
"""Maximum number of lines in a batch. The hub answers no other request while it creates the users
of a batch.
"""


class ImportedLine(Model, frozen=True, omit_defaults=False):
    """The result or the plan of a line.

    `steps` names what the import creates or adds for the line: some of `account`, `user`,
    `allowed`, `group` and `namespace`. It is empty if everything exists already. `link` is where
    the user of a new account sets the password.
    """

    line: int
    name: str
    group: str = ""
    ok: bool = True
    steps: tuple[str, ...] = ()
    link: str = ""
    detail: str = ""


@dataclass
class ImportProgress:
    """The number of lines of an import that are done, and the number of all its lines."""

    done: int = 0
    total: int = 0


class Importing:
    """A lock that allows one import at a time: a second import sees what the first has created."""

    def __init__(self) -> None:
        self.progress = ImportProgress()
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> ImportProgress:
        await self._lock.acquire()
        self.progress = ImportProgress()
        return self.progress

    async def __aexit__(self, *_error: object) -> None:
        self.progress = ImportProgress()
        self._lock.release()


class ClassImport:
    """One import.

    Args:
        hub: the hub's API.
        address: the hub's address in the caller's browser, for links; ends with a slash.
        policy: the site's policy, which also creates the namespaces of users.
        refusal: returns why a user would get no notebook and therefore gets no account; empty if
            they would get one.
    """

    def __init__(
        self, hub: HubUsers, address: str, policy: SitePolicy, refusal: Callable[[str], str]
    ) -> None:
        self._hub, self._address, self._policy, self._refusal = hub, address, policy, refusal
        self._users: dict[str, HubUser] = {}
        self._accounts: dict[str, AccountState] | None = None
        self._allowed: frozenset[str] | None = None
        self._groups: set[str] = set()
        self._unprepared: frozenset[str] = frozenset()

    async def look(self, lines: Sequence[ClassLine]) -> None:
        """Read the existing users, groups and accounts.

        Raises:
            InvalidRequest: groups are named, but a sign-in provider manages the groups.
            BackendUnavailable: the hub does not answer.
        """
        self._hub.expire()
        self._users = {one.name: one for one in await self._hub.all()}
        self._accounts = await self._hub.accounts()
        self._allowed = await self._hub.allowed()
        self._groups = set(await self._hub.groups())
        self._unprepared = await self._policy.unprepared({line.name for line in lines})
        if self._accounts is None and (named := [line.group for line in lines if line.group]):
            rule = _(
                "the sign-in provider decides who is in which group: add them to "
                "the group there, and import them without a group"
            )
            raise InvalidRequest([Problem("group", named[0], rule)], _("nothing was imported"))

    def plan(self, line: ClassLine) -> ImportedLine:
        """Return the planned steps for a line."""
        told = ImportedLine(line=line.number, name=line.name, group=line.group)
        if line.problem:
            return replace(told, ok=False, detail=line.problem)
        user, steps = self._users.get(line.name), []
        if self._accounts is None:
            if user is None:
                steps.append("user")
        elif line.name not in self._accounts:
            steps.append("account")
        elif user is None:
            steps.append("user")
        if steps and (why := self._refusal(line.name)):
            return replace(told, ok=False, detail=why)
        if self._allowed is not None and line.name not in self._allowed:
            steps.append("allowed")
        if line.group and (user is None or line.group not in user.groups):
            steps.append("group")
        if line.name in self._unprepared:
            steps.append("namespace")
        return replace(told, steps=tuple(steps))

    async def do(
        self, lines: Sequence[ClassLine], ended: Callable[[Sequence[ImportedLine]], Awaitable[None]]
    ) -> list[ImportedLine]:
        """Import all lines in batches, call `ended` with the results of each batch, and return all
        results.
        """
        told = [self.plan(line) for line in lines]
        todo = [place for place, one in enumerate(told) if one.ok and one.steps]
        for begin in range(0, len(todo), PORTION):
            places = todo[begin : begin + PORTION]
            done = await self._portion([told[place] for place in places])
            for place, one in zip(places, done, strict=True):
                told[place] = one
            await ended(done)
        return told

    async def _portion(self, plans: Sequence[ImportedLine]) -> list[ImportedLine]:
        """Import a batch; if that fails, import each of its lines separately."""
        made: set[str] = set()
        try:
            return await self._together(plans, made)
        except TFClusterError as error:
            if len(plans) == 1:
                await self._forget(made)
                return [replace(plans[0], ok=False, steps=(), detail=str(error))]
        alone = []
        for plan in plans:
            of_line = made & {plan.name}
            try:
                alone += await self._together([plan], of_line)
            except TFClusterError as error:
                await self._forget(of_line)
                alone.append(replace(plan, ok=False, steps=(), detail=str(error)))
        return alone

    async def _together(self, plans: Sequence[ImportedLine], made: set[str]) -> list[ImportedLine]:
        """Import lines with a few requests for all of them; add the names of new users to the set
        `made`.
        """
        missing = [plan.name for plan in plans if plan.name not in {*self._users, *made}]
        if missing:
            made |= await self._hub.make(missing)
        of_group: dict[str, list[str]] = {}
        for plan in _with(plans, "group"):
            of_group.setdefault(plan.group, []).append(plan.name)
        for group, names in of_group.items():
            if group not in self._groups:
                await self._hub.make_group(group)
                self._groups.add(group)
            await self._hub.join(names, group)
        spaces = (self._policy.prepare(plan.name) for plan in _with(plans, "namespace"))
        for error in await asyncio.gather(*spaces, return_exceptions=True):
            if error is not None:
                raise error
        if names := [plan.name for plan in _with(plans, "allowed")]:
            await self._hub.allow(names)
        names = [plan.name for plan in _with(plans, "account")]
        # Create the links last: the hub returns a link only once, and if a later step failed, the
        # link would be lost.
        links = await self._hub.links(names) if names else {}
        return [
            replace(plan, link=browser_link(links[plan.name], self._address))
            if plan.name in links
            else plan
            for plan in plans
        ]

    async def _forget(self, names: Collection[str]) -> None:
        for name in names:
            with contextlib.suppress(TFClusterError):
                await self._hub.forget(name)


def browser_link(of_hub: str, address: str) -> str:
    """Return the link `of_hub` with the hub's internal address replaced by `address`."""
    code = parse_qs(urlsplit(of_hub).query)["code"][0]
    return f"{address}set-password?{urlencode({'code': code})}"


def _with(plans: Sequence[ImportedLine], step: str) -> list[ImportedLine]:
    return [plan for plan in plans if step in plan.steps]
