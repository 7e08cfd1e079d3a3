"""The hub's own API as the console asks it: users, groups, servers, accounts.

It asks with the console's own token, a refusal of the hub is an error with the hub's sentence, and
a name from people is one step of a path and no more.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from ...errors import (
    BackendUnavailable,
    Conflict,
    InvalidRequest,
    NotFound,
    Problem,
    TFClusterError,
)
from ...i18n import _
from ...kube.api.decoding import epoch_seconds
from ...spec import Model
from ..auth.commands import AccountState
from .cached_reading import CachedReading

PAGE = 50
"""Users in one answer: the hub does nothing else while it writes one, and has others to serve."""
WITHIN = 20.0
FRESH, OLD, PATIENCE = 2.0, 10.0, 0.05
"""Seconds in which a listing is new enough; in which it will do where the hub takes its time; for
which a new one is waited for then.
"""
_PAGES = "application/jupyterhub-pagination+json"


class HubUser(Model, frozen=True):
    """A user as the hub has them; `servers` are names ("" is the one) with their states."""

    name: str
    admin: bool = False
    groups: tuple[str, ...] = ()
    last_seen: float | None = None
    servers: dict[str, str] = {}


class HubUsers:
    """The API; to be used from one loop."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._env = os.environ if environ is None else environ
        self._users = CachedReading(self._all, FRESH, OLD, PATIENCE)
        self._own_passwords: bool | None = None
        self._accounts = CachedReading(self._all_accounts, FRESH, OLD, PATIENCE)

    async def all(self) -> list[HubUser]:
        """Every user. Raises BackendUnavailable."""
        return await self._users.seen(FRESH)

    async def recent(self) -> tuple[list[HubUser], dict[str, AccountState] | None]:
        """Every user, and `accounts`, as they were some seconds ago at most: a hub of hundreds says
        so slower than somebody types. Raises BackendUnavailable.
        """
        return await asyncio.gather(self._users.seen(), self._accounts.seen())

    def expire(self) -> None:
        """Something was changed: who asks next is told what is so now."""
        self._users.expire()
        self._accounts.expire()

    async def groups(self) -> list[str]:
        """The names of all groups. Raises BackendUnavailable."""
        return sorted(one["name"] for one in await self._pages("groups"))

    async def accounts(self) -> dict[str, AccountState] | None:
        """What accounts of the hub's own there are, with their states; None: it has none at all."""
        return await self._accounts.seen(FRESH)

    async def own_passwords(self) -> bool:
        """Return whether people sign in with passwords of the hub's own; False if it is away."""
        if self._own_passwords is None:
            try:
                self._own_passwords = await self.accounts() is not None
            except TFClusterError:
                return False
        return self._own_passwords

    async def allowed(self) -> frozenset[str] | None:
        """Who may sign in at a provider beside members of groups; None: there is no such list."""
        try:
            return frozenset((await self.ask("GET", "allowed"))["allowed"])
        except NotFound:
            return None

    async def allow(self, names: Collection[str]) -> None:
        """Put some on that list, all of them or none."""
        await self.ask("POST", "allowed", {"names": list(names)})

    async def make(self, names: Collection[str]) -> frozenset[str]:
        """Have users of these names; those of them whom there were not."""
        try:
            made = await self.ask("POST", "users", {"usernames": list(names)})
        except Conflict:  # there are all of them
            return frozenset()
        finally:
            self.expire()
        return frozenset(one["name"] for one in made)

    async def forget(self, name: str) -> None:
        """Delete a user, their servers and their account."""
        await self.ask("DELETE", f"users/{_step(name)}")
        self.expire()

    async def make_group(self, group: str) -> None:
        """Have a group of this name."""
        try:
            await self.ask("POST", f"groups/{_step(group)}", {})
        except Conflict:
            return

    async def join(self, names: Collection[str], group: str) -> None:
        """Put users into a group, all of them or none."""
        await self.ask("POST", f"groups/{_step(group)}/users", {"users": list(names)})
        self.expire()

    async def links(self, names: Collection[str], *, reset: bool = False) -> dict[str, str]:
        """Links with which these accounts get a password; all are made if need be, or none.

        Whoever has a password keeps it and gets no link; with `reset` the link replaces it.
        """
        made = await self.ask("POST", "accounts/links", {"names": list(names), "reset": reset})
        self.expire()
        return dict(made["links"])

    async def start(self, name: str, server: str = "") -> None:
        """Begin to start a server."""
        await self.ask("POST", _server(name, server))
        self.expire()

    async def stop(self, name: str, server: str = "", *, remove: bool = False) -> None:
        """Begin to stop a server; with `remove` it is forgotten, too."""
        await self.ask("DELETE", _server(name, server), {"remove": True} if remove else None)
        self.expire()

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request, and its answer from JSON.

        Raises:
            NotFound, Conflict, InvalidRequest: as the hub answers.
            BackendUnavailable: it does not, or not with what it should.
        """
        try:
            answer = await AsyncHTTPClient().fetch(
                f"{self._env['JUPYTERHUB_API_URL']}/{path}",
                method=method,
                headers={
                    "Authorization": f"token {self._env['JUPYTERHUB_API_TOKEN']}",
                    "Accept": _PAGES,
                },
                body=None if body is None and method != "POST" else json.dumps(body or {}),
                allow_nonstandard_methods=True,
                request_timeout=WITHIN,
            )
            return json.loads(answer.body) if answer.body else None
        except HTTPClientError as error:
            raise _refused(error) from None
        except (OSError, ValueError) as error:
            text = _("the hub does not answer: {why}")
            raise BackendUnavailable(text.format(why=error)) from None

    async def _all(self) -> list[HubUser]:
        return [_user(one) for one in await self._pages("users")]

    async def _all_accounts(self) -> dict[str, AccountState] | None:
        try:
            told = (await self.ask("GET", "accounts"))["accounts"]
        except NotFound:
            return None
        return msgspec.convert(told, dict[str, AccountState])

    async def _pages(self, what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        offset: int | None = 0
        while offset is not None:
            page = await self.ask("GET", f"{what}?limit={PAGE}&offset={offset}")
            found += page["items"]
            following = page["_pagination"].get("next")
            offset = following["offset"] if following else None
        return found


def _user(said: Mapping[str, Any]) -> HubUser:
    servers = said.get("servers") or {}
    return HubUser(
        name=said["name"],
        admin=bool(said.get("admin")),
        groups=tuple(sorted(said.get("groups") or ())),
        last_seen=epoch_seconds(said.get("last_activity")),
        servers={name: _state(one) for name, one in servers.items()},
    )


def _state(server: Mapping[str, Any]) -> str:
    if server.get("pending"):
        pending = str(server["pending"])
        return {"spawn": "starting", "stop": "stopping"}.get(pending, pending)
    return "running" if server.get("ready") else "stopped"


def _step(name: str) -> str:
    return quote(name, safe="")


def _server(name: str, server: str) -> str:
    return f"users/{_step(name)}/" + (f"servers/{_step(server)}" if server else "server")


def _refused(error: HTTPClientError) -> Exception:
    body = error.response.body if error.response is not None else b""
    try:
        told = json.loads(body)
        why = str(told.get("message") or told.get("detail") or error.message)
    except (ValueError, AttributeError):
        why = error.message or str(error.code)
    if error.code == 404:
        return NotFound(why)
    if error.code == 409:
        return Conflict(why)
    if error.code in (400, 422):
        return InvalidRequest([Problem(_("the hub"), error.code, why)], _("the hub refused"))
    return BackendUnavailable(
        _("the hub answers {status}: {why}").format(status=error.code, why=why)
    )


def names(users: Sequence[HubUser]) -> set[str]:
    """The names of some users."""
    return {one.name for one in users}
