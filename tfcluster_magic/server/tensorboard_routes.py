"""Routes of TensorBoards, and the pages of each board below this server.

Only signed-in, authorised users reach a board. A board never receives a cookie, a token or the
client's address. Bodies are streamed in both directions. If a board has died, or has ended because
it was idle, loading its page starts it again; if it does not start, the page says why. Only
`ServerBoards` knows where a board listens.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
import struct
import zipfile
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from tornado.httputil import HTTPHeaders
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from ..errors import BackendUnavailable, Conflict, TFClusterError, UsageError
from ..i18n import _
from ..spec import Model
from ..tensorboard.child_process import HOST
from ..tensorboard.process import Board, own_page
from ..tensorboard.views import View
from ..web import body_length
from .base import (
    GuardedHandler,
    TFClusterHandler,
    abort_connection,
    guarded,
    guarded_read,
    is_allowed,
)
from .http_forwarding import BrokenAnswer, ForwardedRequest, NoAnswer, relocated
from .tensorboards import ServerBoards


def starting_page() -> str:
    """Return the page that is shown while a board starts. It reloads itself each second."""
    return own_page(
        f'<p role="status">{escape(_("TensorBoard is starting …"))}</p>',
        '<meta http-equiv="refresh" content="1">',
    )


def failed_page(detail: str) -> str:
    """Return a page with the error, and a link to try again."""
    first, _newline, rest = detail.partition("\n")
    more = f"<pre>{escape(rest)}</pre>" if rest else ""
    again = escape(_("Try again"))
    return own_page(f'<p role="alert">{escape(first)}</p>{more}<p><a href="">{again}</a></p>')


# While a board is still starting, this server sends TensorBoard's page to the tab: it reads the
# files from TensorBoard's package and sends them exactly as the board would (bytes, type, caching
# and policy). A browser takes as long to parse the page's script (2 MB compressed, 6 MB
# uncompressed) as a board takes to start. Because both happen at the same time, Chromium first
# paints after 1.1 s instead of 3.2 s (median of eight, two busy cores). If the package has another
# layout, the board serves the page once it runs. TensorBoard is never imported here.

INDEX = "index.html"
_ROOT_TAG = b'<!doctype html><meta name="tb-relative-root" content="./">'
_POLICY = (
    "default-src 'self';font-src 'self' data:;frame-src 'self' https://ui.perfetto.dev;"
    "img-src 'self' data: blob:;object-src 'none';"
    "style-src 'self' https://www.gstatic.com data: 'unsafe-inline';connect-src 'self';"
    "script-src 'self' 'unsafe-eval'"
)
_SCRIPT = "text/javascript"
_SCRIPT_MAX_AGE = 86400
"""Seconds for which browsers cache a script whose URL has a hash of its content."""
_LOCAL_HEADER = 30
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


@dataclass(frozen=True)
class PackagedFile:
    """A file of TensorBoard's package, in the form in which it is sent to a browser."""

    body: bytes
    headers: dict[str, str]


def packaged_file(path: str, *, hashed: bool, gzip: bool) -> PackagedFile | None:
    """Return a file of TensorBoard's page from its package; None if it does not exist. The empty
    path is the page itself.

    Args:
        path: as the browser requests it, without the query.
        hashed: whether the query has a hash of the content.
        gzip: whether the browser accepts gzip.
    """
    name = path or INDEX
    try:
        with zipfile.ZipFile(_archive()) as archive:
            entry = archive.getinfo(name)
            if entry.is_dir() or not {INDEX, "index.js"} <= set(archive.namelist()):
                return None
            if name == INDEX:
                return PackagedFile(_ROOT_TAG + archive.read(entry), _file_headers(name, hashed))
            if gzip and entry.compress_type == zipfile.ZIP_DEFLATED:
                told = _file_headers(name, hashed) | {"Content-Encoding": "gzip"}
                return PackagedFile(_gzipped(archive, entry), told)
            return PackagedFile(archive.read(entry), _file_headers(name, hashed))
    except (OSError, KeyError, ValueError, struct.error, zipfile.BadZipFile):
        return None


