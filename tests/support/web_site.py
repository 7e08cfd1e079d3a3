"""A web site with programs and archives."""

from __future__ import annotations

import gzip
import http.server
import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator

import pytest

Handler = http.server.BaseHTTPRequestHandler
Answer = Callable[[Handler], None]
TRAIN = b"print('hello')\n"


class Site:
    """A server on loopback; `pages` maps paths to their handlers."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.over = threading.Event()
        pages = self.pages

        class Requests(Handler):
            def do_GET(self) -> None:  # noqa: N802
                answer = pages.get(self.path.partition("?")[0])
                if answer is None:
                    self.send_error(404)
                else:
                    answer(self)

            def log_message(self, *args: object) -> None:
                """Log nothing."""

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """Ignore a client that disconnects in the middle, as clients in some tests do."""

        self.server = Server(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def add(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> str:
        """Serve `body` at `path`; return its URL."""

        def answer(request: Handler) -> None:
            request.send_response(200)
            for name, value in (headers or {"Content-Length": str(len(body))}).items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body)

        self.pages[path] = answer
        return self.url + path

    def redirect(self, path: str, target: str, code: int = 302) -> str:
        """Redirect `path` to `target`; return its URL."""

        def answer(request: Handler) -> None:
            request.send_response(code)
            request.send_header("Location", target)
            request.send_header("Content-Length", "0")
            request.end_headers()

        self.pages[path] = answer
        return self.url + path

    def close(self) -> None:
        """End every answer and the server."""
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    """Yield a server; close it after the test."""
    server = Site()
    yield server
    server.close()


def zipped(files: dict[str, bytes], modes: dict[str, int] | None = None) -> bytes:
    """Return a zip file as programs on Linux make it: each entry has a file mode, from `modes` or
    0o644.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return stream.getvalue()


def tarred(files: dict[str, bytes], **change: object) -> bytes:
    """Return a .tar.gz; `change` sets attributes of every entry."""
    stream = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in change.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()
