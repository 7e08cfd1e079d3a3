"""Commands in another language, and their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.project import ROOT
from tfcluster_magic import ClusterManager
from tfcluster_magic.runs.manager import Until

MAIN = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]
EACH = """
import contextlib, io, json, sys
from tfcluster_magic.cli import main

told = []
for words in json.load(sys.stdin):
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        with contextlib.suppress(SystemExit):
            main(words)
    text.seek(0)
    told.append(text.read())
print(json.dumps(told))
"""
VARIABLES = ("TFCLUSTER_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
FAIL = "import os\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'worker': raise ValueError('broken')\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """Enter a folder with a program that fails; stop its runs afterwards."""
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
    """Return the output of a command in this language."""
    done = _done(here, language, [*MAIN, *words], package)
    return done.stdout + done.stderr


def said_by_each(
    here: Path, language: str, commands: Sequence[Sequence[str]], package: Path
) -> list[str]:
    """Return the output of each of many commands. They run one by one in one process, because a
    start of the command line is slow.
    """
    done = _done(here, language, [sys.executable, "-c", EACH], package, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout)
    return told


def _done(
    here: Path, language: str, command: list[str], package: Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        command,
        env={**clean, "LANGUAGE": language, "PYTHONPATH": str(package)},
        cwd=here,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done
