"""Forwarding of an HTTP request to a server on this machine, and of the answer back, as streams.

Bodies are never buffered completely: a fast sender waits for a slow receiver. Only the headers in
`REQUEST_HEADERS` are forwarded, and only those in `RESPONSE_HEADERS` are passed back. No cookie,
token or user name is sent to the target. Headers with which the target could act for our origin,
such as cookies or CORS headers, are not passed back. The target's content security policy is added
to ours. This module manages the connection to the target, and does not depend on who calls it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpclient import TCPClient
from tornado.util import TimeoutError as TornadoTimeout

from ..web import body_length

REQUEST_HEADERS = re.compile(
    "accept|accept-(encoding|language)|cache-control|content-type|"
    "if-((un)?modified-since|(none-)?match|range)|pragma|range|user-agent",
    re.IGNORECASE,
)
"""Headers of a request that are forwarded: those that say which content the client accepts, or
describe the body.
"""
RESPONSE_HEADERS = re.compile(
    "accept-ranges|age|cache-control|"
    "content-(disposition|encoding|language|length|range|security-policy|type)|etag|expires|last-modified|location|retry-after|vary",
    re.IGNORECASE,
)
"""Headers of an answer that are passed back: those about the content, caching and redirects."""

CONNECT_WITHIN = 3.0
ANSWER_WITHIN = 60.0
_PIECE = 64 * 1024
_NO_LIMIT = 1 << 50


class NoAnswer(Exception):
    """The target does not listen, or closed the connection without an answer; nothing was passed
    back.
    """


class BrokenAnswer(Exception):
    """The target or the client closed the connection in the middle of the answer."""


class ForwardedRequest(HTTPMessageDelegate):
    """A request in progress: `send` the pieces of its body, then call `answer`."""

    def __init__(self, stream: IOStream) -> None:
        self._stream = stream
        self._connection = HTTP1Connection(
            stream,
            True,
            HTTP1ConnectionParameters(
                no_keep_alive=True,
                chunk_size=_PIECE,
                header_timeout=ANSWER_WITHIN,
                max_body_size=_NO_LIMIT,
            ),
        )
        self._begun = self._complete = False

    @classmethod
    async def begin(
        cls, host: str, port: int, method: str, path: str, headers: HTTPHeaders
    ) -> ForwardedRequest:
        """Connect to the target, and send the head of the request.

        Raises:
            HTTPError: 400 if the headers do not say how long the body is.
            NoAnswer: nothing listens on the port.
        """
        try:
            stream = await TCPClient().connect(host, port, timeout=CONNECT_WITHIN)
        except (OSError, StreamClosedError, TornadoTimeout) as error:
            raise NoAnswer(str(error)) from None
        forward = cls(stream)
        passed = HTTPHeaders({"Host": f"{host}:{port}", "Connection": "close"})
        for name, value in headers.get_all():
            of_a_body = name.lower().startswith("content-")
            if REQUEST_HEADERS.fullmatch(name) and (method == "POST" or not of_a_body):
                passed.add(name, value)
        length = body_length(headers) if method == "POST" else None
        if length is not None:
            passed["Content-Length"] = str(length)
        try:
            await forward._connection.write_headers(RequestStartLine(method, path, ""), passed)
        except StreamClosedError:
            forward.close()
            raise NoAnswer("closed") from None
        return forward

    async def send(self, piece: bytes) -> None:
        """Forward a piece of the body; wait until the target accepts it."""
        try:
            await self._connection.write(piece)
        except StreamClosedError:  # the target may have answered early; see `answer`
            return

    async def answer(
        self,
        head: Callable[[int, str, HTTPHeaders], None],
        piece: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Pass the answer back: call `head` with status, reason and headers, then `piece` with each
        piece of data.

        Raises:
            NoAnswer: the target sent no answer, so nothing was passed back.
            BrokenAnswer: the connection was closed in the middle of the answer.
        """
        self._head, self._piece = head, piece
        try:
            self._connection.finish()
            await self._connection.read_response(self)
        except StreamClosedError:
            pass  # reported below
        finally:
            self.close()
        if not self._begun:
            raise NoAnswer("closed")
        if not self._complete:
            raise BrokenAnswer

    def close(self) -> None:
        """Close the connection to the target."""
        self._stream.close()

    # -- Tornado's callbacks -----------------------------------------------------------------------

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        """Pass the answer's head back."""
        assert isinstance(start_line, ResponseStartLine)
        if start_line.code < 200:
            return
        self._begun = True
        passed = HTTPHeaders()
        for name, value in headers.get_all():
            if RESPONSE_HEADERS.fullmatch(name):
                passed.add(name, value)
        self._head(start_line.code, start_line.reason, passed)

    async def data_received(self, chunk: bytes) -> None:
        """Pass a piece of the answer's body back."""
        try:
            await self._piece(chunk)
        except StreamClosedError:  # the client has gone
            self.close()

    def finish(self) -> None:
        """Record that the answer is complete."""
        self._complete = True


def relocated(location: str, host: str, port: int, prefix: str, base: str) -> str:
    """Return the address `location`, to which the target redirects, changed for the browser:
    `prefix` at the start of its path is replaced by `base`. Relative addresses and those of other
    servers are returned unchanged.
    """
    parts = urlsplit(location)
    if parts.netloc and parts.netloc not in (f"{host}:{port}", f"localhost:{port}"):
        return location
    if not parts.netloc and not parts.path.startswith("/"):
        return location
    path = parts.path
    if path == prefix or path.startswith(f"{prefix}/"):
        path = path[len(prefix) :]
    return (
        base.rstrip("/")
        + "/"
        + parts._replace(scheme="", netloc="", path=path.lstrip("/")).geturl()
    )
