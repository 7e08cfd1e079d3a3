"""Simultaneous notebook starts on a real hub that starts one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from playwright.sync_api import BrowserContext, expect
from support.hub.pages import PATIENCE, in_every_look
from support.hub.real_hub import RealHub, password

ONE = """
import asyncio
from tfcluster_magic.hub import local_servers
local_servers.START_SLOTS = asyncio.Semaphore(1)
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0}}  # a page is not kept waiting
until = 'touch {gate}.$JUPYTERHUB_USER; while [ ! -e {gate} ]; do sleep 0.1; done; exec "$0" "$@"'
c.Several.cmd = ["sh", "-c", until, *notebook.command()]
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that a notebook needs before it continues its start."""
    return tmp_path / "open"


@pytest.fixture
def hub(tmp_path: Path, gate: Path) -> Iterator[RealHub]:
    """A hub that starts one notebook at a time."""
    made = RealHub(tmp_path / "hub", ["ada", "bob"], more=ONE.format(gate=gate))
    try:
        made.start()
        yield made
    finally:
        made.close()


def progress(answer: requests.Response) -> Iterator[str]:
    """Yield the progress events of a starting notebook as they arrive."""
    for line in answer.iter_lines():
        if line.startswith(b"data:"):
            yield json.loads(line.removeprefix(b"data:"))["message"]


def test_one_waits_for_the_other(hub: RealHub, gate: Path, wait_for: Callable[..., None]) -> None:
    """The second user is told to wait, and their notebook starts once the first user's notebook
    listens.
    """
    ada, bob = hub.visitor("ada"), hub.visitor("bob")
    assert ada.ask("POST", "hub/api/users/ada/server").status_code == 202
    wait_for(gate.with_name("open.ada").exists, "the first starts", within=60)
    assert bob.ask("POST", "hub/api/users/bob/server").status_code == 202
    told = progress(bob.get("hub/api/users/bob/server/progress", stream=True))
    assert "It starts as soon as another notebook has started." in told
    chinese = {"Accept-Language": "zh-CN,zh;q=0.9"}
    queue = bob.get("hub/api/users/bob/server/progress", stream=True, headers=chinese)
    assert any(message.startswith("前一个启动完成后") for message in progress(queue))
    assert not gate.with_name("open.bob").exists()

    gate.touch()

    assert "Starting the notebook." in told
    assert ada.spawn() == "user/ada"
    assert bob.spawn() == "user/bob"


def test_the_pages_of_a_notebook_that_starts_or_does_not_answer(
    hub: RealHub, gate: Path, context: BrowserContext, shots: Path
) -> None:
    """The page of a starting notebook says what it waits for and opens the notebook; the page of
    one that does not answer says what to do. Both pages also work in the dark theme and in Chinese.
    """
    ada, page = hub.visitor("ada"), context.new_page()
    assert ada.ask("POST", "hub/api/users/ada/server").status_code == 202
    page.goto(f"{hub.url}hub/login?next={urlsplit(hub.url).path}hub/spawn")
    page.get_by_label("Username").fill("bob")
    page.locator("#password_input").fill(password("bob"))
    page.get_by_role("button", name="Sign in").click()
    status = page.locator("#progress-message")
    expect(status).to_have_text("It starts as soon as another notebook has started.")
    in_every_look(page, shots, "starting", page.locator("#progress-message:not(:empty)"))
    # The proxy shows this page of the hub if a notebook does not answer.
    page.goto(f"{hub.url}hub/error/503?url=/user/bob/lab")
    expect(page.get_by_text("The server at this address does not answer.")).to_be_visible()
    in_every_look(page, shots, "503")
    page.goto(f"{hub.url}hub/spawn-pending/bob")

    gate.touch()

    expect(page).to_have_url(re.compile("/user/bob/lab"), timeout=PATIENCE)
