"""Request bodies and problem responses of Tornado handlers, shared by the server and the console.

Tornado reads the whole body before it calls a handler, unless the handler streams the body: then
`prepare` runs once the headers have arrived. Our handlers derive from `StreamedBody`, authenticate
the sender in `prepare`, and then call `expect_body`. A refused sender is answered at once, and the
rest of the body is discarded. If the connection were closed while the sender still writes, the
answer would be lost, and a proxy in between would answer 503. `ProblemResponses` answers every
failure as `application/problem+json` (RFC 9457).
"""

from __future__ import annotations

import json
import re
from asyncio import Future
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Any, TypeVar

from tornado.http1connection import HTTP1Connection
from tornado.httputil import HTTPHeaders
from tornado.web import HTTPError, RequestHandler, stream_request_body

from .errors import InvalidRequest, TFClusterError, TooLarge, UsageError
from .i18n import _
from .launch import validation
from .spec import Message, Model

PROBLEM_TYPE = "application/problem+json"
MOST_CHARACTERS = 100
"""Maximum characters that are shown of a value that JSON cannot represent."""


def problem(error: BaseException, internal_error: str = "") -> dict[str, Any]:
    """Return an error as problem details (RFC 9457). For an InvalidRequest, they list what is wrong
    with each field. `internal_error` is the detail for any error except a TFClusterError or
    HTTPError.
    """
    told: dict[str, Any] = {
        "type": "about:blank",
        "title": type(error).__name__,
        "status": getattr(error, "http_status", 500),
        "detail": str(error) or type(error).__name__,
    }
    if isinstance(error, HTTPError):
        told |= {"title": _status_phrase(error.status_code), "status": error.status_code}
        told["detail"] = error.log_message or error.reason or told["title"]
    elif not isinstance(error, TFClusterError):
        told |= {"title": _status_phrase(500), "detail": internal_error}
    if isinstance(error, InvalidRequest):
        told["problems"] = [
            {"field": str(p.field), "value": _json_value(p.value), "allowed": str(p.allowed)}
            for p in error.problems
        ]
    return told


def encoded_problem(told: dict[str, Any]) -> str:
    """Encode a problem as JSON; raise ValueError rather than write invalid JSON."""
    return json.dumps(told, default=str, allow_nan=False)


def _json_value(value: object) -> object:
    """Return a value as it was given, or as text if it is a message or JSON cannot represent it."""
    if isinstance(value, Message):
        return str(value)
    try:
        json.dumps(value, default=str, allow_nan=False)
    except (ValueError, RecursionError):
        return ascii(value)[:MOST_CHARACTERS]
    return value


def _status_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


# Request bodies

M = TypeVar("M", bound=Model)
MOST_BYTES = 1024 * 1024
"""Maximum bytes of a body, unless a handler says otherwise."""
MOST_DISCARDED = 64 * 1024 * 1024
"""Maximum bytes that a refused sender may still send before the connection is closed."""
BODY_WITHIN = 60.0
"""Maximum seconds until a body has arrived."""
MOST_NESTED = 64
"""Maximum nesting depth of objects and lists in a JSON body."""


def body_length(headers: HTTPHeaders) -> int | None:
    """Return the length of the body by these headers; None if the body is sent in chunks.

    Raises:
        HTTPError: 400, the headers contradict each other or give no valid length.
    """
    said = headers.get("Content-Length")  # several values are joined by commas
    lengths = set() if said is None else {one.strip() for one in said.split(",")}
    coding = headers.get("Transfer-Encoding")
    if coding is not None:
        if lengths or coding.strip().lower() != "chunked":
            raise HTTPError(400, "the length of the body is not clear")
        return None
    if not lengths:
        return 0
    length = lengths.pop()
    if lengths or not re.fullmatch("[0-9]{1,18}", length):
        raise HTTPError(400, "the length of the body is not clear")
    return int(length)


