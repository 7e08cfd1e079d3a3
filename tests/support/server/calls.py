"""Calls of the server extension in tests: answers of routes, and events of a page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tornado.httpclient import HTTPResponse

from tfcluster_magic.spec import TFCluster

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
RUN_EVENT = "https://tfcluster.dev/events/run/v1"


@dataclass
class Answer:
    """The answer of a route."""

    status: int
    content_type: str
    text: str
    raw: HTTPResponse = field(repr=False)

    @property
    def json(self) -> Any:
        """Return the answer's JSON."""
        return json.loads(self.text)


Api = Callable[..., Awaitable[Answer]]
Ask = Callable[..., Awaitable[HTTPResponse]]
Launch = Callable[..., Awaitable[TFCluster]]


def assert_problem(answer: Answer, status: int, *words: str) -> None:
    """Check that the answer is an RFC 9457 problem with these words and without a traceback."""
    assert answer.status == status, answer
    assert answer.content_type == "application/problem+json"
    told = answer.json
    assert told["type"] == "about:blank"
    assert told["status"] == status
    assert "Traceback" not in answer.text
    for word in words:
        assert word in told["detail"]


class Events:
    """The events that a page receives."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.seen: list[dict[str, Any]] = []

    async def until(
        self, true: Callable[[dict[str, Any]], bool], within: float = 90.0
    ) -> dict[str, Any]:
        """Return the next event for which a condition holds."""
        deadline = asyncio.get_running_loop().time() + within
        while True:
            left = deadline - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(self._socket.read_message(), left)
            event = json.loads(message)
            if event["schema_id"] == RUN_EVENT:
                self.seen.append(event)
                if true(event):
                    return event

    async def phase(self, *phases: str) -> dict[str, Any]:
        """Return the next event of a run in one of these phases."""
        return await self.until(
            lambda e: e["run"] is not None and e["run"]["cluster"]["status"]["phase"] in phases
        )
