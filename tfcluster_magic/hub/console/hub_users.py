"""Client of the hub's API for the console: users, groups, servers, accounts.

The client uses the console's own token. If the hub refuses a request, the error has the hub's
message. Names are quoted, so that each is one segment of a path.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

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
from ...spec import Model, conversion
from ..auth.commands import AccountState
from .cached_reading import CachedReading

PAGE = 50
"""Maximum number of users in one page. The hub answers no other request while it writes a page."""
WITHIN = 20.0
FRESH, OLD, PATIENCE = 2.0, 10.0, 0.05
"""Times in seconds. A listing is current until its age is FRESH. Until its age is OLD, callers get
it if a new one takes longer than PATIENCE.
"""
_PAGES = "application/jupyterhub-pagination+json"


class HubUser(Model, frozen=True):
    """A user of the hub; `servers` maps server names to states, with "" for the default server."""

    name: str
    admin: bool = False
    groups: tuple[str, ...] = ()
    last_seen: float | None = None
    servers: dict[str, str] = {}


class HubUsers:
    """A client of the hub's API, to be used in one event loop."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._env = os.environ if environ is None else environ
        self._users = CachedReading(self._all, FRESH, OLD, PATIENCE)
        self._own_passwords: bool | None = None
        self._accounts = CachedReading(self._all_accounts, FRESH, OLD, PATIENCE)

    async def all(self) -> list[HubUser]:
        """Return all users. Raises BackendUnavailable."""
        return await self._users.seen(FRESH)

    async def recent(self) -> tuple[list[HubUser], dict[str, AccountState] | None]:
        """Return all users, and the result of `accounts`; both may be a few seconds old. Raises
        BackendUnavailable.

        This is for searches, because people type faster than a large hub answers.
        """
        return await asyncio.gather(self._users.seen(), self._accounts.seen())

    def expire(self) -> None:
        """Mark the listings as outdated, so that the next caller gets current ones."""
        self._users.expire()
        self._accounts.expire()

    async def groups(self) -> list[str]:
        """Return the names of all groups. Raises BackendUnavailable."""
        return sorted(one["name"] for one in await self._pages("groups"))

    async def accounts(self) -> dict[str, AccountState] | None:
        """Return the states of the hub's own accounts; None if users sign in at a provider."""
        return await self._accounts.seen(FRESH)

    async def own_passwords(self) -> bool:
        """Return whether users sign in with the hub's own passwords; False if the hub does not
        answer.
        """
        if self._own_passwords is None:
            try:
                self._own_passwords = await self.accounts() is not None
            except TFClusterError:
                return False
        return self._own_passwords

    async def allowed(self) -> frozenset[str] | None:
        """Return the users who may sign in at an identity provider although they are in no allowed
        group; None if users sign in with the hub's own passwords.
        """
        try:
            return frozenset((await self.ask("GET", "allowed"))["allowed"])
        except NotFound:
            return None

    async def allow(self, names: Collection[str]) -> None:
        """Let users sign in although they are in no allowed group: all of `names`, or none."""
        await self.ask("POST", "allowed", {"names": list(names)})

    async def make(self, names: Collection[str]) -> frozenset[str]:
        """Create users; return the names that did not exist before."""
        try:
            made = await self.ask("POST", "users", {"usernames": list(names)})
        except Conflict:  # all of these users exist
            return frozenset()
        finally:
            self.expire()
        return frozenset(one["name"] for one in made)

    async def forget(self, name: str) -> None:
        """Delete a user, their servers and their account."""
        await self.ask("DELETE", f"users/{_step(name)}")
        self.expire()

    async def make_group(self, group: str) -> None:
        """Create a group if it does not exist."""
        try:
            await self.ask("POST", f"groups/{_step(group)}", {})
        except Conflict:
            return

    async def join(self, names: Collection[str], group: str) -> None:
        """Add users to a group, all of them or none."""
        await self.ask("POST", f"groups/{_step(group)}/users", {"users": list(names)})
        self.expire()

    async def links(self, names: Collection[str], *, reset: bool = False) -> dict[str, str]:
        """Return links that set the passwords of these accounts, by name; create missing accounts.

        If the hub refuses one of the names, it makes no link. An account that has a password keeps
        it and gets no link; with `reset`, it gets a link, and the password stops working.
        """
        made = await self.ask("POST", "accounts/links", {"names": list(names), "reset": reset})
        self.expire()
        return dict(made["links"])

    async def start(self, name: str, server: str = "") -> None:
        """Request the start of a server."""
        await self.ask("POST", _server(name, server))
        self.expire()

    async def stop(self, name: str, server: str = "", *, remove: bool = False) -> None:
        """Request the stop of a server; with `remove`, also delete it."""
        await self.ask("DELETE", _server(name, server), {"remove": True} if remove else None)
        self.expire()

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send one request; return the decoded JSON answer.

        Raises:
            NotFound: the hub answers 404.
            Conflict: the hub answers 409.
            InvalidRequest: the hub answers 400 or 422.
            BackendUnavailable: the hub does not answer, or answers with another error.
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
        return conversion.convert(told, dict[str, AccountState])

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
    """Return the names of users."""
    return {one.name for one in users}
