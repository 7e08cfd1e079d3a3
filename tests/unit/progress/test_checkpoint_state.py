"""The checkpoint from which a run can be resumed."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tfcluster_magic.progress.run_progress import newest_checkpoint

STATE = 'model_checkpoint_path: "{0}"\nall_model_checkpoint_paths: "model.ckpt-1"\n'


def write(folder: Path, name: str, at: float) -> Path:
    """Write a state file in `folder` that names this checkpoint, at time `at`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint"
    path.write_text(STATE.format(name))
    os.utime(path, (at, at))
    return path


def test_newest_checkpoint(tmp_path: Path) -> None:
    """The checkpoint's name comes from the state file that was written last, in whatever folder the
    file is.
    """
    write(tmp_path, "model.ckpt-278", 1000)
    assert newest_checkpoint(tmp_path) == "model.ckpt-278"
    write(tmp_path / "worker" / "chief", '/abs/pa\\"th/ckpt-30', 2000)
    assert newest_checkpoint(tmp_path) == "ckpt-30"
    write(tmp_path / "too" / "deep" / "down", "ckpt-99", 3000)
    assert newest_checkpoint(tmp_path) == "ckpt-30"


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    """There is no checkpoint if there is no folder, or if no state file names a checkpoint."""
    assert newest_checkpoint(tmp_path / "missing") is None
    assert newest_checkpoint(tmp_path) is None
    (tmp_path / "checkpoint").mkdir()
    assert newest_checkpoint(tmp_path) is None
    write(tmp_path / "a", "", 1000)
    assert newest_checkpoint(tmp_path) is None


@given(cut=st.integers(0, 33))
def test_partial_state_file_names_no_other_checkpoint(tmp_path_factory, cut: int) -> None:
    """If a state file is cut off at any place, the result is the whole name of its checkpoint or
    None, never a part of the name.
    """
    folder = tmp_path_factory.mktemp("cut")
    path = write(folder, "model.ckpt-278", 1000)
    path.write_text(path.read_text()[:cut])
    assert newest_checkpoint(folder) in (None, "model.ckpt-278")
