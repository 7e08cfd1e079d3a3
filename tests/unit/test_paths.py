"""Paths of files on this machine."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tfcluster_magic import paths
from tfcluster_magic.errors import TFClusterError


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HOME": "/h"}, "/h/.local/state/tfcluster"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x"}, "/x/tfcluster"),
        ({"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/tfcluster"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x", "TFCLUSTER_STATE_DIR": "/s/./t/"}, "/s/t"),
        ({"HOME": "/h", "TFCLUSTER_STATE_DIR": "~/s"}, "/h/s"),
        ({"HOME": "/h", "TFCLUSTER_STATE_DIR": ""}, "/h/.local/state/tfcluster"),
    ],
)
def test_state_dir_rule(env: dict[str, str], expected: str) -> None:
    """The state folder is the configured folder, else the folder in XDG_STATE_HOME, else a folder
    below the home directory.
    """
    assert paths.state_dir(env) == Path(expected)


def test_user_folders_follow_home() -> None:
    """Data and logs lie below TFCLUSTER_HOME, unless other variables name their folders."""
    assert paths.data_dir({"HOME": "/h"}) == Path("/h/tfcluster/data")
    assert paths.log_dir({"HOME": "/h", "TFCLUSTER_HOME": "/t"}) == Path("/t/log")
    assert paths.log_dir({"TFCLUSTER_HOME": "/t", "TFCLUSTER_LOG_DIR": "/l"}) == Path("/l")
    assert paths.data_dir({"HOME": "/h", "TFCLUSTER_DATA_DIR": "/d"}) == Path("/d")


def test_relative_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means a folder below the current directory."""
    monkeypatch.chdir(tmp_path)
    assert paths.log_dir({"TFCLUSTER_LOG_DIR": "log"}) == tmp_path / "log"


def test_private_folder(tmp_path: Path) -> None:
    """Only its owner may read the state folder. If it cannot be used, the error names the folder
    and the variable.
    """
    made = paths.private(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert paths.private(made) == made
    (tmp_path / "file").write_text("")
    with pytest.raises(TFClusterError, match=r"file/x.*TFCLUSTER_STATE_DIR"):
        paths.private(tmp_path / "file" / "x")
