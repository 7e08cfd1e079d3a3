"""The base of the console's routes: authorisation, errors as problem details, and pages.

The hub is asked at each request who the caller is and what they may do, so that a former
administrator is refused at once. Callers need the scope `access:services` for this service, which
administrators and the service `shell` have. Each request of a browser, even to read, needs the XSRF
token of the page. Every error is `application/problem+json` with one sentence.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from jupyterhub.services.auth import (
    HubOAuth,
    HubOAuthCallbackHandler,
    HubOAuthenticated,
    UserNotAllowed,
)
from tornado.template import Loader
from tornado.web import HTTPError
from traitlets import default

from ....errors import InvalidRequest, NotAllowed, Problem, TFClusterError, one_line
from ....i18n import _, current_language
from ....spec import Model
from ....web import MOST_BYTES, ProblemResponses, StreamedBody
from ...audit import AuditEntry, AuditLog, new_entry
from ...page_language import choose_language, page_language, read_scripts, script_words
from ...user_limits import NoSitePolicy, SitePolicy
from .. import tables
from ..archives import Archives
from ..cached_reading import CachedRuns, RunCache, StorageCache
from ..class_import import Importing
from ..hub_users import HubUsers
from ..service import OWNER, SHELL
from ..sites.base import Site


@dataclass
class Console:
    """The objects that the routes share. `bar` has the title and address of each page in the
    navigation bar.
    """

    site: Site
    audit: AuditLog
    prefix: str
    hub: str
    site_policy: SitePolicy = field(default_factory=NoSitePolicy)
    archives: Archives | None = None
    started: str = field(default_factory=lambda: secrets.token_hex(8))
    bar: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run_cache = RunCache(self.site)
        self.people = HubUsers()
        self.importing = Importing()
        self.storage_cache = StorageCache(self.site)


# -- all routes

POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Value of the header Content-Security-Policy. Only scripts with the page's nonce run, because the
hub's origin also serves users' files, which may contain scripts.
"""


class SignInNeeded(NotAllowed):
    """Nobody is signed in, or the hub does not know the token."""

    http_status = 401


class ConsoleOAuth(HubOAuth):
    """Asks the hub at each request; a cached answer could let in a former administrator."""

    @default("base_url")
    def _own_prefix(self) -> str:
        # Read the variable only now: `service.run_as_service` sets it after this module's import.
        return os.environ["JUPYTERHUB_SERVICE_PREFIX"]

    async def _check_hub_authorization(
        self, url: str, api_token: str, cache_key: Any = None, use_cache: bool = True
    ) -> Any:
        del use_cache
        return await super()._check_hub_authorization(url, api_token, cache_key, use_cache=False)


class Callback(HubOAuthCallbackHandler):
    """The route to which the hub returns a signed-in browser."""

    hub_auth_class = ConsoleOAuth


class ConsoleHandler(ProblemResponses, HubOAuthenticated, StreamedBody):
    """A route that answers only administrators."""

    hub_auth_class = ConsoleOAuth
    is_page = False
    is_audited = False
    """Whether requests with GET are in the audit log, too. If so, their answers are in the hub's
    language, like the answers to changes; otherwise in the browser's language.
    """
    most_bytes = MOST_BYTES

    def initialize(self, console: Console) -> None:
        """Store the console, which all routes share."""
        self.console = console

    def set_default_headers(self) -> None:
        """Forbid caching, framing, MIME sniffing and referrers to other sites."""
        self.set_header("Content-Security-Policy", POLICY.format(nonce=""))
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")

    async def prepare(self) -> None:
        """Admit only administrators, and read the body only from them.

        Raises:
            SignInNeeded: nobody is signed in.
            NotAllowed: the user is no administrator, or the request is not from one of our pages.
            TooLarge: the body is larger than any page sends.
        """
        if self.request.method == "GET" and not self.is_audited:
            choose_language(self.request.headers)
        await self._admit()
        if not self._finished:
            self.expect_body()

    async def _admit(self) -> None:
        user = await self.hub_auth.get_user(self, sync=False)
        if not getattr(self, "_token_authenticated", False):
            if not self.hub_auth._get_token_cookie(self):
                self._sign_in()
                return
            try:
                self.check_xsrf_cookie()
            except HTTPError:
                text = _("this request does not belong to the open page: reload the page")
                raise NotAllowed(text) from None
        if user is None:
            self._sign_in()
            return
        try:
            self._hub_auth_user_cache = self.check_hub_user(user)
        except UserNotAllowed:
            self._hub_auth_user_cache = None
            text = _("only administrators of the hub may do this, and {name} is not one")
            raise NotAllowed(text.format(name=user.get("name", ""))) from None

    def _sign_in(self) -> None:
        # Only a browser can sign in. The hub requests the first page once a minute to see whether
        # the console is up, and would collect the cookies of sign-ins that nobody completes.
        if not self.is_page or "text/html" not in self.request.headers.get("Accept", ""):
            raise SignInNeeded(_("sign in to the hub, or send a valid token"))
        self.redirect(self.get_login_url())

    @property
    def who(self) -> str:
        """The caller: the administrator's name in the hub, or `service NAME` for a service."""
        user = self._hub_auth_user_cache
        name = str(user["name"])
        if user.get("kind", "user") == "user":
            return name
        return os.environ[OWNER] if self.by_shell else f"service {name}"

    @property
    def by_shell(self) -> bool:
        """Whether the caller is the command `tfcluster admin` of the hub's owner. Always False on
        Kubernetes, where an administrator may have made a service with this name.
        """
        user = self._hub_auth_user_cache
        return user.get("kind") == "service" and user["name"] == SHELL and OWNER in os.environ

    def reply(self, data: Model | dict[str, Any]) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(data))

    def internal_error(self) -> str:
        """Return the message for an error inside the console."""
        return _("an error occurred inside the console; see the hub's log for the cause")


