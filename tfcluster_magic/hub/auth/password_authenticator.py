"""JupyterHub's authenticator for the hub's own accounts.

Threads compare the passwords. They have separate queues, so that no queue delays another.
`guess_limits` counts the tries.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jupyterhub import orm
from jupyterhub.auth import Authenticator
from jupyterhub.handlers.login import LoginHandler
from tornado import web
from traitlets import Bool, Float, Integer, Unicode

from ...errors import InvalidRequest
from ...i18n import _, ngettext
from . import accounts, pages, revocation
from .accounts import (
    AccountStore,
    AccountsUnreadable,
    PasswordReplaced,
    allowed_name,
    normalized_name,
)
from .guess_limits import HashQueue, SignInLimits, TooManyTries

LONGEST_QUEUE = 256
"""Maximum number of passwords that wait in a queue to be hashed; further ones are refused."""
BROWSER_DAYS = 180
"""Days for which the hub remembers a browser in which somebody has signed in."""
REFRESH = 60
"""Seconds between two checks whether a session's account still exists."""


class AccountsAuthenticator(Authenticator):
    """An authenticator that checks passwords against the account file (see `AccountStore`)."""

    path = Unicode(help="The file of accounts.").tag(config=True)
    tries_per_account = Integer(
        10, help="Wrong passwords for an account from one address within `window`."
    ).tag(config=True)
    tries_of_strangers = Integer(
        100, help="Wrong passwords for an account from all unknown browsers within an hour."
    ).tag(config=True)
    tries_per_address = Integer(
        100,
        help="Wrong passwords from one address within `window`, after which its tries are slower.",
    ).tag(config=True)
    window = Float(300.0, help="Seconds for which a wrong password counts.").tag(config=True)
    allow_all = Bool(True).tag(config=True)  # safe: only accounts in the file have a password
    auth_refresh_age = Integer(REFRESH).tag(config=True)

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        self.store = AccountStore(Path(self.path))
        self._tries = SignInLimits(
            self.tries_per_account,
            self.tries_of_strangers,
            self.tries_per_address,
            self.window,
            3600.0,
        )
        # Known browsers have threads of their own, so that tries from other browsers cannot delay
        # them. A hash takes 16 MiB: with four or more cores, the five threads take at most 80 MiB.
        half = max(1, min(4, os.cpu_count() or 1) // 2)
        threads = {HashQueue.KNOWN: half, HashQueue.NEW: half, HashQueue.NOISY: 1}
        self._queues = {
            queue: ThreadPoolExecutor(number, f"password-{queue.value}", _give_way)
            for queue, number in threads.items()
        }
        self._waiting = dict.fromkeys(HashQueue, 0)

    def normalize_username(self, username: str) -> str:
        """Return the name as the account file spells it."""
        return normalized_name(username)

    def validate_username(self, username: str) -> bool:
        """Return whether an account may have this name."""
        try:
            allowed_name(username)
        except InvalidRequest:
            return False
        return bool(super().validate_username(username))

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """Return the account's name if the password is right, else None.

        Raises:
            HTTPError: 429 after too many wrong passwords, 503 if the accounts cannot be read.
        """
        name = normalized_name(data.get("username", ""))
        typed = data.get("password", "")
        stored = await self.check(handler, name, typed)
        if stored is None:
            return None
        if self.administers(handler.db, name) and accounts.password_problem(
            typed, name, admin=True
        ):
            try:
                await self._replace(handler, name, stored)
            except PasswordReplaced:  # the user typed the old password, which was reset meanwhile
                return None
        return name

    async def check(self, handler: Any, name: str, password: str) -> str | None:
        """Return the stored hash if the password matches, else None; remember the browser on
        success. Raises the errors of `authenticate`.
        """
        before = _session(handler.db, name)
        stored = await asyncio.to_thread(self._stored, name)
        browser = self._browser(handler, name, stored)
        try:
            # `_tries` keeps names in memory, so cut a long name.
            queue, tried = self._tries.begin(name[:100], handler.request.remote_ip, browser)
        except TooManyTries as refusal:
            raise refused(429, too_many(refusal.seconds)) from None
        right: bool = await self.in_thread(self._matches, password, stored, queue=queue)
        if _session(handler.db, name) != before:
            return None  # meanwhile the password was replaced, and the account's sessions ended
        if right:
            tried.right()
            self.know(handler, name, stored)
            handler.signed_in_with = name, stored
        return stored if right else None

    def confirm(self, handler: Any) -> None:
        """Raise HTTPError 403 if the password has been replaced since `check`.

        Call this right before the session begins, without awaiting in between: a later reset then
        ends the session.
        """
        name, stored = getattr(handler, "signed_in_with", ("", None))
        if name and self._stored(name) != stored:
            raise refused(403, _("You are signed out: the password of this account was reset."))

    def administers(self, db: Any, name: str) -> bool:
        """Return whether this account is an administrator's in the hub."""
        user = orm.User.find(db, name)
        return bool(user and user.admin) or name in self.admin_users

    async def _replace(self, handler: Any, name: str, stored: str) -> None:
        """Require a stronger password of a new administrator whose password is weak.

        Raises:
            Finish: the request has been answered by a redirect to the page that sets a password.
            HTTPError: 403 for a program, which cannot use the page.
            PasswordReplaced: the stored hash is not `stored` any more.
        """
        if not isinstance(handler, LoginHandler):
            text = _(
                "this password is too weak for an administrator: sign in on the hub's page to "
                "change it"
            )
            raise refused(403, text)
        code = await self.in_thread(lambda: self.store.invite(name, keep=True, only_if=stored))
        handler.redirect(f"{handler.hub.base_url}set-password?{urlencode({'code': code})}")
        raise web.Finish

    def _stored(self, name: str) -> str | None:
        try:
            return self.store.password(name)
        except AccountsUnreadable as problem:
            self.log.error("%s", problem)
            raise refused(503, unreadable()) from None

    def _matches(self, password: str, stored: str | None) -> bool:
        try:
            return accounts.password_matches(password, stored)
        except ValueError as problem:
            self.log.error("A stored password has an unknown format: %s", problem)
            raise refused(503, unreadable()) from None

    def know(self, handler: Any, name: str, stored: str | None) -> None:
        """Mark the browser as one in which this account has signed in with this password."""
        value = f"{_version(stored)} {secrets.token_hex(8)}"
        handler._set_cookie(  # JupyterHub's own method for all cookies
            _cookie(name),
            value,
            path=handler.hub.base_url,
            expires_days=BROWSER_DAYS,
            samesite="Lax",
        )

    def _browser(self, handler: Any, name: str, stored: str | None) -> str | None:
        """Return the mark of this browser; None unless this account has signed in from the browser
        with its current password.
        """
        found = handler.get_secure_cookie(_cookie(name), max_age_days=BROWSER_DAYS)
        version, _space, which = (found or b"").decode().partition(" ")
        return which if stored and version == _version(stored) else None

    async def in_thread(
        self, function: Any, *words: object, queue: HashQueue = HashQueue.KNOWN
    ) -> Any:
        """Run `function`, which hashes passwords or writes accounts, in a thread of `queue`.

        Raises:
            HTTPError: 503 if the queue is full.
        """
        if self._waiting[queue] >= LONGEST_QUEUE:
            text = _("The hub is checking too many passwords: try again in a minute.")
            raise refused(503, text)
        self._waiting[queue] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._queues[queue], function, *words)
        finally:
            self._waiting[queue] -= 1

    async def refresh_user(self, user: Any, handler: Any = None) -> bool:
        """Return whether the account still exists; True if the account file cannot be read.

        Raises:
            HTTPError: 403 if the password was replaced while the file was read.
        """
        before = user.orm_user.cookie_id
        try:
            # Do not use a thread that hashes passwords: signed-in users would wait there for the
            # sign-ins of other people.
            found = user.name in await asyncio.to_thread(self.store.read)
        except AccountsUnreadable as problem:
            self.log.error("%s", problem)
            found = True
        if handler is not None and user.orm_user.cookie_id != before:
            # The session or token of this request has ended: the request must not create a new
            # token.
            raise refused(403, _("You are signed out: the password of this account was reset."))
        return found

    def delete_user(self, user: Any) -> None:
        """Delete the account of a user when the hub deletes the user."""
        self.store.remove(user.name)
        super().delete_user(user)

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        """Return the handlers of our pages, and begin to carry out the recorded removals of users
        and resets of passwords.
        """
        self.revoking = revocation.Revocation(app, self.store)
        self.revoking.begin()  # before the hub answers any request
        self._following = asyncio.ensure_future(self.revoking.follow())
        return pages.handlers()


