"""A port that is open while an In-Graph server is in use: how a pod tells it to Kubernetes.

A readiness probe connects to it now and then, so it stays open a while after the last use, and no
use goes unnoticed. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import select
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loop import Loop

# Seconds beyond the last use; the probe comes every 10.
LINGER = 15.0


class Beacon:
    """A listener on `port` that takes every connection and ends it; closed until it is shown."""

    def __init__(self, loop: Loop, port: int) -> None:
        self._loop = loop
        self._port = port
        self._listener: socket.socket | None = None

    def show(self, used: bool) -> None:
        """Be open, or closed. Raises OSError when the port is taken."""
        if used and self._listener is None:
            self._listener = _listen(self._port)
            self._loop.on_fd(self._listener.fileno(), select.POLLIN, self._take)
        elif not used and self._listener is not None:
            self._loop.off_fd(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _take(self) -> None:
        # One that is never taken stays in the queue, and a full queue looks like a closed port.
        assert self._listener is not None
        try:
            self._listener.accept()[0].close()
        except OSError:
            # It has gone by itself.
            pass


def _listen(port: int) -> socket.socket:
    """On every address: a pod's may be v4, v6 or both."""
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((host, port))
            listener.listen(16)
            listener.setblocking(False)
        except OSError:
            listener.close()
            if family == socket.AF_INET:
                raise
        else:
            return listener
    raise OSError("no family of addresses")
