"""What the small servers of the Kubernetes API have in common: how they are reached, and end."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubernetes.client.configuration import Configuration

from tfcluster_magic.kube.api.client import Api


class Listener(ThreadingHTTPServer):
    """Serves on a port of this machine until it is ended."""

    daemon_threads = True
    request_queue_size = 128
    """Connections that wait to be taken: of the usual 5 some are lost where many ask at once, and
    come again after seconds.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    def api(self) -> Api:
        """A connection to it."""
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self.server_port}"
        configuration.proxy = None
        return Api(configuration)

    def end(self) -> None:
        """Take no connection any more."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, but for somebody who has left in the middle of an answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
