"""A program at a URL that answers when the test says so; a launch of it waits until then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class SlowProgram:
    """A program at a URL that answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()
        program = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                program.asked.set()
                program.answer.wait(60)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"print('hello')\n")

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/slow.py"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def slow_program() -> Iterator[SlowProgram]:
    """Serve a program that arrives late."""
    program = SlowProgram()
    yield program
    program.answer.set()
    program.server.shutdown()
    program.server.server_close()