def _give_way() -> None:
    """Lower this thread's priority on Linux, so that hashing does not delay the hub's answers."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # The value depends on the hub's own priority: if the hub was started with `nice`, a fixed
        # value might be a higher priority, which only root may set.
        lower = min(19, os.getpriority(os.PRIO_PROCESS, thread) + 10)
        with suppress(OSError):  # a sandbox may forbid it; sign-in must still work
            os.setpriority(os.PRIO_PROCESS, thread, lower)


def refused(status: int, sentence: str) -> web.HTTPError:
    """Return an HTTPError whose message JupyterHub shows to the user unchanged."""
    error = web.HTTPError(status, "%s", sentence)
    error.jupyterhub_message = sentence  # type: ignore[attr-defined]
    return error


def unreadable() -> str:
    """Return the message for accounts that cannot be read."""
    return _(
        "Nobody can sign in now, because the hub cannot read its accounts. Its log "
        "says why; tell the administrator."
    )


def _session(db: Any, name: str) -> str | None:
    """Return the id that all browser sessions of a user have; a new password changes the id."""
    user = orm.User.find(db, name)
    return str(user.cookie_id) if user else None


def _cookie(name: str) -> str:
    """Return the name of the cookie that marks a browser. Each account has its own, because users
    may share a browser.
    """
    return f"tfcluster-known-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _version(stored: str | None) -> str:
    """Return a digest of a stored hash. It serves only to see whether the password has been
    replaced.
    """
    return hashlib.sha256((stored or "").encode()).hexdigest()[:16]


def too_many(seconds: float) -> str:
    """Return the message after too many wrong passwords; it says when to try again."""
    minutes = ceil(seconds / 60)
    again = ngettext("in a minute", "in {minutes} minutes", minutes).format(minutes=minutes)
    return _(
        "Too many wrong passwords: try again {again}, or ask an administrator for a link that sets "
        "a new one."
    ).format(again=again)
