"""POST requests of a page that launches, and their answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPResponse

from tfcluster_magic.server.service import Service
from tfcluster_magic.spec import TFCluster

HELLO = "import os\nprint('hello from', os.environ['TFCLUSTER_TASK'], os.getcwd(), flush=True)\n"
SLEEP = "import time\ntime.sleep(600)\n"
Post = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def root(jp_root_dir: Path) -> Path:
    """The folder of the file browser, with programs."""
    (jp_root_dir / "project").mkdir()
    (jp_root_dir / "project" / "train.py").write_text(HELLO)
    (jp_root_dir / "project" / "ps.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ps_hosts')\n"
        "print(p.parse_known_args())\n"
    )
    (jp_root_dir / "sleep.py").write_text(SLEEP)
    (jp_root_dir / "shell").mkdir()
    (jp_root_dir / "shell" / "run.sh").write_text("echo hello\n")
    return jp_root_dir


@pytest.fixture
def post(jp_fetch: Callable[..., Awaitable[HTTPResponse]], service: Service, root: Path) -> Post:
    """Return a function that posts JSON and returns the status and the answer's JSON."""

    async def send(*path: str, **body: object) -> tuple[int, Any]:
        answer = await jp_fetch(
            "tfcluster", "api", *path, method="POST", body=json.dumps(body), raise_error=False
        )
        return answer.code, json.loads(answer.body)

    return send


def ended(service: Service, name: str) -> TFCluster:
    return service.manager.wait(name, 60)


def wrong(told: Any) -> dict[str, str]:
    """Return the allowed values of each option that is wrong in a plan, by the option's name."""
    return {p["option"]: p["allowed"] for p in told["problems"]}