class NoSuchPath(ConsoleHandler):
    """A path that no other route serves."""

    async def prepare(self) -> None:
        """Answer 404 without authorisation."""
        raise HTTPError(404)


async def write_audit(
    handler: ConsoleHandler, what: str, whom: Sequence[tuple[str, str]], reason: str = ""
) -> list[AuditEntry]:
    """Write changes to the audit log before they are made; return their entries. `whom` has the
    owner and target of each change. Raises BackendUnavailable if the log cannot be written.
    """
    source = SHELL if handler.by_shell else str(handler.request.remote_ip)
    made = [new_entry(handler.who, what, owner, target, reason, source) for owner, target in whom]
    await asyncio.to_thread(handler.console.audit.asked, made)
    return made


class ChosenObject(Model, frozen=True):
    """A run or schedule to change. If `uid` is set, the object must have this uid."""

    owner: str
    name: str
    uid: str = ""


MOST_AT_ONCE = 500
MOST_REASON = 500


async def change_each(
    handler: ConsoleHandler,
    what: str,
    chosen: Sequence[ChosenObject],
    reason: str,
    change: Callable[[ChosenObject, str], Awaitable[None]],
    *,
    needs_reason: bool = True,
) -> None:
    """Call `change` with each object and the reason, and answer with the result for each, in the
    order of the request. The audit log records each change as the action `what`.

    Raises:
        InvalidRequest: the reason is missing or too long, or there are no or too many objects.
            Nothing was changed.
    """
    cleaned = one_line(" ".join(reason.split())).strip()
    wrong = []
    if (needs_reason and not cleaned) or len(cleaned) > MOST_REASON:
        rule = _("give a reason of at most {most} characters; the owner sees it")
        wrong.append(Problem("reason", reason, rule.format(most=MOST_REASON)))
    if not 0 < len(chosen) <= MOST_AT_ONCE:
        rule = _("a whole number from {least} to {most}").format(least=1, most=MOST_AT_ONCE)
        wrong.append(Problem("number", len(chosen), rule))
    if wrong:
        raise InvalidRequest(wrong, _("nothing was changed"))

    async def detail_of(each: ChosenObject) -> str:
        """Change one object; return why it was not changed, empty if it was changed."""
        try:
            await change(each, cleaned)
        except TFClusterError as error:
            return str(error)
        return ""

    entries = await write_audit(handler, what, [(one.owner, one.name) for one in chosen], cleaned)
    done = await asyncio.gather(*map(detail_of, chosen))
    handler.console.run_cache.expire()
    results = [detail or "done" for detail in done]
    await asyncio.to_thread(handler.console.audit.ended, entries, results)
    told = [
        {"owner": one.owner, "name": one.name, "ok": not detail, "detail": detail}
        for one, detail in zip(chosen, done, strict=True)
    ]
    handler.reply({"results": told})


def is_known(handler: ConsoleHandler, asked: tables.Query, seen: CachedRuns) -> bool:
    """Return whether the caller has the answer to this query already. If so, answer 304; otherwise
    set the ETag of the answer. If `seen` is an outdated reading (it has a `note`), return False,
    because the caller has to request current rows soon.
    """
    handler.set_header("Cache-Control", "no-cache")
    if seen.note:
        return False
    about = hashlib.sha256(repr((asked, current_language())).encode()).hexdigest()[:16]
    tag = f'"{handler.console.started}-{handler.console.run_cache.version}-{about}"'
    handler.set_header("Etag", tag)
    if handler.request.headers.get("If-None-Match") != tag:
        return False
    handler.set_status(304)
    handler.finish()
    return True


def query_words(handler: ConsoleHandler) -> dict[str, list[str]]:
    """Return the query parameters of a request."""
    return {name: handler.get_query_arguments(name) for name in handler.request.query_arguments}


# -- pages: a template, its scripts, and the navigation bar

PAGES = Path(__file__).parents[1] / "pages"
SCRIPTS = read_scripts(PAGES)


class ConsolePage(ConsoleHandler):
    """A page whose script requests all data. `title` is the page's text in the navigation bar."""

    is_page = True
    title = ""
    template = ""

    async def get(self) -> None:
        """Answer with the page."""
        self._show(
            self.template,
            xsrf=self.xsrf_token.decode("ascii"),
            user=self.who,
            most_bytes=self.most_bytes,
            own_passwords=await self.console.people.own_passwords(),
        )

    def send_problem(self, told: dict[str, Any]) -> None:
        """Show a problem as a page."""
        self.set_status(told["status"])
        user = getattr(self, "_hub_auth_user_cache", None) or {}
        self._show("refused.html", detail=told["detail"], user=user.get("name", ""))

    def _show(self, name: str, **words: object) -> None:
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Security-Policy", POLICY.format(nonce=nonce))
        words |= {"nonce": nonce, "hub": self.console.hub, "prefix": self.console.prefix}
        words |= {"title": self.title, "bar": self.console.bar}
        words |= {"_": _, "language": page_language(), "words": script_words(SCRIPTS)}
        self.finish(Loader(str(PAGES)).load(name).generate(**words))
