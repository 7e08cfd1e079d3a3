"""A receiver of webhooks on loopback, and a policy that allows it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tfcluster_magic.notifications import NotificationPolicy

LOOPBACK = NotificationPolicy(private_networks=("127.0.0.0/8",))


class Receiver:
    """A receiver that keeps each body; `status`, `answer` and `headers` are what it answers."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.status, self.answer = 200, b"ok"
        self.headers: dict[str, str] = {}
        self.silent = False
        self.over = threading.Event()
        receiver = self

        class Requests(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if receiver.silent:
                    receiver.over.wait()
                    return
                receiver.paths.append(self.path)
                if receiver.status == 200:
                    receiver.bodies.append(body)
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                self.wfile.write(receiver.answer)

            def log_message(self, *args: object) -> None:
                """Log nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook/tok-1234567"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        """Stop the receiver."""
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Yield a receiver; it stops with the test."""
    found = Receiver()
    yield found
    found.close()
