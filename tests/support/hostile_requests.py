"""Hostile HTTP requests as bytes on a connection, and checks of their answers.

They work with any server of the product. A test or `make attack` gives the server's address, its
path, and the headers of a signed-in user.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

HUGE = 90 * 1024 * 1024
"""Length of a body that a request announces but never sends completely, in bytes."""
NESTED = b'{"options": ' + b"[" * 900 + b"]" * 900 + b"}"


@dataclass(frozen=True)
class Attack:
    """A hostile request. `path` is relative to the server's own path; `allowed` are the statuses
    with which the server may answer.
    """

    name: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    allowed: frozenset[int] = frozenset({400})
    signed_in: bool = True

    def raw(self, base: str, credentials: Mapping[str, str]) -> bytes:
        """Return the request as bytes."""
        lines = [f"{self.method} {base}{self.path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.signed_in:
            lines += [f"{name}: {value}" for name, value in credentials.items()]
        named = {name.lower() for name, _value in self.headers}
        if self.body and not named & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


@dataclass(frozen=True)
class Reply:
    """An answer; status 0 if the connection ended without one."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


FRAMINGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "a negative length": (("Content-Length", "-5"),),
    "a length that is no number": (("Content-Length", "five"),),
    "a length with a sign": (("Content-Length", "+5"),),
    "a hexadecimal length": (("Content-Length", "0x5"),),
    "an empty length": (("Content-Length", ""),),
    "a length of 5000 digits": (("Content-Length", "9" * 5000),),
    "two lengths": (("Content-Length", "5"), ("Content-Length", "6")),
    "two lengths in one header": (("Content-Length", "5, 6"),),
    "a length beside chunks": (("Content-Length", "5"), ("Transfer-Encoding", "chunked")),
    "an unknown coding": (("Transfer-Encoding", "gzip, identity"),),
}
"""Headers from which the length of the body is not clear."""
NUMBERS: Mapping[str, tuple[bytes, str]] = {
    "an infinite number": (b'{"options": {"cpu": 1e400}}', "options.cpu"),
    "a negative infinite number": (b'{"options": {"cpu": -1e400}}', "options.cpu"),
    "an infinite number in a list": (b'{"arguments": ["a", 1e999]}', "arguments[1]"),
    "an infinite number in place of text": (b'{"name": 1e400}', "name"),
    "a number of 4000 digits": (b'{"options": {"workers": ' + b"9" * 4000 + b"}}", "workers"),
}
"""JSON of a launch with an invalid number, and the field that the answer must name."""
NOT_JSON: Mapping[str, bytes] = {
    "NaN": b'{"options": {"cpu": NaN}}',
    "Infinity": b'{"options": {"cpu": Infinity}}',
    "a number of 5000 digits": b'{"options": {"cpu": ' + b"9" * 5000 + b"}}",
    "a list": b"[]",
    "900 lists in each other": NESTED,
    "100000 lists in each other": b"[" * 100_000,
    "half a pair of surrogates": b'{"cell": "\\ud800"}',
    "half a pair in a list": b'{"arguments": ["\\udfff"]}',
    "no UTF-8": b'{"name": "\xff\xfe"}',
}


def unclear_lengths(method: str, path: str) -> Iterator[Attack]:
    """Yield requests whose body has no clear length."""
    for name, headers in FRAMINGS.items():
        yield Attack(name, method, path, headers, b"12345", frozenset({400}))


def wrong_bodies(method: str, path: str) -> Iterator[Attack]:
    """Yield bodies that are not JSON, and launches with invalid numbers."""
    for name, body in NOT_JSON.items():
        yield Attack(name, method, path, (), body, frozenset({400}))
    for name, (body, _field) in NUMBERS.items():
        yield Attack(name, method, path, (), body, frozenset({422}))


def huge_bodies(
    method: str, path: str, allowed: frozenset[int], *, signed_in: bool
) -> Iterator[Attack]:
    """Yield large bodies that are sent only in part; the answer must not wait for the rest."""
    lengths = (("Content-Length", str(HUGE)),)
    yield Attack("90 MB", method, path, lengths, b"{", allowed, signed_in)
    if not signed_in:
        chunked = (("Transfer-Encoding", "chunked"),)
        yield Attack("endless", method, path, chunked, b"5\r\n{    \r\n", allowed, signed_in)


def send(
    where: tuple[str, int], attack: Attack, base: str, credentials: Mapping[str, str] = {}
) -> Reply:
    """Send an attack; raise TimeoutError if the answer waits for bytes that are never sent."""
    with socket.create_connection(where, timeout=90) as connection:
        connection.sendall(attack.raw(base, credentials))
        stream = connection.makefile("rb")
        try:
            words = stream.readline().split()
            if len(words) < 2:
                return Reply(0)
            headers: dict[str, str] = {}
            while line := stream.readline().strip():
                name, _colon, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            length = headers.get("content-length")
            body = b"" if length is None or attack.method == "HEAD" else stream.read(int(length))
        except ConnectionResetError:
            return Reply(0)
        return Reply(int(words[1]), headers, body)


def wrong(attack: Attack, reply: Reply) -> list[str]:
    """Return the problems of an answer."""
    found = []
    if reply.status not in attack.allowed:
        found.append(f"{attack.name}: {reply.status} is none of {sorted(attack.allowed)}")
    if b"Traceback" in reply.body:
        found.append(f"{attack.name}: a traceback is shown")
    if reply.body and "json" in reply.headers.get("content-type", ""):
        try:
            json.loads(reply.body, parse_constant=_refused)
        except ValueError as error:
            found.append(f"{attack.name}: the answer is not JSON ({error})")
    return found


def all_wrong(
    where: tuple[str, int],
    attacks: Sequence[Attack],
    base: str,
    credentials: Mapping[str, str] = {},
) -> list[str]:
    """Send these requests one by one, and return the problems of their answers."""
    return [
        f"{attack.method} {attack.path}, {text}"
        for attack in attacks
        for text in wrong(attack, send(where, attack, base, credentials))
    ]


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} in it")
