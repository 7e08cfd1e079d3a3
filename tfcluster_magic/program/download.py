"""Programs from a URL: the download by http or https, and the unpacking of archives in memory.

A download ends with an answer or one clear error within the time limit, and never takes more memory
than the size limit. This module has the rules for URLs, redirects, checksums and entries of
archives. Other schemes (file:, ftp:) are never read, not even by a redirect, and no file is
written.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import io
import re
import socket
import ssl
import stat
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from typing import IO, cast

from ..i18n import _, mark
from .tree import (
    MAX_FILES,
    File,
    check_limits,
    check_paths,
    format_size,
    is_ignored,
    is_safe,
    program_refusal,
)

SILENCE = 20.0
"""Seconds without a byte after which the server counts as gone."""
SCHEMES = ("http", "https")
_SCHEME_RULE = mark("a URL starts with http:// or https://")


@dataclass(frozen=True)
class Download:
    """The bytes that were downloaded, and the URL after redirects."""

    content: bytes
    url: str


def split_checksum(url: str, sha256: str | None) -> tuple[str, str | None]:
    """Return the URL without its fragment, and the checksum from the argument or from
    `#sha256=...`.

    Raises:
        InvalidRequest: the scheme or checksum is invalid, or the URL has a user name or password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        # urllib raises ValueError for a wrong host or port only here
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise program_refusal(
            url,
            _("it is not a valid URL ({why}); {rule}").format(why=error, rule=_(_SCHEME_RULE)),
        ) from None
    if parts.scheme.lower() not in SCHEMES:
        raise program_refusal(
            url,
            _("{scheme}:// is not supported; {rule}").format(
                scheme=parts.scheme, rule=_(_SCHEME_RULE)
            ),
        )
    if not host:
        raise program_refusal(
            url,
            _("it names no host; {rule}, then the host").format(rule=_(_SCHEME_RULE)),
        )
    if parts.username or parts.password:
        shown = parts._replace(netloc=f"…@{host}").geturl()
        raise program_refusal(
            shown, _("a user name or password in a URL would be kept in the record; leave it out")
        )
    named = urllib.parse.parse_qs(parts.fragment).get("sha256", [])
    sums = {s.lower() for s in [*named, *([sha256] if sha256 else [])]}
    if len(sums) > 1:
        both = _(" and ").join(sorted(sums))
        raise program_refusal(
            url, _("two checksums were given, {sums}; give one").format(sums=both)
        )
    expected = sums.pop() if sums else None
    if expected is not None and not re.fullmatch(r"[0-9a-f]{64}", expected):
        raise program_refusal(
            url,
            _("sha256={expected} is no checksum: a checksum has 64 digits of 0-9 and a-f").format(
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
        limit_bytes: maximum bytes to read.
        sha256: the expected SHA-256 of the downloaded bytes.
        timeout: seconds for the whole download.
        silence: seconds without a byte after which the server counts as gone.

    Raises:
        InvalidRequest: the download failed; the error has the URL and the server's status.
    """
    deadline = Deadline(timeout)
    try:
        content, final = _read(url, limit_bytes, deadline, silence)
    except urllib.error.HTTPError as error:
        error.close()
        raise program_refusal(url, _status_text(error)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if deadline.passed:
            raise program_refusal(
                url, _("the download took longer than {seconds:g} seconds").format(seconds=timeout)
            ) from None
        raise program_refusal(url, _failure_text(error, silence)) from None
    finally:
        deadline.cancel()
    got = hashlib.sha256(content).hexdigest()
    if sha256 is not None and got != sha256:
        raise program_refusal(
            url,
            _(
                "the downloaded file has sha256 {got} instead of {sha256}: either the file has "
                "changed, or the checksum belongs to another file"
            ).format(got=got, sha256=sha256),
        )
    return Download(content, final)


def _read(url: str, limit_bytes: int, deadline: Deadline, silence: float) -> tuple[bytes, str]:
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
            size=format_size(limit_bytes)
        )
        if length is not None and length > limit_bytes:
            text = _("it has {size}, and {too_large}")
            raise program_refusal(url, text.format(size=format_size(length), too_large=too_large))
        content = bytearray()
        # `read1` returns the bytes that have arrived so far; `read` would wait for all 64 KiB,
        # however slowly they arrive.
        while block := response.read1(64 * 1024):
            content += block
            if len(content) > limit_bytes:
                text = _("it is too large, {too_large}")
                raise program_refusal(url, text.format(too_large=too_large))
        if deadline.passed:
            raise TimeoutError
        if length is not None and len(content) < length:
            raise http.client.IncompleteRead(bytes(content), length - len(content))
        encoded = response.headers.get("Content-Encoding", "identity") != "identity"
        # Some servers send `Content-Encoding: gzip` for a .tar.gz file that they did not compress,
        # so this header is ignored for such files.
        if encoded and not url.endswith("gz"):
            raise program_refusal(
                url, _("the server sent it in an encoding that was not asked for")
            )
        return bytes(content), response.geturl()


_MEANINGS = {
    401: mark("it requires a sign-in"),
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
            size=format_size(len(cause.partial))
        )
    if isinstance(cause, http.client.HTTPException):
        return _("the server's answer is not HTTP ({kind})").format(kind=type(cause).__name__)
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return _("it could not be reached: {why}. Check the URL and the network").format(why=text)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows at most 5 redirects, and only to http and https."""

    max_redirections = 5

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message
    ) -> object:
        """Refuse a redirect to another scheme with a message that names the target. The base class
        follows ftp, and does not explain its other refusals.
        """
        fp.close()  # else the base class reads its body, of any size
        target = urllib.parse.urljoin(req.full_url, headers.get("location") or "")
        if urllib.parse.urlsplit(target).scheme.lower() not in SCHEMES:
            raise program_refusal(
                req.full_url,
                _("it redirects to {target}; only http and https are followed").format(
                    target=target
                ),
            )
        known = 307 if code == 308 else code  # Python 3.10 does not know status 308
        return super().http_error_302(req, fp, known, msg, headers)  # type: ignore[arg-type]

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class Deadline:
    """A deadline at which the sockets of a download are shut down, so that no read lasts longer."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, sock: socket.socket) -> None:
        """End all reads from `sock` when the deadline passes."""
        self._sockets.append(sock)
        if self.passed:
            self._pass()

    def cancel(self) -> None:
        """Cancel the deadline, because the download is over."""
        self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # the socket is closed already
                # Not SSLSocket.shutdown, which removes the TLS state under a reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
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
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        deadline = self._deadline

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                deadline.watch(self.sock)

        return self.do_open(Connection, req)


# A .zip or .tar.gz as a tree, unpacked in memory. No entry of an archive leads out of its folder.
# An archive is never unpacked beyond the limit, whatever its headers say.

ArchiveEntry = tuple[str, int, bool, IO[bytes]]
"""An entry's path, its size according to the archive, whether it is executable, and its content."""


def unpack_archive(archive: bytes, *, source: object, limit_bytes: int) -> dict[str, File]:
    """Return the files of an archive. If one folder contains everything, it becomes the root.

    Raises:
        InvalidRequest: the file is no archive, or is damaged or encrypted, or unpacks to more than
            `limit_bytes`, or has an entry that is a link or leads out of the folder.
    """
    is_zip = zipfile.is_zipfile(io.BytesIO(archive))
    entries = (
        _zip_entries(archive, source) if is_zip else _tar_entries(archive, source, limit_bytes)
    )
    tree: dict[str, File] = {}
    sizes: dict[str, int] = {}
    left = limit_bytes
    try:
        for path, size, executable, stream in entries:
            sizes[path] = size
            if size > left or len(sizes) > MAX_FILES:
                check_limits(source, sizes, limit_bytes)
            content = stream.read(left + 1)  # a header may understate the size
            left -= len(content)
            sizes[path] = len(content)
            if left < 0:
                check_limits(source, sizes, limit_bytes)
            tree[path] = File(content, executable)
    except (
        tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError,
        # zipfile raises these two for an encrypted entry and an unknown compression
        RuntimeError, NotImplementedError,
    ) as error:  # fmt: skip
        raise program_refusal(
            source, _("the archive cannot be unpacked: {why}").format(why=error)
        ) from None
    check_paths(source, tree)
    return _without_common_folder(tree)


def _zip_entries(content: bytes, source: object) -> Iterator[ArchiveEntry]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            path = info.filename.removeprefix("./").rstrip("/")
            kind = _("a link") if stat.S_ISLNK(mode) else ""
            if _is_wanted(path, kind, source) and not info.is_dir():
                with archive.open(info) as stream:
                    yield path, info.file_size, bool(mode & stat.S_IXUSR), stream


def _tar_entries(content: bytes, source: object, limit_bytes: int) -> Iterator[ArchiveEntry]:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as plain:
        # The limit is above `limit_bytes`, because a tar stream has headers and padding in addition
        # to the files. A limit is needed, because a header may claim any size for its file.
        bounded = _BoundedStream(plain, limit_bytes + 4096 * MAX_FILES)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for info in archive:
                path = info.name.removeprefix("./").rstrip("/")
                kind = _("a link") if info.islnk() or info.issym() else _("a device")
                plain_kind = "" if info.isreg() or info.isdir() else kind
                if _is_wanted(path, plain_kind, source) and (stream := archive.extractfile(info)):
                    yield path, info.size, bool(info.mode & stat.S_IXUSR), stream


class _BoundedStream(io.RawIOBase):
    """A stream that fails after `limit_bytes`, so that a small archive cannot unpack for ever."""

    def __init__(self, stream: gzip.GzipFile, limit_bytes: int) -> None:
        self._stream, self._left = stream, limit_bytes

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises ValueError after more than `limit_bytes`."""
        block = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(block)
        if self._left < 0:
            raise ValueError(_("it unpacks to far more than the limit"))
        return block


def _is_wanted(path: str, kind: str, source: object) -> bool:
    """Return whether an entry of an archive is copied. `kind` is empty for files and folders; for
    other entries, which are refused, it says what they are.
    """
    if path in ("", "."):
        return False
    if not is_safe(path):
        raise program_refusal(
            source,
            _(
                "the archive has the entry {path!a}, which leads outside its folder or is not a "
                "plain name; pack the program's folder with relative names"
            ).format(path=path),
        )
    if is_ignored(path):
        return False
    if kind:
        raise program_refusal(
            source,
            _("{path} in the archive is {kind}; pack plain files").format(path=path, kind=kind),
        )
    return True


def _without_common_folder(tree: dict[str, File]) -> dict[str, File]:
    tops = {path.partition("/")[0] for path in tree}
    if len(tops) != 1 or any("/" not in path for path in tree):
        return tree
    top = len(tops.pop()) + 1
    return {path[top:]: file for path, file in tree.items()}