@stream_request_body
class StreamedBody(RequestHandler):
    """A handler whose `prepare` runs before its request's body is read."""

    most_bytes = MOST_BYTES
    _body: bytearray | None = None
    _is_too_large = False

    def expect_body(self) -> None:
        """Start to keep the pieces of the body that arrive. A handler's `prepare` calls this method
        after it has authorized the sender.

        Raises:
            HTTPError: 400, the headers do not give the length.
            TooLarge: the body is longer than this handler accepts.
        """
        length = body_length(self.request.headers)
        if length is not None and length > self.most_bytes:
            raise self._too_large()
        self._body = bytearray()
        connection = self.request.connection
        if isinstance(connection, HTTP1Connection):  # also limits bodies without a given length
            connection.set_max_body_size(MOST_DISCARDED)
            connection.set_body_timeout(BODY_WITHIN)

    def data_received(self, chunk: bytes) -> Any:
        """Keep a piece of the body if `expect_body` was called; otherwise drop it."""
        if self._body is None or self._is_too_large:
            return
        if len(self._body) + len(chunk) > self.most_bytes:
            self._is_too_large, self._body = True, bytearray()
            return
        self._body += chunk

    def body(self) -> dict[str, Any]:
        """Return the JSON object in the request; an empty one if there is no body.

        Raises:
            TooLarge: a chunked body was too long.
            UsageError: the body is not a JSON object.
        """
        if self._is_too_large:
            raise self._too_large()
        return json_object(bytes(self._body or b""))

    def read(self, kind: type[M]) -> M:
        """Return the body as a `kind`.

        Raises:
            UsageError: it is not a JSON object.
            InvalidRequest: fields are wrong or unknown; every one is named with what is allowed.
        """
        return validation.read_model(self.body(), kind)

    def finish(self, chunk: Any = None) -> Any:
        """Answer, and discard the rest of the body before the connection is closed."""
        connection, arrived = self.request.connection, self.request._body_future
        if isinstance(connection, HTTP1Connection) and not arrived.done():
            # A proxy that reused the connection would answer another client with 503.
            self.set_header("Connection", "close")
            if self._goes_on():
                connection.set_max_body_size(MOST_DISCARDED)
                connection.set_body_timeout(BODY_WITHIN)
                self.request.connection = _Answered(connection, arrived)  # type: ignore[assignment]
            else:
                # without this, Tornado would answer a large body with 400, after our own answer
                connection.set_max_body_size(1 << 62)
        return super().finish(chunk)

    def on_connection_close(self) -> None:
        """Drop a body that did not arrive completely."""
        self._body = None
        super().on_connection_close()

    def _goes_on(self) -> bool:
        """Return whether the sender may finish the body; otherwise the connection is closed."""
        headers = self.request.headers
        try:
            length = body_length(headers)
        except HTTPError:
            return False
        # with `Expect` the sender waits for the answer, and sends no body after a refusal
        return "Expect" not in headers and (length is None or length <= MOST_DISCARDED)

    def _too_large(self) -> TooLarge:
        most = f"{self.most_bytes / (1 << 20):g} MiB"
        return TooLarge(
            _("the request is too large: at most {most} are accepted").format(most=most)
        )


class ProblemResponses(RequestHandler):
    """A handler whose failures are problem responses. It must be the first of the base classes."""

    expected_errors: tuple[type[BaseException], ...] = (TFClusterError,)
    """Errors that are shown to the user and are not logged, since the service is not at fault."""

    def internal_error(self) -> str:
        """Return the sentence for an internal error, which says where to find its cause."""
        raise NotImplementedError

    def in_language(self) -> AbstractContextManager[object]:
        """Return a context in which messages are in the language of the request."""
        return nullcontext()

    def problem_of(self, error: BaseException) -> dict[str, Any]:
        """Return the problem to send for an error."""
        return problem(error, self.internal_error())

    def send_problem(self, told: dict[str, Any]) -> None:
        """Answer with problem details."""
        self.set_status(told["status"])
        self.set_header("Content-Type", PROBLEM_TYPE)
        self.finish(encoded_problem(told))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with the problem details of an error. Tornado calls this for every exception of a
        handler.
        """
        error = (kwargs.get("exc_info") or (None, None, None))[1]
        with self.in_language():
            self.send_problem(self.problem_of(HTTPError(status_code) if error is None else error))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log internal errors only."""
        if not isinstance(value, self.expected_errors):
            super().log_exception(typ, value, tb)


class _Answered:
    """A connection that sends the answer while the body still arrives."""

    def __init__(self, connection: HTTP1Connection, arrived: Future[None]) -> None:
        self._connection, self._arrived = connection, arrived

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def finish(self) -> None:
        """Close the connection once the body has arrived."""
        self._arrived.add_done_callback(self._end)

    def _end(self, arrived: Future[None]) -> None:
        if not arrived.cancelled() and arrived.exception() is None:
            self._connection._disconnect_on_finish = True
            self._connection.finish()


def json_object(text: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object; an empty body is an empty object.

    Raises:
        UsageError: it is something else, or nested too deeply.
    """
    try:
        data = json.loads(text or b"{}", parse_constant=_refuse_constant)
        if b"\\u" in text:  # an unpaired surrogate cannot be encoded
            json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except (ValueError, RecursionError):
        raise UsageError(_("the body of the request is not JSON")) from None
    if not isinstance(data, dict):
        raise UsageError(_("the body of the request is not a JSON object"))
    level: list[Any] = [data]
    for _depth in range(MOST_NESTED):
        below = (one.values() if isinstance(one, dict) else one for one in level)
        level = [part for parts in below for part in parts if isinstance(part, dict | list)]
        if not level:
            return data
    raise UsageError(_("the body of the request is nested too deeply"))


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
