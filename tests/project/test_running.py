"""The check with which `make clean` begins (tools/running.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.project_tools import tool


def test_an_environment_in_use_is_not_removed(tmp_path: Path) -> None:
    """`make clean` names each process that runs from .venv, and says how to end it."""
    running = tool("running")
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.symlink_to(sys.executable)
    assert running.main(environment) is None
    script = "print('ready', flush=True); input()"
    with subprocess.Popen(
        [str(python), "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        advice = running.main(environment)
        process.stdin.write(b"\n")
    assert f"{process.pid} {python} -c" in advice
    assert "schedule list" in advice
    assert running.main(environment) is None
