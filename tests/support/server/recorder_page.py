"""The page of a recorder, which takes the place of a TensorBoard and reports the requests that
reach it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.polling import wait_until
from support.project import TESTS
from tornado.httpclient import HTTPResponse

from tfcluster_magic.paths import private
from tfcluster_magic.server.service import Service
from tfcluster_magic.tensorboard.process import RegistryEntry, registry_folder

RECORDER = TESTS / "support" / "server" / "recorder.py"
PREFIX = "/a-secret"
Fetch = Callable[..., Awaitable[HTTPResponse]]


@dataclass
class Page:
    """The page of the recorder: its address on the server."""

    id: str
    base: str


@pytest.fixture
def recorder(
    service: Service, jp_root_dir: Path, jp_base_url: str, own_folders: Path
) -> Iterator[Page]:
    """Start a recorder, registered as the board on a folder."""
    folder = jp_root_dir / "logs"
    folder.mkdir()
    file = RegistryEntry(private(registry_folder(None)), str(folder)).file("json")
    words = [sys.executable, str(RECORDER), str(file), str(folder), PREFIX]
    with subprocess.Popen(words) as process:
        wait_until(lambda: file.exists() or process.poll() is not None)
        assert process.poll() is None
        view = service.manager.boards.folder_view(str(folder), "logs")
        yield Page(view.id, f"{jp_base_url}tfcluster/tensorboard/{view.id}")
        process.kill()


@pytest.fixture
def fetch(http_server_client: Any, jp_auth_header: dict[str, str], recorder: Page) -> Fetch:
    """Return a function that gets a path of the recorder's page; it sends the token unless
    `plain`.
    """

    async def ask(path: str = "/", plain: bool = False, **words: Any) -> HTTPResponse:
        headers = ({} if plain else jp_auth_header) | words.pop("headers", {})
        words = {"raise_error": False, "follow_redirects": False, **words}
        return await http_server_client.fetch(f"{recorder.base}{path}", headers=headers, **words)

    return ask


def echoed(answer: HTTPResponse) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the request that reached the recorder, and its headers by lower-case name."""
    assert answer.code == 200, answer.body
    told = json.loads(answer.body)
    return told, {name.lower(): value for name, value in told["headers"]}
