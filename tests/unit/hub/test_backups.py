"""The files of the hub's state that a backup contains, and the files that a restore replaces."""

from __future__ import annotations

import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from tfcluster_magic.hub.backups import pack, unpack

LIMITS = ("allowed.json", "overrides.json", "policy.yaml")


def hub(folder: Path, **limits: str) -> Path:
    """Return a state folder of a hub, with a database; `limits` are the contents of its files of
    limits, by name.
    """
    folder.mkdir()
    with closing(sqlite3.connect(folder / "jupyterhub.sqlite")) as connection:
        connection.execute("CREATE TABLE users (name)")
        connection.commit()
    for name, text in limits.items():
        (folder / name).write_text(text)
    return folder


def test_limits_and_imported_users_are_restored(tmp_path: Path) -> None:
    """A restore brings back limits, overrides and imported users, and keeps the replaced files."""
    saved = pack(hub(tmp_path / "old", **dict.fromkeys(LIMITS, "as saved")))
    new = hub(tmp_path / "new", **dict.fromkeys(LIMITS, "as replaced"))

    aside = unpack(saved, new)

    assert aside is not None
    for name in LIMITS:
        assert (new / name).read_text() == "as saved"
        assert (new / name).stat().st_mode & 0o777 == 0o600
        assert (aside / name).read_text() == "as replaced"


def test_a_backup_without_limits_removes_none(tmp_path: Path) -> None:
    """A backup of an older version has no limits; the limits in the folder stay in force."""
    saved = pack(hub(tmp_path / "old"))
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        assert tar.getnames() == ["jupyterhub.sqlite", "manifest.json"]
    new = hub(tmp_path / "new", **dict.fromkeys(LIMITS, "in force"))

    unpack(saved, new)

    assert [(new / name).read_text() for name in LIMITS] == ["in force"] * 3
