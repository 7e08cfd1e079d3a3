"""The hub's pages that set a password by a link, change a password, and create links.

Opening a link's page does not use the link up, because browsers and chat apps fetch previews. A new
password ends all other sessions of its account. Only administrators create links. Browsers do not
cache these pages and send no referrer from them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.handlers.login import LoginHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import get_browser_protocol, url_path_join
from tornado import web

from ...errors import InvalidRequest, TFClusterError
from ...i18n import _
from ..shared_settings import CONSOLE
from . import accounts
from .accounts import LINK_HOURS, LinkRefused, PasswordReplaced, allowed_name
from .commands import link, state_of


def handlers() -> list[tuple[str, type]]:
    """Return path patterns below the hub's base path and their handlers."""
    return [
        (r"/login", SignInPage),
        (r"/set-password", SetPassword),
        (r"/change-password", ChangePassword),
        (r"/accounts", AccountsPage),
        (r"/api/accounts", AccountsAPI),
        (r"/api/accounts/links", LinksAPI),
    ]


class _Page(BaseHandler):
    """A page with a password or a link. Browsers do not cache it and send no referrer from it."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Referrer-Policy", "no-referrer")  # the address may contain a link's code
        self.set_header("Cache-Control", "no-store")

    async def show(self, template: str, status: int = 200, **words: object) -> None:
        self.set_status(status)
        self.finish(await self.render_template(template, **words))

    def typed(self, name: str, *, admin: bool) -> str:
        """Return the new password that was typed for this account.

        Raises:
            ValueError: the password is refused; the message says why.
        """
        password: str = self.get_body_argument("password", "", strip=False)
        if why := accounts.password_problem(password, name, admin=admin):
            raise ValueError(why)
        if password != self.get_body_argument("again", "", strip=False):
            raise ValueError(_("The two passwords differ: type the same one twice."))
        return password


class SignInPage(LoginHandler):
    """JupyterHub's sign-in page, except that a form without a user name is a failed sign-in.
    JupyterHub itself answers such a form with status 500.
    """

    async def post(self) -> None:
        """Sign in; treat a missing name as a wrong name."""
        for arguments in (self.request.arguments, self.request.body_arguments):
            arguments.setdefault("username", [b""])
        await super().post()

    def set_login_cookie(self, user: Any) -> None:
        """Begin a session, unless the password was replaced while it was checked."""
        self.authenticator.confirm(self)
        super().set_login_cookie(user)


class SetPassword(_Page):
    """The page to which a link leads: it sets the password of an account and signs the user in."""

    async def get(self) -> None:
        """Show the form."""
        await self._ask(self.get_query_argument("code", ""))

    async def post(self) -> None:
        """Set the password, sign in and redirect to a notebook."""
        code = self.get_body_argument("code", "")
        authenticator = self.authenticator
        try:
            hashed = await authenticator.in_thread(accounts.hash_password, await self._typed(code))
            name, admin = await authenticator.in_thread(authenticator.store.redeem, code, hashed)
        except ValueError as problem:
            await self._ask(code, error=str(problem))
            return
        except LinkRefused as problem:
            await self.show("link-refused.html", 404, error=str(problem))
            return
        await authenticator.revoking.reset(name)
        user = await self.auth_to_user({"name": name, "admin": True if admin else None})
        authenticator.know(self, name, hashed)
        self.set_login_cookie(user)
        self.log.info("%s has set a password by a link", name)
        self.redirect(self.get_next_url(user))

    async def _typed(self, code: str) -> str:
        name, admin = await self._of(code)
        return self.typed(name, admin=admin)

    async def _of(self, code: str) -> tuple[str, bool]:
        """Return the account of the link with this code, and whether the account is an
        administrator's or becomes one by the link.
        """
        name, admin = await self.authenticator.in_thread(self.authenticator.store.invited, code)
        return name, admin or self.authenticator.administers(self.db, name)

    async def _ask(self, code: str, error: str = "") -> None:
        try:
            name, admin = await self._of(code)
        except LinkRefused as problem:
            await self.show("link-refused.html", 404, error=str(problem))
            return
        asked = accounts.password_rules(admin=admin)
        words = {"account": name, "code": code, "error": error, **asked}
        await self.show("set-password.html", 400 if error else 200, **words)


class ChangePassword(_Page):
    """The page where users change their own password."""

    @web.authenticated
    async def get(self) -> None:
        """Show the form."""
        await self._show()

    @web.authenticated
    async def post(self) -> None:
        """Change the password."""
        user, authenticator = self.current_user, self.authenticator
        present = self.get_body_argument("present", "", strip=False)
        try:
            password = self.typed(user.name, admin=user.admin)
            stored = await authenticator.check(self, user.name, present)
            if stored is None:
                raise ValueError(_("That is not your current password."))
        except ValueError as problem:
            await self._show(400, error=str(problem))
            return
        except web.HTTPError as problem:
            told = str(getattr(problem, "jupyterhub_message", problem))
            await self._show(problem.status_code, error=told)
            return
        hashed = await authenticator.in_thread(accounts.hash_password, password)
        try:
            await authenticator.in_thread(
                lambda: authenticator.store.set_password(user.name, hashed, instead_of=stored)
            )
        except PasswordReplaced as problem:
            await self._show(400, error=str(problem))
            return
        await authenticator.revoking.reset(user.name)
        authenticator.know(self, user.name, hashed)
        self.set_login_cookie(user)
        await self._show(done=True)

    async def _show(self, status: int = 200, **words: object) -> None:
        asked = accounts.password_rules(admin=self.current_user.admin)
        await self.show("change-password.html", status, **asked, **words)


class AccountsPage(_Page):
    """The page where administrators create links and see who can sign in. If the hub has a console,
    this page redirects to the console's page of users.
    """

    @web.authenticated
    @needs_scope("admin:users")
    async def get(self) -> None:
        """Show every user of the hub and every account."""
        if not self._led_to_console():
            await self._list()

    @web.authenticated
    @needs_scope("admin:users")
    async def post(self) -> None:
        """Create a link and show it once. With `reset`, the link replaces an existing password."""
        if self._led_to_console():
            return
        reset = self.get_body_argument("reset", "") == "true"
        try:
            name = allowed_name(self.get_body_argument("name", ""))
            code = (await make_links(self, [name], reset=reset)).get(name)
        except InvalidRequest as problem:
            await self._list(400, error=str(problem))
            return
        if code is None:
            text = _("{name} already has a password. To replace it, choose New link below.")
            await self._list(409, error=text.format(name=name))
            return
        self.log.info("%s made a link for %s", self.current_user.name, name)
        await self._list(account=name, link=address(self, code), hours=LINK_HOURS)

    def _led_to_console(self) -> bool:
        if console := console_page(self):
            self.redirect(f"{console}users")
        return bool(console)

    async def _list(self, status: int = 200, **words: object) -> None:
        try:
            accounts = await self.authenticator.in_thread(self.authenticator.store.read)
        except TFClusterError as problem:
            raise web.HTTPError(503, "%s", problem) from None
        known = {name for (name,) in self.db.query(orm.User.name)}
        names = sorted(known | {*accounts})
        rows = [(name, state_of(accounts.get(name)).in_words()) for name in names]
        await self.show("accounts.html", status, rows=rows, **words)


class AccountsAPI(APIHandler):
    """The sign-in states of all accounts, as JSON."""

    @needs_scope("admin:users")
    async def get(self) -> None:
        """Answer with {"accounts": {NAME: {"state", "linkUntil"}}}, see `AccountState`."""
        try:
            found = await self.authenticator.in_thread(self.authenticator.store.read)
        except TFClusterError as problem:
            raise web.HTTPError(503, "%s", problem) from None
        told = {name: state_of(account) for name, account in sorted(found.items())}
        self.write({"accounts": msgspec.to_builtins(told)})


class LinksAPI(APIHandler):
    """Creates links for the console. The audit log is not written here, but by the console."""

    @needs_scope("admin:users")
    async def post(self) -> None:
        """Create a link for each account in the body {"names": [NAME], "reset": false}.

        Answer with {"links": {NAME: link}, "hours"}; "hours" says how long the links are valid. If
        a name is refused, no link is made. Without `reset`, accounts that have a password keep it
        and get no link.
        """
        asks = self.current_user
        by_console = isinstance(asks, orm.Service) and asks.name == CONSOLE
        if (console := console_page(self)) and not by_console:
            text = (
                f"create links through the console, which logs them: POST {console}api/users/links"
            )
            raise web.HTTPError(403, "%s", text)
        said = self.get_json_body() or {}
        names = said.get("names") if isinstance(said, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise web.HTTPError(400, "names must be a list of names")
        try:
            codes = await make_links(self, names, reset=said.get("reset") is True)
        except InvalidRequest as problem:
            raise web.HTTPError(400, "%s", problem) from None
        links = {name: address(self, code) for name, code in codes.items()}
        self.set_status(201)
        self.write({"links": links, "hours": LINK_HOURS})


def console_page(handler: Any) -> str:
    """Return the path of the admin console, with a slash at the end; empty if there is none."""
    console = handler.settings["template_vars"].get("console")
    return url_path_join(handler.base_url, console) if console else ""


async def make_links(handler: Any, names: list[str], *, reset: bool) -> dict[str, str]:
    """Make new links for accounts, and return the code of each link by account name. Raises
    InvalidRequest.

    Without `reset`, accounts that have a password keep it and get no code. With `reset`, the
    sessions of such accounts are ended before this returns.
    """
    authenticator = handler.authenticator
    codes: dict[str, str] = await authenticator.in_thread(
        lambda: authenticator.store.invite_all(names, reset=reset)
    )
    resets = await authenticator.in_thread(authenticator.store.resets)
    ended = {allowed_name(each) for each in names} & {*resets}
    await asyncio.gather(*(authenticator.revoking.reset(name) for name in ended))
    return codes


def address(handler: Any, code: str) -> str:
    """Return the link with this code, at the address that the browser of this request uses."""
    request = handler.request  # if an ingress ends TLS, the scheme is in a header
    return link(f"{get_browser_protocol(request)}://{request.host}{handler.base_url}", code)
