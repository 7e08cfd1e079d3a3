"""Simultaneous notebook starts on a real hub that starts one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from support.hub.real_hub import RealHub

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
    """The second user is told to wait, and their notebook starts once the first one listens."""
    ada, bob = hub.visitor("ada"), hub.visitor("bob")
    assert ada.ask("POST", "hub/api/users/ada/server").status_code == 202
    wait_for(gate.with_name("open.ada").exists, "the first starts", within=60)
    assert bob.ask("POST", "hub/api/users/bob/server").status_code == 202
    told = progress(bob.get("hub/api/users/bob/server/progress", stream=True))
    assert "It starts as soon as another notebook has started." in told
    assert not gate.with_name("open.bob").exists()

    gate.touch()

    assert "Starting the notebook." in told
    assert ada.spawn() == "user/ada"
    assert bob.spawn() == "user/bob"
