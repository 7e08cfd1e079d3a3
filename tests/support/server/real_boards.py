"""Real TensorBoards of a server: folders with events for them, and their pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import event_writer as ev
from support.server.calls import Ask
from tornado.httpclient import HTTPResponse

from tfcluster_magic.server.service import Service


def logs(folder: Path, name: str = "1") -> Path:
    """Create a folder with the events of one run below it."""
    ev.event_file(folder / name).write_bytes(ev.version() + ev.event(1, {"loss": 0.5}))
    return folder


@pytest.fixture(autouse=True)
def no_board_is_left(service: Service) -> Iterator[None]:
    """End the boards of a test when the test ends."""
    yield
    service.manager.boards.stop()


async def opened(ask: Ask, **wish: Any) -> dict[str, Any]:
    """Open a board and return it."""
    answer = await ask("api/tensorboards", "POST", wish)
    assert answer.code == 201, answer.body
    return json.loads(answer.body)


async def loaded(ask: Ask, page: str) -> HTTPResponse:
    """Return the page that a browser finally gets, because a page that says "starting" reloads
    itself.
    """
    answer = await ask(page)
    while answer.code == 202:
        await asyncio.sleep(0.1)
        answer = await ask(page)
    return answer
