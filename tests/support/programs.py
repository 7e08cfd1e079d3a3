"""Programs on disk: written for a test, taken as snapshots, and checked."""

from __future__ import annotations

import base64
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.program import snapshot
from tfcluster_magic.spec import Program


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by path. A trailing `*` in a name makes the file executable."""
    for name, content in files.items():
        path = folder / name.rstrip("*")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755 if name.endswith("*") else 0o644)
    return folder


def contents(program: Program) -> dict[str, bytes]:
    """Return the contents of the files that a run's record stores of its program, by path."""
    assert program.files is not None
    return {path: base64.b64decode(text) for path, text in program.files.items()}


def on_disk(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return the contents and executable bits below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
        for path in folder.rglob("*")
        if path.is_file()
    }


def take(source: str, here: Path, workspace: Path, **more: object) -> Program:
    """Take a snapshot, and check that it has no warnings."""
    program, warnings = snapshot(source, workspace=workspace, cwd=here, **more)  # type: ignore[arg-type]
    assert warnings == ()
    return program


def refusal(source: str, here: Path, workspace: Path, **more: object) -> str:
    """Return the message with which a program is refused."""
    with pytest.raises(InvalidRequest) as caught:
        snapshot(source, workspace=workspace, cwd=here, **more)  # type: ignore[arg-type]
    assert [problem.field for problem in caught.value.problems] == ["program"]
    assert not workspace.exists(), "a refusal leaves nothing behind"
    return str(caught.value)
