"""What a kubelet and a Prometheus ask a controller: /healthz, /readyz, /metrics.

Promises answers that cost nothing and never wait. Healthy: its threads run. Ready: it has seen all
there is, and leads.
Ref: https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[bool, str]


class Health:
    """The small server; port 0 takes a free one, `port` says which.

    Args:
        port: where it listens.
        answers: what is said at each path: whether all is well, and the text.
    """

    def __init__(self, port: int, answers: dict[str, Callable[[], Answer]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer a path that is known."""
                ask = answers.get(self.path.partition("?")[0])
                well, text = ask() if ask is not None else (False, "there is nothing here")
                content = (text + "\n").encode()
                self.send_response(404 if ask is None else 200 if well else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                """Say nothing: probes come every second."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
