"""The base of the small servers that act as the Kubernetes API."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubernetes.client.configuration import Configuration

from tfcluster_magic.kube.api.client import Api


class Listener(ThreadingHTTPServer):
    """A server on a port of this machine."""

    daemon_threads = True
    request_queue_size = 128
    """Backlog of connections: with the usual 5, many simultaneous clients lose connections and
    retry after seconds.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    def api(self) -> Api:
        """Return a connection to the server."""
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self.server_port}"
        configuration.proxy = None
        return Api(configuration)

    def end(self) -> None:
        """Stop the server."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error, except for a client that disconnects during an answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
