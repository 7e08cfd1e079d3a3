"""A relay in front of the API server that a test can cut, close or silence."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress


class Relay:
    """A relay that forwards connections to an address, byte by byte, until the test stops it."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.silent = threading.Event()
        """While set, nothing is forwarded, and neither side notices."""
        self.closed = threading.Event()
        """While set, new connections end at once."""
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all current connections."""
        with self._lock:
            going, self._open = self._open, []
        for each in going:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Stop the relay."""
        self._ended = True
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _address = self._server.accept()
            except OSError:
                return
            if self.closed.is_set():
                near.close()
                continue
            far = socket.create_connection(self._to)
            with self._lock:
                self._open += [near, far]
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with near, far, selectors.DefaultSelector() as selector, suppress(OSError):
            for each in other:
                selector.register(each, selectors.EVENT_READ)
            while True:
                for key, _events in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65536)
                    if not data:
                        return
                    if not self.silent.is_set():
                        other[source].sendall(data)
