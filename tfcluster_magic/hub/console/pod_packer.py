"""A user's claims as a tar.gz to whoever has the token: the program of an archive's pod.

It writes nothing, gives the data away once and ends, also when nobody comes for it. The end of the
chunked answer says that it is whole. It connects to nobody.

    POST /   Authorization: token …   {"records": {name: text}, "missed": {name: why}}
"""

from __future__ import annotations

import hmac
import io
import json
import os
import socket
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from .packer import pack

PORT = 8889  # ARCHIVE_PORT of `tenancy.namespace_objects`, which this program need not import
TOKEN = "TFCLUSTER_ARCHIVE_TOKEN"  # noqa: S105 - the name of a variable
MOUNT = Path("/archive")
"""Where the claims are, each in a folder of its name."""
UNUSED = 300.0
"""Seconds in which somebody comes for the data."""
SILENCE = 300.0
"""Seconds that a reader may rest."""
MOST_BYTES = 256 * 1024 * 1024
"""Most bytes of the records of one user's runs, which the console sends."""
_BLOCK = 256 * 1024


class _Chunks(io.RawIOBase):
    """A body of HTTP/1.1 whose length nobody knows before."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._out = handler.wfile

    def writable(self) -> bool:
        return True

    def write(self, block: bytes) -> int:  # type: ignore[override]
        if block:
            self._out.write(b"%x\r\n%b\r\n" % (len(block), block))
        return len(block)


class Giver(HTTPServer):
    """Serves one reader. `given` is whether it had all, `why` why not."""

    def __init__(self, listening: socket.socket, token: str, mount: Path = MOUNT) -> None:
        super().__init__(("", 0), _ArchiveHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.token, self.mount = token, mount
        self.timeout = UNUSED
        self.asked, self.given, self.why = False, False, "nobody came for the data"

    def handle_timeout(self) -> None:
        """Nobody came."""
        raise TimeoutError(self.why)

    def handle_error(self, request: object, client_address: object) -> None:
        """The reader has gone, or a file could not be read: the answer has no end."""
        del request, client_address
        self.why = str(sys.exc_info()[1])


class _ArchiveHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SILENCE
    server: Giver

    def do_POST(self) -> None:
        said = self.headers.get("Authorization", "")
        if not hmac.compare_digest(said.encode(), f"token {self.server.token}".encode()):
            self.send_error(403)
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 10):
            self.send_error(400)
            return
        if int(length) > MOST_BYTES:
            self.send_error(413)
            return
        asked = json.loads(self.rfile.read(int(length)))
        self.send_response(200)
        self.send_header("Content-Type", "application/gzip")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.server.why = "the data was not given away whole"
        self.server.asked = True
        mount = self.server.mount
        folders = {path.name: path for path in sorted(mount.iterdir()) if path.is_dir()}
        out = io.BufferedWriter(_Chunks(self), _BLOCK)  # type: ignore[type-var]
        pack(folders, out, asked["records"], asked["missed"])
        out.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        self.server.given = True

    def log_message(self, *words: object) -> None:
        """Who asks is in the audit log."""


def listening(port: int = PORT) -> socket.socket:
    """A socket that takes connections, by IPv6 and IPv4 where the pod has both."""
    with suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def main() -> None:
    """Give the data to the first who has the token."""
    server = Giver(listening(), os.environ[TOKEN])
    while not server.given:
        server.handle_request()
        if server.asked and not server.given:
            raise OSError(server.why)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
