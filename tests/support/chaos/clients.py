"""The base of the chaos tests of every backend: it runs requests, waits for conditions, and keeps
notes for the report of a failure. This module manages the process that starts clients
(`chaos/client.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from support.polling import wait_until
from support.project import TESTS

CLIENT = TESTS / "support" / "chaos" / "client.py"
PATIENCE = 240.0


class Asking:
    """The base of a chaos test: it sends requests to clients, each of which is a process.
    `variables` is the environment of the clients.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.story: list[str] = []
        self.clients_process = subprocess.Popen(
            [sys.executable, str(CLIENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(variables),
        )

    def close(self) -> None:
        """End the clients."""
        with self.clients_process as clients:
            assert clients.stdin is not None
            clients.stdin.close()

    def ask(self, *wishes: dict[str, Any]) -> list[dict[str, Any]]:
        """Run these requests at once, each in its own process, and return the results."""
        clients = self.clients_process
        assert clients.stdin is not None
        assert clients.stdout is not None
        clients.stdin.write(json.dumps(wishes).encode() + b"\n")
        clients.stdin.flush()
        results: list[dict[str, Any]] = json.loads(clients.stdout.readline())
        for wish, result in zip(wishes, results, strict=True):
            short = {key: value for key, value in wish.items() if key != "spec"}
            self.note(f"{short}: {result}")
            assert "fault" not in result, result["fault"]
        return results

    def note(self, what: str) -> None:
        """Add a line to the report of a violated invariant."""
        self.story.append(f"    {time.monotonic():.2f} {what}")

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait for a condition."""
        wait_until(true, what, PATIENCE)
