"""A tiny HTTP server that takes the place of a TensorBoard, and reports the requests that reach it.

  python recorder.py REGISTRY_FILE FOLDER PREFIX

It registers itself as the board on FOLDER, as `tensorboard/child_process.py` does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote

from tfcluster_magic.tensorboard.child_process import start_time

PREFIX = sys.argv[3]


class Recorder(BaseHTTPRequestHandler):
    """A handler for the path `echo` and the paths of the proxy's tests, all below the prefix."""

    protocol_version = "HTTP/1.1"
    go = threading.Event()
    sent: ClassVar[list[int]] = [0]
    got: ClassVar[list[int]] = [0]

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        if not self.path.startswith(f"{PREFIX}/"):
            self.send_error(404)
            return
        path, _mark, query = self.path[len(PREFIX) + 1 :].partition("?")
        named = getattr(self, f"page_{path.replace('/', '_').partition('.')[0]}", self.page_echo)
        named(unquote(query))

    do_POST = do_HEAD = do_GET  # noqa: N815 - http.server's names

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def page_data_environment(self, _query: str) -> None:
        self.answer(b"{}")

    def page_echo(self, _query: str) -> None:
        body = b"".join(self.pieces())
        told = {
            "method": self.command,
            "path": self.path,
            "headers": self.headers.items(),
            "body": body.decode("latin-1"),
        }
        self.answer(json.dumps(told).encode(), Content_Type="application/json")

    def page_redirect(self, query: str) -> None:
        self.answer(b"", 302, Location=query.replace("PORT", str(self.server.server_port)))

    def page_greedy(self, _query: str) -> None:
        """Answer with every header by which a board could act with the rights of the origin."""
        self.answer(
            b"x",
            Set_Cookie="of-the-board=1",
            Content_Security_Policy="default-src of-the-board",
            X_Frame_Options="DENY",
            Access_Control_Allow_Origin="http://of-the-board",
            Clear_Site_Data='"*"',
            Service_Worker_Allowed="/",
            Keep_Alive="timeout=5",
            Connection="X-Hop",
            X_Hop="1",
            ETag='"tag"',
        )

    def page_slow(self, _query: str) -> None:
        """Send the first half of an answer, and the second once the path `go` is requested."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (b"first", b"second"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if piece == b"first":
                self.go.wait(60)
        self.wfile.write(b"0\r\n\r\n")

    def page_go(self, _query: str) -> None:
        self.go.set()
        self.answer(b"")

    def page_big(self, query: str) -> None:
        """Send `query` MiB, or less if the client stops reading."""
        size, piece = int(query) << 20, bytes(1 << 16)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.sent[0] = 0
        try:
            while self.sent[0] < size:
                self.wfile.write(piece)
                self.sent[0] += len(piece)
        except OSError:
            self.close_connection = True

    def page_take(self, _query: str) -> None:
        """Count the bytes received, and wait for `go` before reading the rest."""
        self.got[0] = 0
        for piece in self.pieces():
            self.got[0] += len(piece)
        self.answer(str(self.got[0]).encode())

    def page_counts(self, _query: str) -> None:
        self.answer(json.dumps({"sent": self.sent[0], "got": self.got[0]}).encode())

    def page_half(self, _query: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"half")
        self.close_connection = True

    def page_none(self, _query: str) -> None:
        self.close_connection = True

    def pieces(self):
        """Yield the request's body, piece by piece."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read1(min(left, 1 << 16))
            left -= len(piece)
            yield piece


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    pid = os.getpid()
    facts = {"folder": sys.argv[2], "prefix": PREFIX, "port": server.server_port}
    facts |= {"pid": pid, "started": start_time(pid)}
    with open(f"{sys.argv[1]}.new", "w") as file:
        json.dump(facts, file)
    os.replace(f"{sys.argv[1]}.new", sys.argv[1])
    server.serve_forever()
