"""Files of a user for archive tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Create a user's files."""
    folder = tmp_path / "mount" / "workspace"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("accuracy 0.98\n")
    (folder / "weights").write_bytes(os.urandom(3_000_000))
    return folder