def _archive() -> Path:
    spec = find_spec("tensorboard")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("tensorboard")
    return Path(spec.submodule_search_locations[0], "webfiles.zip")


def _gzipped(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the entry in gzip format, without recompression: both formats use deflate."""
    assert archive.fp is not None
    archive.fp.seek(entry.header_offset)
    name_length, extra_length = struct.unpack("<26xHH", archive.fp.read(_LOCAL_HEADER))
    archive.fp.seek(name_length + extra_length, 1)
    deflated = archive.fp.read(entry.compress_size)
    return _GZIP_HEADER + deflated + struct.pack("<II", entry.CRC, entry.file_size & 0xFFFFFFFF)


def _file_headers(name: str, hashed: bool) -> dict[str, str]:
    kind = _SCRIPT if name.endswith(".js") else mimetypes.guess_type(name)[0]
    kind = kind or "application/octet-stream"
    is_text = kind.startswith("text/") or kind == "image/svg+xml"
    headers = {"Content-Type": f"{kind}; charset=utf-8" if is_text else kind}
    if hashed and kind == _SCRIPT:
        return headers | {"Cache-Control": f"private, max-age={_SCRIPT_MAX_AGE}"}
    headers |= {"Cache-Control": "no-cache, must-revalidate", "Expires": "0"}
    if kind == "text/html":
        headers["Content-Security-Policy"] = _POLICY
    return headers


# -- routes

PAGE = "tfcluster/tensorboard"
"""Path below base_url of a board's pages, followed by its id."""
PATIENCE = 2.5
"""Maximum seconds that a request waits for its board before the starting page is shown."""

_SECRET_PARAMETERS = re.compile(r"(token|_xsrf)(=|$)")
"""Query parameters not to forward: the server's token, and the XSRF token."""

_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")


class BoardPage(GuardedHandler):
    """`/tfcluster/tensorboard/{id}/{path}`."""

    expected_errors = (TFClusterError, NoAnswer, StreamClosedError)
    _forward: ForwardedRequest | None = None

    @property
    def _boards(self) -> ServerBoards:
        return self.service.boards

    @property
    def content_security_policy(self) -> str:
        """The policy by which only pages of this server may frame a board; the board's own policy
        applies too.
        """
        return "frame-ancestors 'self'"

    def check_xsrf_cookie(self) -> None:
        """Refuse requests from other sites, as reported by the browser.

        TensorBoard's requests only read and do not send Jupyter's XSRF token. Instead, the headers
        tell where a request comes from: browsers send `Sec-Fetch-Site` to addresses with https and
        to localhost, and `Origin` with every POST.
        """
        if not hasattr(self, "_jupyter_current_user") or self.token_authenticated:
            return
        if self.settings.get("disable_check_xsrf", False):
            return
        sent, looks = self.request.headers, self.request.method in ("GET", "HEAD")
        site = sent.get("Sec-Fetch-Site")
        ours = site in ("same-origin", "none")
        if site is None:
            ours = looks or ("Origin" in sent and self.check_origin())
        if not ours and not (looks and sent.get("Sec-Fetch-Mode") == "navigate"):
            raise HTTPError(403, _("this request came from a page of another site"))

    async def prepare(self) -> None:  # type: ignore[override]  # as in Jupyter Server's own
        """If the user is signed in, start to forward the request before its body has arrived
        completely.
        """
        await super().prepare()
        if body_length(self.request.headers) != 0 and not self.current_user:
            raise HTTPError(403)  # also for GET: a GET with a body is not redirected to the login
        if self.request.method == "POST" and not self._finished:
            await self._begin()

    @guarded_read
    async def _begin(self) -> None:
        its_id = self.path_args[0]
        await self._connect(its_id, await self._reach(its_id))

    async def data_received(self, chunk: bytes) -> None:
        """Forward a piece of the body; drop it if no request to a board has begun."""
        if self._forward is not None:
            await self._forward.send(chunk)

    @guarded
    async def get(self, its_id: str, path: str | None = None) -> None:
        """Answer with a page, a script or data of the board."""
        self.check_xsrf_cookie()  # Tornado does not check the cookie for GET
        if path is None:
            self.redirect(f"{self.request.path}/{self._query}")
            return
        if self._boards.is_early(its_id) and await self._packed(path):
            return
        board = await (self._reach(its_id) if path else self._opened(its_id))
        if board is not None:
            await self._connect(its_id, board)
            await self._answer(its_id)

    head = get

    @guarded_read
    async def post(self, its_id: str, path: str | None = None) -> None:  # noqa: ARG002
        """Answer with data of the board. `prepare` has already started to forward the request to
        the board.
        """
        await self._answer(its_id)

    async def _packed(self, path: str) -> bool:
        """Answer with a file of TensorBoard's package; return False if the package has no such
        file.
        """
        gzip = bool(_GZIP.search(self.request.headers.get("Accept-Encoding", "")))
        hashed = "_file_hash" in self.request.query_arguments
        file = await asyncio.to_thread(packaged_file, path, hashed=hashed, gzip=gzip)
        if file is None:
            return False
        for name, value in file.headers.items():
            if name == "Content-Security-Policy":
                # Keep our own policy too: the browser applies both. A running TensorBoard's answers
                # also have both policies.
                self.add_header(name, value)
            else:
                self.set_header(name, value)
        self.set_header("Vary", "Accept-Encoding")
        self.finish(file.body)
        return True

    async def _reach(self, its_id: str) -> Board:
        """Return the board; start it if necessary and if the user may start boards. Raises the
        errors of `ServerBoards.reach`.
        """
        if await is_allowed(self, "write"):
            return await self._boards.reach(its_id)
        board = await self._boards.running_board(its_id)
        if board is None:
            raise Conflict(_("this TensorBoard is not running, and you may not start it here"))
        return board

    async def _opened(self, its_id: str) -> Board | None:
        """Return the board for a page that is being loaded. If the board is not ready in time, show
        the starting page and return None.
        """
        if (board := self._boards.just_opened(its_id)) is not None:
            return board
        if not await is_allowed(self, "write"):
            return await self._reach(its_id)
        opening = self._boards.begin(its_id)
        await asyncio.wait([opening], timeout=PATIENCE)
        if opening.done():
            return opening.result()
        self._show(starting_page(), 202)
        return None

    async def _connect(self, its_id: str, board: Board) -> None:
        try:
            self._forward = await self._sent(board)
        except NoAnswer:  # the board has just ended
            self._boards.lost(its_id)
            self._forward = await self._sent(await self._reach(its_id))

    async def _sent(self, board: Board) -> ForwardedRequest:
        self._board = board
        asked = self.request
        path = board.path_prefix + asked.path[len(self._base) :]  # still percent-encoded
        method = str(asked.method)
        return await ForwardedRequest.begin(
            HOST, board.port, method, path + self._query, asked.headers
        )

    @property
    def _query(self) -> str:
        """The query as received, without this server's tokens."""
        pairs = [p for p in self.request.query.split("&") if p and not _SECRET_PARAMETERS.match(p)]
        return f"?{'&'.join(pairs)}" if pairs else ""

    @property
    def _base(self) -> str:
        """The path of the board's pages as the browser sees it."""
        ours = f"/{PAGE}/{self.path_args[0]}"
        return self.request.path.partition(ours)[0] + ours

    async def _answer(self, its_id: str, *, again: bool = False) -> None:
        assert self._forward is not None
        try:
            await self._forward.answer(self._head, self._piece)
        except NoAnswer:
            self._boards.lost(its_id)
            if again or self.request.method == "POST":
                raise
            # The board was killed after it had received the request: start it and repeat the
            # request.
            self._forward = await self._sent(await self._reach(its_id))
            await self._answer(its_id, again=True)
            return
        except BrokenAnswer:
            abort_connection(self)
            return
        self.finish()

    def _head(self, code: int, reason: str, headers: HTTPHeaders) -> None:
        self.set_status(code, reason)
        self.clear_header("Content-Type")
        for name, value in headers.get_all():
            self.add_header(name, value)
        if "Location" in headers:
            board, where = self._board, headers["Location"]
            there = relocated(where, HOST, board.port, board.path_prefix, self._base)
            self.set_header("Location", there)

    async def _piece(self, chunk: bytes) -> None:
        self.write(chunk)
        await self.flush()

    def compute_etag(self) -> None:
        """Do nothing, so that Tornado adds no ETag of its own to the board's answer."""

    def on_finish(self) -> None:
        """Close the request to the board."""
        if self._forward is not None:
            self._forward.close()

    def on_connection_close(self) -> None:
        """Close the request to the board, because the browser has gone."""
        self.on_finish()
        super().on_connection_close()

    # -- without a board ---------------------------------------------------------------------------

    def problem_of(self, error: BaseException) -> dict[str, Any]:
        """Return the problem to send for an error, or for a board that does not answer."""
        if isinstance(error, NoAnswer):
            error = BackendUnavailable(_("TensorBoard does not answer; reload the page"))
        return super().problem_of(error)

    def send_problem(self, told: dict[str, Any]) -> None:
        """Send an error: a page to a browser that loads a page, a problem to a script."""
        arguments = vars(self).get("path_args") or []  # empty if the address is not valid UTF-8
        if len(arguments) < 2 or not arguments[1]:
            self._show(failed_page(told["detail"]), told["status"])
        else:
            super().send_problem(told)

    def _show(self, page: str, status: int) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        policy = f"{self.content_security_policy}; default-src 'none'; style-src 'unsafe-inline'"
        self.set_header("Content-Security-Policy", policy)
        self.finish(page)


class BoardBody(Model, frozen=True):
    """A request for a TensorBoard for runs or a folder; for all runs if both are missing."""

    refs: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    folder: Annotated[str, Meta(max_length=4096)] | None = None
    wait: bool = True


def tensorboard_json(view: View, running: bool = True) -> dict[str, Any]:
    """Return a view as pages get it; `path` is below the server's base_url."""
    return {
        "id": view.id,
        "path": f"{PAGE}/{view.id}/",
        "title": view.title,
        "refs": list(view.runs),
        "folder": view.asked,
        "running": running,
    }


class BoardsHandler(TFClusterHandler):
    """`/tensorboards`."""

    @guarded
    async def get(self) -> None:
        """Answer with the running boards."""
        views = await self.service.boards.running()
        self.reply({"tensorboards": [tensorboard_json(view) for view in views]})

    @guarded
    async def post(self) -> None:
        """Open the board for runs or a folder; equal requests share one board."""
        wish = self.read(BoardBody)
        if wish.refs and wish.folder is not None:
            raise UsageError(_("name runs or a folder, not both"))
        view, running = await self.service.boards.open(wish.refs, wish.folder, wait=wish.wait)
        self.reply(tensorboard_json(view, running), 201 if running else 202)


class BoardHandler(TFClusterHandler):
    """`/tensorboards/{id}`."""

    @guarded
    async def delete(self, its_id: str) -> None:
        """Stop a board; loading its page starts it again."""
        await self.service.boards.stop(its_id)
        self.set_status(204)
        self.finish()


ROUTES = [(r"tensorboards", BoardsHandler), (r"tensorboards/([0-9a-f]{16})", BoardHandler)]
PAGES = [(rf"{PAGE}/([0-9a-f]{{16}})(?:/(.*))?", BoardPage)]
