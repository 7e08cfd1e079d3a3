"""Downloading a program by http or https.

Promises an answer or one clear error within the time limit, and never more bytes in memory than
the size limit. Owns what a URL may be, redirects, time limits and the checksum of the download.
Never reads another scheme (file:, ftp:), not even by a redirect, and never writes a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import IO, cast

from ..i18n import _, mark
from .tree import refusal, size_text

SILENCE = 20.0
"""Seconds without a byte after which the server counts as gone."""
SCHEMES = ("http", "https")
_SCHEME_RULE = mark("a URL starts with http:// or https://")


@dataclass(frozen=True)
class Download:
    """What came: its bytes, and the URL after redirects."""

    content: bytes
    url: str


def split_checksum(url: str, sha256: str | None) -> tuple[str, str | None]:
    """The URL without its fragment, and the checksum of the argument or of `#sha256=...`.

    Raises:
        InvalidRequest: the scheme, a name with a password in it, or the checksum are not valid.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _port = parts.hostname, parts.port  # both are parsed when asked for
    except ValueError as error:
        raise refusal(
            url,
            _("it is not a valid URL ({why}); {rule}").format(why=error, rule=_(_SCHEME_RULE)),
        ) from None
    if parts.scheme.lower() not in SCHEMES:
        raise refusal(
            url,
            _("{scheme}:// is not supported; {rule}").format(
                scheme=parts.scheme, rule=_(_SCHEME_RULE)
            ),
        )
    if not host:
        raise refusal(
            url,
            _("it names no host; {rule}, then the host").format(rule=_(_SCHEME_RULE)),
        )
    if parts.username or parts.password:
        shown = parts._replace(netloc=f"…@{host}").geturl()
        raise refusal(shown, _("a URL with a user name or password would be kept in the record"))
    named = urllib.parse.parse_qs(parts.fragment).get("sha256", [])
    sums = {s.lower() for s in [*named, *([sha256] if sha256 else [])]}
    if len(sums) > 1:
        both = _(" and ").join(sorted(sums))
        raise refusal(url, _("two checksums were given, {sums}; give one").format(sums=both))
    expected = sums.pop() if sums else None
    if expected is not None and not re.fullmatch(r"[0-9a-f]{64}", expected):
        raise refusal(
            url,
            _("sha256={expected} is no checksum: it has 64 digits of 0-9 and a-f").format(
                expected=expected
            ),
        )
    return parts._replace(fragment="").geturl(), expected


