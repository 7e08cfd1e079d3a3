"""Commands in a language, and what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.project import ROOT
from tfcluster_magic import ClusterManager
from tfcluster_magic.runs.manager import Until

MAIN = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]
VARIABLES = ("TFCLUSTER_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
FAIL = "import os\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'worker': raise ValueError('broken')\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with a program that fails; what was launched in it is stopped."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "fail.py").write_text(FAIL)
    (folder / "sleep.py").write_text("import time\ntime.sleep(600)\n")
    yield folder
    manager = ClusterManager()
    for run in manager.list(all_runs=True):
        manager.stop(run.metadata.name)
        manager.wait(run.metadata.name, until=Until.RELEASED)


def said(here: Path, language: str, *words: str, package: Path = ROOT) -> str:
    """All that a command prints in this language."""
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [*MAIN, *words],
        env={**clean, "LANGUAGE": language, "PYTHONPATH": str(package)},
        cwd=here,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr
