"""`tfcluster` as a user types it, in a folder with programs, and the result of the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.project import ROOT
from tfcluster_magic import ClusterManager, cli
from tfcluster_magic.runs.manager import Until

HELLO = "import os\nprint('hello from', os.environ['TFCLUSTER_TASK'], flush=True)\n"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
FAIL = (
    "import os, time\n"
    "if os.environ['TFCLUSTER_TASK_TYPE'] == 'ps': time.sleep(600)\n"
    "raise ValueError('no such column')\n"
)


@dataclass
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def here(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Enter a folder with programs; stop the runs launched from it afterwards."""
    folder = own_folders / "work"
    folder.mkdir()
    for name, text in (("hello", HELLO), ("sleep", SLEEP), ("fail", FAIL)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield folder
    manager = ClusterManager()
    for run in manager.list(all_runs=True):
        manager.stop(run.metadata.name)
    for run in manager.list(all_runs=True):
        manager.wait(run.metadata.name, 180, until=Until.RELEASED)


def runner(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `tfcluster` with these arguments, as the console script does."""

    def run(*argv: str) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main(argv)
        out, err = capfd.readouterr()
        return Done(int(left.value.code or 0), out, err)

    return run


@pytest.fixture
def run(here: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `tfcluster` in the folder `here`."""
    return runner(capfd)


def left_behind(folder: Path) -> list[str]:
    """Return everything that a refused launch could have created."""
    roots = (folder / "state" / "runs", folder / "tfcluster")
    return [str(path) for root in roots for path in root.rglob("*")]
