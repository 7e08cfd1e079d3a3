"""The program that runs in the pod of an archive, and sends the data of a user.

The pod mounts the user's volume claims. The program sends them as a tar.gz file to a client that
knows the pod's token. It writes no files and opens no connections. It sends the data
once and then ends; it also ends if no client comes. The answer is sent in chunks; its last chunk
shows that the archive is complete.

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

# The same port as `tenancy.namespace_objects.ARCHIVE_PORT`. It is repeated here, because an import
# of that module would load many others.
PORT = 8889
TOKEN = "TFCLUSTER_ARCHIVE_TOKEN"  # noqa: S105 - the name of an environment variable
MOUNT = Path("/archive")
"""Folder whose subfolders are the mounted claims; each has the name of its claim."""
UNUSED = 300.0
"""Maximum seconds to wait for a client."""
SILENCE = 300.0
"""Seconds without progress after which a client is dropped."""
MOST_BYTES = 256 * 1024 * 1024
"""Maximum size in bytes of a request, which contains the records of a user's runs."""
_BLOCK = 256 * 1024


class _Chunks(io.RawIOBase):
    """A chunked HTTP/1.1 body."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._out = handler.wfile

    def writable(self) -> bool:
        return True

    def write(self, block: bytes) -> int:  # type: ignore[override]
        if block:
            self._out.write(b"%x\r\n%b\r\n" % (len(block), block))
        return len(block)


class Giver(HTTPServer):
    """A server for one client. `given` says whether everything has been sent to the client; if
    not, `why` has the reason.
    """

    def __init__(self, listening: socket.socket, token: str, mount: Path = MOUNT) -> None:
        super().__init__(("", 0), _ArchiveHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.token, self.mount = token, mount
        self.timeout = UNUSED
        self.asked, self.given, self.why = False, False, "no client came for the data"

    def handle_timeout(self) -> None:
        """Raise TimeoutError, because no client came."""
        raise TimeoutError(self.why)

    def handle_error(self, request: object, client_address: object) -> None:
        """Record why the answer is incomplete: the client left, or a file could not be read."""
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
        self.server.why = "the data was not sent completely"
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
        """Log nothing, because the console's audit log names the caller."""


def listening(port: int = PORT) -> socket.socket:
    """Return a listening socket, for IPv6 and IPv4 if the pod has both."""
    with suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def main() -> None:
    """Send the data to the first client with the token."""
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
