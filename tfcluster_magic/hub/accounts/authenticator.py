"""JupyterHub's side of accounts with passwords.

It promises that a wrong name and a wrong password look and take the same, that guessing is slowed
down for each account and each address, that hashing never holds up the hub's loop, and that who is
removed is signed out. It gives no rights: a link may make its user an administrator once, and from
then on the hub's own database says who is one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.handlers.login import LoginHandler
from tornado import web
from traitlets import Bool, Float, Integer, Unicode

from ...errors import InvalidRequest
from ...i18n import _, ngettext
from . import pages, passwords, removals
from .store import AccountStore, AccountsUnreadable, allowed_name, normal
from .throttle import Throttle

REFRESH = 60
"""Seconds after which a session is asked again whether its account is still there."""


class AccountsAuthenticator(Authenticator):
    """Accounts of a file (see `store`), with passwords; everyone who is in it may sign in."""

    path = Unicode(help="The file of accounts.").tag(config=True)
    tries_per_account = Integer(10, help="Wrong passwords of one account within `window`.").tag(
        config=True
    )
    tries_per_address = Integer(100, help="Wrong passwords from one address within it.").tag(
        config=True
    )
    window = Float(300.0, help="In seconds: how long a wrong password counts.").tag(config=True)
    allow_all = Bool(True).tag(config=True)  # who has no account has no password, either
    auth_refresh_age = Integer(REFRESH).tag(config=True)

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        self.store = AccountStore(Path(self.path))
        self._of_account = Throttle(self.tries_per_account, self.window)
        self._of_address = Throttle(self.tries_per_address, self.window)
        # Four at once are 64 MiB; more would only take turns on the processors.
        self._hashing = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "password", _give_way)

    def normalize_username(self, username: str) -> str:
        """As the file has it."""
        return normal(username)

    def validate_username(self, username: str) -> bool:
        """Whether an account can have this name."""
        try:
            allowed_name(username)
        except InvalidRequest:
            return False
        return bool(super().validate_username(username))

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """The name, if the password is its own.

        Raises:
            HTTPError: 429 after too many wrong ones, 503 when the accounts cannot be read.
        """
        name = normal(data.get("username", ""))
        right = await self.check(handler.request.remote_ip, name, data.get("password", ""))
        return name if right else None

    async def check(self, address: str, name: str, password: str) -> bool:
        """Whether this is the password of the account. Raises as `authenticate`."""
        key = name[:100]  # whatever somebody types is not kept
        wait = max(self._of_account.wait(key), self._of_address.wait(address))
        if wait:
            raise refused(429, too_many(wait))
        self._of_account.begin(key)
        self._of_address.begin(address)
        right: bool = await self.in_thread(self._matches, name, password)
        if right:
            self._of_account.forget(key)
            self._of_address.forgive(address)
        return right

    def _matches(self, name: str, password: str) -> bool:
        try:
            return passwords.matches(password, self.store.password(name))
        except (AccountsUnreadable, ValueError) as problem:
            self.log.error("%s", problem)
            text = _(
                "Nobody can sign in now: the hub cannot read its accounts. "
                "Its log says why; tell the administrator."
            )
            raise refused(503, text) from None

    async def in_thread(self, function: Any, *words: object) -> Any:
        """Call what hashes, or writes accounts, without holding up the hub."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._hashing, function, *words)

    async def refresh_user(self, user: Any, handler: Any = None) -> bool:  # noqa: ARG002
        """Whether the account is still there; one whose file cannot be read stays signed in."""
        try:
            # Not where passwords are hashed: whoever is in would wait for all who come in.
            return user.name in await asyncio.to_thread(self.store.read)
        except AccountsUnreadable as problem:
            self.log.error("%s", problem)
            return True

    def delete_user(self, user: Any) -> None:
        """Forget the account of a user who is deleted in the hub."""
        self.store.remove(user.name)
        super().delete_user(user)

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        """The hub's own sign-in page, and ours; the hub is there from now on."""
        self._removals = asyncio.ensure_future(removals.follow(app, self.store))
        return [(r"/login", LoginHandler), *pages.handlers()]


def _give_way() -> None:
    """Let the hub's own thread answer first where hashing has all processors; Linux alone can."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # From where it is: only root may do less, and a hub may have been started with `nice`.
        lower = min(19, os.getpriority(os.PRIO_PROCESS, thread) + 10)
        with suppress(OSError):  # what forbids it, such as seccomp, shall not forbid signing in
            os.setpriority(os.PRIO_PROCESS, thread, lower)


def refused(status: int, sentence: str) -> web.HTTPError:
    """An answer whose sentence is shown to the person as it is."""
    error = web.HTTPError(status, "%s", sentence)
    error.jupyterhub_message = sentence  # type: ignore[attr-defined]
    return error


def too_many(seconds: float) -> str:
    """When to try again."""
    minutes = ceil(seconds / 60)
    again = ngettext("in a minute", "in {minutes} minutes", minutes).format(minutes=minutes)
    return _(
        "Too many wrong passwords: try again {again}, or ask an administrator for a link that sets "
        "a new one."
    ).format(again=again)
