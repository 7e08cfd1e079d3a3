"""Raw HTTP, for requests that no client library sends."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress

from support.hub.visitor import Visitor

QUIET = 5.0
"""Seconds of silence after which an answer counts as complete."""


def exchange(port: int, sent: bytes | Iterable[bytes], quiet: float = QUIET) -> bytes:
    """Send bytes, and return everything that comes back until the server closes or is silent."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=quiet) as connection:
        # if the server refuses the request midway, its answer may have arrived already
        with suppress(OSError):
            for part in [sent] if isinstance(sent, bytes) else sent:
                connection.sendall(part)
        with suppress(OSError):
            while part := connection.recv(65536):
                heard += part
    return heard


def request(
    method: str,
    path: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    length: bool = True,
) -> bytes:
    """Return a request as bytes, which asks the server to close the connection afterwards."""
    pairs = [*(headers.items() if isinstance(headers, Mapping) else headers)]
    named = {name.lower() for name, _ in pairs}
    if "host" not in named:
        pairs.insert(0, ("Host", "127.0.0.1"))
    if length and "content-length" not in named and (body or method != "GET"):
        pairs.append(("Content-Length", str(len(body))))
    if "connection" not in named:
        pairs.append(("Connection", "close"))
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + body


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of all answers in these bytes."""
    return [int(found) for found in re.findall(rb"(?:^|\r\n|\n|\})HTTP/1\.[01] (\d{3})", answer)]


def body(answer: bytes) -> bytes:
    """Return everything after the headers of the first answer."""
    return answer.partition(b"\r\n\r\n")[2]


def cookies(visitor: Visitor, path: str) -> dict[str, str]:
    """Return the cookies and the token that a browser sends to a path, as headers."""
    fits = [one for one in visitor.session.cookies if path.startswith(one.path)]
    return {
        "Cookie": "; ".join(f"{one.name}={one.value}" for one in fits),
        "X-XSRFToken": visitor.xsrf(path.removeprefix("/")),
    }
