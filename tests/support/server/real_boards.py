"""Real boards of a server: folders with events for them, and what they show."""

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
    """A folder with the events of one run below it."""
    ev.event_file(folder / name).write_bytes(ev.version() + ev.event(1, {"loss": 0.5}))
    return folder


@pytest.fixture(autouse=True)
def no_board_is_left(service: Service) -> Iterator[None]:
    """The boards of a test end with it."""
    yield
    service.manager.boards.stop()


async def opened(ask: Ask, **wish: Any) -> dict[str, Any]:
    """The board that is opened."""
    answer = await ask("api/tensorboards", "POST", wish)
    assert answer.code == 201, answer.body
    return json.loads(answer.body)


async def loaded(ask: Ask, page: str) -> HTTPResponse:
    """The page as a browser gets it in the end: one that says "starting" loads itself again."""
    answer = await ask(page)
    while answer.code == 202:
        await asyncio.sleep(0.1)
        answer = await ask(page)
    return answer
