"""The base of every route: who may call, how a blocking verb is called, how an error is told.

No route answers without a signed-in, authorised user, XSRF protection stays on, and every failure
is `application/problem+json` (RFC 9457) with the sentence of the command line, in the language that
the browser asks for, and never a traceback.
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
"""What an `Authorizer` of Jupyter Server is asked about: read, write on `tfcluster`."""
MOST_BYTES = 4 * 1024 * 1024
"""Of a request's body: a cell with its arguments is far below."""


class GuardedHandler(ProblemResponses, JupyterHandler, StreamedBody):
    """A route or page of ours. Methods of subclasses carry `@guarded`."""

    auth_resource = RESOURCE
    expected_errors: tuple[type[BaseException], ...] = (TFClusterError, StreamClosedError)

    @property
    def service(self) -> Service:
        """What the routes of this server share."""
        service: Service = self.settings["tfcluster"]
        return service

    def internal_error(self) -> str:
        """Return the sentence for a fault of the extension."""
        return _("something went wrong inside the server extension; the server's log has the cause")

    def in_language(self) -> AbstractContextManager[object]:
        """Speak the language that the browser asks for."""
        return language(accepted_languages(self.request.headers.get("Accept-Language", "")))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log what is a fault of the server; for debugging also what is told to the user."""
        if isinstance(value, self.expected_errors):
            self.log.debug("%s: %s", type(value).__name__, value)
        super().log_exception(typ, value, tb)


class TFClusterHandler(GuardedHandler, APIHandler):
    """A route that answers with JSON."""

    most_bytes = MOST_BYTES

    async def prepare(self) -> None:  # type: ignore[override]  # as in Jupyter Server's own
        """Find out who asks, and only then read the body.

        Raises:
            HTTPError: 403, nobody is signed in.
            TooLarge: the body is larger than any page of ours sends.
        """
        await super().prepare()
        if not self.current_user:
            raise HTTPError(403)
        self.expect_body()

    async def call(self, function: Callable[..., T], *args: Any, **words: Any) -> T:
        """Call a blocking verb; see `Worker.call`."""
        return await self.service.worker.call(function, *args, **words)

    async def meant(self, ref: str) -> TFCluster:
        """The run `ref`; with `?uid=…` that one only, and not another that has its name since.

        Raises:
            NotFound: there is none.
            Conflict: it is another one.
        """
        cluster = await self.call(self.service.manager.status, ref)
        uid = self.get_query_argument("uid", "")
        if uid and uid != cluster.metadata.uid:
            raise Conflict(
                _(
                    "{name} is another run by now, and nothing was done to it: the one that was "
                    "meant is gone"
                ).format(name=cluster.metadata.name)
            )
        return cluster

    def flag(self, name: str) -> bool:
        """Whether `?name=1` was said.

        Raises:
            InvalidRequest: it is neither 1 nor 0.
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
        """Looking is no activity: a page looks also while nobody sits before it."""
        if self.request.method != "GET":
            super().update_api_activity()

    def send_problem(self, told: dict[str, Any]) -> None:
        """Answer with a problem; Jupyter Server's `finish` takes the type of what is sent."""
        self.set_status(told["status"])
        self.finish(encoded_problem(told), set_content_type=PROBLEM_TYPE)


def guarded(method: Callable[..., Any], action: str | None = None) -> Callable[..., Any]:
    """Only a signed-in user (401/403) whom the server's Authorizer allows to; marks the method.

    The Authorizer is asked for `action`; without one for that of the request's method.
    """
    checked = authenticated(_authorized(method, action))

    @wraps(method)
    async def spoken(self: GuardedHandler, *args: Any, **words: Any) -> None:
        self.service.start()  # an older Jupyter Server has not done it
        with self.in_language():
            answered = checked(self, *args, **words)
            if answered is not None:  # Tornado has redirected to the login
                await answered

    spoken.is_guarded = True  # type: ignore[attr-defined]  # a test walks all routes
    return spoken


async def is_allowed(handler: JupyterHandler, action: str) -> bool:
    """Whether the server's Authorizer allows the person to `read` or `write`."""
    allowed = handler.authorizer.is_authorized(handler, handler.current_user, action, RESOURCE)
    return bool(await ensure_async(allowed))


def abort_connection(handler: JupyterHandler) -> None:
    """Close the browser's connection in the middle: a part of a file does not look like all."""
    connection = handler.request.connection
    if isinstance(connection, HTTP1Connection):
        connection.close()


guarded_read = partial(guarded, action="read")
"""`guarded` for what only looks, whatever the request's method."""


def _authorized(method: Callable[..., Any], action: str | None) -> Callable[..., Any]:
    """`authorized`, telling a signed-in person whom the Authorizer refuses that it is this."""

    async def nothing(_self: JupyterHandler) -> None:
        """What is asked about comes after the answer: its own refusals are another matter."""

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