def fetch(
    url: str,
    *,
    sha256: str | None = None,
    limit_bytes: int,
    timeout: float,
    silence: float = SILENCE,
) -> Download:
    """Download a file into memory.

    Args:
        url: as `split_checksum` returns it.
        limit_bytes: most bytes to read.
        sha256: what the SHA-256 of the downloaded bytes must be.
        timeout: seconds for the whole download.
        silence: seconds without a byte.

    Raises:
        InvalidRequest: for whatever goes wrong, with the URL and the server's status.
    """
    deadline = _Deadline(timeout)
    try:
        content, final = _read(url, limit_bytes, deadline, silence)
    except urllib.error.HTTPError as error:
        error.close()
        raise refusal(url, _status_text(error)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if deadline.passed:
            raise refusal(
                url, _("the download took longer than {seconds:g} seconds").format(seconds=timeout)
            ) from None
        raise refusal(url, _failure_text(error, silence)) from None
    finally:
        deadline.cancel()
    got = hashlib.sha256(content).hexdigest()
    if sha256 is not None and got != sha256:
        raise refusal(
            url,
            _(
                "what was downloaded has sha256 {got}, and {sha256} was asked for: either the file "
                "changed or the checksum is of another one"
            ).format(got=got, sha256=sha256),
        )
    return Download(content, final)


def _read(url: str, limit_bytes: int, deadline: _Deadline, silence: float) -> tuple[bytes, str]:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(deadline),
        _Https(deadline),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    quoted = urllib.parse.quote(url, safe=":/?#[]@!$&'()*+,;=%~")
    request = urllib.request.Request(  # noqa: S310  split_checksum admits http and https only
        quoted, headers={"User-Agent": "tfcluster", "Accept-Encoding": "identity"}
    )
    with cast("http.client.HTTPResponse", opener.open(request, timeout=silence)) as response:
        said = response.headers.get("Content-Length", "")
        length = int(said) if said.isdecimal() else None
        too_large = _("the limit is {size}; keep data out of the program").format(
            size=size_text(limit_bytes)
        )
        if length is not None and length > limit_bytes:
            text = _("it has {size}, and {too_large}")
            raise refusal(url, text.format(size=size_text(length), too_large=too_large))
        content = bytearray()
        while block := response.read1(64 * 1024):  # returns what is there, so that slowness shows
            content += block
            if len(content) > limit_bytes:
                text = _("it is too large, {too_large}")
                raise refusal(url, text.format(too_large=too_large))
        if deadline.passed:
            raise TimeoutError
        if length is not None and len(content) < length:
            raise http.client.IncompleteRead(bytes(content), length - len(content))
        encoded = response.headers.get("Content-Encoding", "identity") != "identity"
        if encoded and not url.endswith("gz"):  # some servers call a .tar.gz itself encoded
            raise refusal(url, _("the server sent it in an encoding that was not asked for"))
        return bytes(content), response.geturl()


_MEANINGS = {
    401: mark("it wants a sign-in"),
    403: mark("it refuses access"),
    404: mark("there is no such file"),
}


def _status_text(error: urllib.error.HTTPError) -> str:
    if error.code in range(300, 400):
        return _("the server answered {code} and redirects in a circle, or too often").format(
            code=error.code
        )
    why = ""
    if error.code in _MEANINGS:
        why = f": {_(_MEANINGS[error.code])}"
    return _("the server answered {code} ({reason}){why}. Check the URL in a browser").format(
        code=error.code, reason=" ".join(str(error.reason).split())[:200], why=why
    )


def _failure_text(error: Exception, silence: float) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return _(
            "the server did not answer within {seconds:g} seconds; try again, or use a file"
        ).format(seconds=silence)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _("the server's certificate is not trusted: {why}").format(why=cause.verify_message)
    if isinstance(cause, http.client.IncompleteRead):
        return _("the download broke off after {size}; try again").format(
            size=size_text(len(cause.partial))
        )
    if isinstance(cause, http.client.HTTPException):
        return _("the server's answer is not HTTP ({kind})").format(kind=type(cause).__name__)
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return _("it could not be reached: {why}. Check the URL and the network").format(why=text)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows at most 5 redirects, and only to http and https."""

    max_redirections = 5

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message
    ) -> object:
        """Refuse other schemes by name, which the base class would follow (ftp) or not explain."""
        fp.close()  # else the base class reads its body, of whatever size
        target = urllib.parse.urljoin(req.full_url, headers.get("location") or "")
        if urllib.parse.urlsplit(target).scheme.lower() not in SCHEMES:
            raise refusal(
                req.full_url,
                _("it redirects to {target}; only http and https are followed").format(
                    target=target
                ),
            )
        known = 307 if code == 308 else code  # Python 3.10 does not know 308
        return super().http_error_302(req, fp, known, msg, headers)  # type: ignore[arg-type]

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Deadline:
    """Shuts the sockets of a download when its time is over: no read can outlast it."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, sock: socket.socket) -> None:
        """End reads of `sock` at the deadline."""
        self._sockets.append(sock)
        if self.passed:
            self._pass()

    def cancel(self) -> None:
        """The download is over."""
        self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # it is closed already
                # Not SSLSocket.shutdown, which takes the TLS state from under a reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        deadline = self._deadline

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                deadline.watch(self.sock)

        return self.do_open(Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        deadline = self._deadline

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                deadline.watch(self.sock)

        return self.do_open(Connection, req)
