"""Copies the examples into a workspace, where people run and change them.

It promises that an example which was changed there is never overwritten, and that one which was not
has its newest text. It owns `examples/` in the workspace, and the note beside it of what it copied.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

FIRST = "01-between-graph.ipynb"
"""The example that a newcomer sees."""
COPIED = ".tfcluster/examples.json"
"""What was copied: path to checksum, to know a changed copy."""


def bring(source: Path, workspace: Path) -> list[str]:
    """Bring new and updated examples into the workspace; return the changed ones that were kept.

    Raises:
        OSError: the workspace cannot be written.
    """
    note = workspace / COPIED
    copied = json.loads(note.read_text()) if note.exists() else {}
    kept = []
    for example in sorted(source.rglob("*")):
        name = example.relative_to(source).as_posix()
        if not example.is_file() or "__pycache__" in name or ".ipynb_checkpoints" in name:
            continue
        target, fresh = workspace / "examples" / name, checksum(example)
        present = checksum(target) if target.exists() else None
        if present not in (None, fresh, copied.get(name)):
            kept.append(name)
            continue
        if present != fresh:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(example.read_bytes())
            target.chmod(example.stat().st_mode | 0o200)
        copied[name] = fresh
    note.parent.mkdir(exist_ok=True)
    note.write_text(json.dumps(copied, indent=1))
    return kept


def checksum(file: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
