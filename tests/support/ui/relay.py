"""A connection between the browser and a JupyterLab that can be cut and restored.

While it is cut, nothing passes in either direction and neither side notices, as when a laptop
leaves its network: connections stay open, and new ones are accepted but never answered.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Relay:
    """A relay that listens on a free port of this machine and forwards everything to `port`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Forward nothing from now on."""
        self._whole.clear()

    def mend(self) -> None:
        """Forward everything again, beginning with the data since the cut."""
        self._whole.set()

    def close(self) -> None:
        """End every connection."""
        self._whole.set()
        for each in [self._server, *self._sockets]:
            _end(each)

    def _accept(self) -> None:
        with suppress(OSError):  # the connection is closed
            while True:
                client, _ = self._server.accept()
                self._sockets.append(client)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._whole.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=120)
        except OSError:
            _end(client)
            return
        server.settimeout(None)
        self._sockets.append(server)
        back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
        back.start()
        self._pass_on(client, server)
        back.join()
        client.close()
        server.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                target.sendall(data)
        self._whole.wait()
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
