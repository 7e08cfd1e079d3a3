"""A manager without runs, in a folder with two programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tfcluster_magic import ClusterManager
from tfcluster_magic.runs.manager import Until

HELLO = "import os\nprint('hello from', os.environ['TFCLUSTER_TASK'], flush=True)\n"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with two programs."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "hello.py").write_text(HELLO)
    (folder / "sleep.py").write_text(SLEEP)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def manager(own_folders: Path, here: Path) -> Iterator[ClusterManager]:
    """Yield a manager without runs; stop all runs afterwards."""
    made = ClusterManager()
    yield made
    for run in made.list(all_runs=True):
        made.stop(run.metadata.name)
    for run in made.list(all_runs=True):
        made.wait(run.metadata.name, 30, until=Until.RELEASED)


def left_behind(folder: Path) -> list[str]:
    """Return everything below the state folder, the user's folders and the temporary folders."""
    found = []
    for root in (folder / "state" / "runs", folder / "tfcluster"):
        found += [str(path.relative_to(folder)) for path in root.rglob("*")]
    return found
