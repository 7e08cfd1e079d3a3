"""The base of all routes: authorisation, blocking calls, and errors as problem details.

Every route needs a signed-in, authorised user and keeps XSRF protection on. Every error is
`application/problem+json` (RFC 9457) with the command line's message in the browser's language,
never a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, TypeVar, cast

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, authenticated

from ..errors import Conflict, InvalidRequest, NotAllowed, Problem, TFClusterError
from ..i18n import _, accepted_languages, language
from ..spec import TFCluster
from ..web import PROBLEM_TYPE, ProblemResponses, StreamedBody, encoded_problem
from .service import Service

T = TypeVar("T")
RESOURCE = "tfcluster"
"""The resource for which Jupyter Server's `Authorizer` is asked about `read` or `write`."""
MOST_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a request body; a cell with its arguments is far smaller."""


class GuardedHandler(ProblemResponses, JupyterHandler, StreamedBody):
    """A route or page; methods of subclasses are decorated with `@guarded`."""

    auth_resource = RESOURCE
    expected_errors: tuple[type[BaseException], ...] = (TFClusterError, StreamClosedError)

    @property
    def service(self) -> Service:
        """The service that all routes of this server share."""
        service: Service = self.settings["tfcluster"]
        return service

    def internal_error(self) -> str:
        """Return the message for an error inside the extension."""
        return _(
            "an error occurred inside the server extension; see the server's log for the cause"
        )

    def in_language(self) -> AbstractContextManager[object]:
        """Return a context in which messages are in the language that the browser requests."""
        return language(accepted_languages(self.request.headers.get("Accept-Language", "")))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log errors of the server; log errors of the user at debug level only."""
        if isinstance(value, self.expected_errors):
            self.log.debug("%s: %s", type(value).__name__, value)
        super().log_exception(typ, value, tb)


class TFClusterHandler(GuardedHandler, APIHandler):
    """A route that answers with JSON."""

    most_bytes = MOST_BYTES

    async def prepare(self) -> None:  # type: ignore[override]  # as in Jupyter Server's own
        """Authenticate the caller, and only then read the body.

        Raises:
            HTTPError: 403 if nobody is signed in.
            TooLarge: the body is larger than `most_bytes`, which suffices for every request of our
                pages.
        """
        await super().prepare()
        if not self.current_user:
            raise HTTPError(403)
        self.expect_body()

    async def call(self, function: Callable[..., T], *args: Any, **words: Any) -> T:
        """Call a blocking function in a thread; see `Worker.call`."""
        return await self.service.worker.call(function, *args, **words)

    async def meant(self, ref: str) -> TFCluster:
        """Return the run `ref`; with `?uid=…`, only if it still has that uid.

        Raises:
            NotFound: there is no such run.
            Conflict: the run has another uid now.
        """
        cluster = await self.call(self.service.manager.status, ref)
        uid = self.get_query_argument("uid", "")
        if uid and uid != cluster.metadata.uid:
            raise Conflict(
                _(
                    "nothing was done, because {name} is another run now; the one "
                    "that you chose is gone"
                ).format(name=cluster.metadata.name)
            )
        return cluster

    def flag(self, name: str) -> bool:
        """Return whether the query has `name=1`.

        Raises:
            InvalidRequest: the value is neither 1 nor 0.
        """
        said = self.get_query_argument(name, "0")
        if said not in ("0", "1"):
            raise InvalidRequest([Problem(name, said, _("use {words}").format(words="0, 1"))])
        return said == "1"

    def reply(self, data: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.finish(json.dumps(data, allow_nan=False))

    def update_api_activity(self) -> None:
        """Count only changes as activity, because a page sends GET requests even while nobody uses
        it.
        """
        if self.request.method != "GET":
            super().update_api_activity()

    def send_problem(self, told: dict[str, Any]) -> None:
        """Answer with problem details and their media type."""
        self.set_status(told["status"])
        self.finish(encoded_problem(told), set_content_type=PROBLEM_TYPE)


def guarded(method: Callable[..., Any], action: str | None = None) -> Callable[..., Any]:
    """Decorate a method so that it serves only signed-in users (else 401) whom the Authorizer
    allows (else 403). By default, the request's HTTP method determines `action`.
    """
    checked = authenticated(_authorized(method, action))

    @wraps(method)
    async def spoken(self: GuardedHandler, *args: Any, **words: Any) -> None:
        # Start the service here too, because older versions of Jupyter Server do not start it.
        self.service.start()
        with self.in_language():
            answered = checked(self, *args, **words)
            if answered is not None:  # None if Tornado has redirected to the login page
                await answered

    spoken.is_guarded = True  # type: ignore[attr-defined]  # a test walks all routes
    return spoken


async def is_allowed(handler: JupyterHandler, action: str) -> bool:
    """Return whether the server's Authorizer allows the user the `action`, `read` or `write`."""
    allowed = handler.authorizer.is_authorized(handler, handler.current_user, action, RESOURCE)
    return bool(await ensure_async(allowed))


def abort_connection(handler: JupyterHandler) -> None:
    """Close the browser's connection, so that a partial file does not look complete."""
    connection = handler.request.connection
    if isinstance(connection, HTTP1Connection):
        connection.close()


guarded_read = partial(guarded, action="read")
"""A variant of `guarded` for Python methods that only read, whatever the HTTP method of the request
is.
"""


def _authorized(method: Callable[..., Any], action: str | None) -> Callable[..., Any]:
    """Apply `authorized`, with our own message for a user whom the Authorizer refuses."""

    async def nothing(_self: JupyterHandler) -> None:
        """Do nothing. `authorized` decorates this function instead of `method`, so that an
        HTTPError of `ask` is always a refusal by the Authorizer, never an error of `method`.
        """

    ask: Callable[..., Awaitable[None]] = authorized(action=action)(nothing)

    @wraps(method)
    async def told(self: JupyterHandler, *args: Any, **words: Any) -> None:
        try:
            await ask(self)
        except HTTPError as error:
            why = error.log_message
            raise NotAllowed(
                _("you are signed in, but may not do that on this server ({why})").format(why=why)
            ) from None
        await cast("Awaitable[None]", method(self, *args, **words))

    return told
