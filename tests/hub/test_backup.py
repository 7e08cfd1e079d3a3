"""Backup and restore of a real hub's state, an upgrade of the hub, and a locked database."""

from __future__ import annotations

import io
import json
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from support.hub.real_hub import RealHub
from support.hub.visitor import Visitor

BEFORE = "ff1860e38070"
"""The database revision of JupyterHub 6.0. The next revision, the newest, adds a column."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """A hub that these tests stop and start again."""
    made = RealHub(tmp_path_factory.mktemp("hub"), ["ada", "bob"])
    try:
        made.start()
        yield made
    finally:
        made.close()


def command(*words: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `python -m tfcluster_magic.hub` with these arguments."""
    line = [sys.executable, "-m", "tfcluster_magic.hub", *map(str, words)]
    return subprocess.run(line, input=given, capture_output=True, check=False, timeout=120)


def named(database: Path) -> set[str]:
    """Return the users in a hub's database."""
    with closing(sqlite3.connect(database)) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM users")}


def test_saved_and_restored(hub: RealHub, tmp_path: Path) -> None:
    """Restoring the backup of a running hub brings back users, passwords and sessions, and keeps
    other files.
    """
    ada = hub.visitor("ada")
    file = tmp_path / "hub.backup"
    done = command("backup", file, "--state", hub.state)
    assert done.returncode == 0, done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert command("backup", file, "--state", hub.state).returncode == 1

    hub.visitor("bob")  # bob becomes a user of the hub only after the backup
    refused = command("restore", file, "--state", hub.state)
    assert refused.returncode == 1
    assert b"a hub is running on" in refused.stderr
    hub.stop()
    (hub.state / "accounts.json").unlink()
    (hub.state / "cookie_secret").write_text("other")

    done = command("restore", file, "--state", hub.state)

    assert done.returncode == 0, done.stderr
    assert named(hub.state / "jupyterhub.sqlite") == {"ada"}
    (aside,) = hub.state.glob("replaced-*")
    assert named(aside / "jupyterhub.sqlite") == {"ada", "bob"}
    assert (aside / "cookie_secret").read_text() == "other"
    for name in ("jupyterhub.sqlite", "accounts.json", "cookie_secret"):
        assert (hub.state / name).stat().st_mode & 0o777 == 0o600
    hub.start()
    assert ada.ask("GET", "hub/api/user").json()["name"] == "ada"
    assert hub.visitor("bob").ask("GET", "hub/api/user").status_code == 200


def test_newer_hub(hub: RealHub) -> None:
    """A newer hub upgrades the database after copying it, and keeps sessions, notebooks and
    kernels.
    """
    ada = hub.visitor("ada")
    own = ada.spawn()
    kernel = ada.kernel(own)
    ada.execute(own, kernel, "kept = 'as it was'")
    running = ada.ask("GET", f"{own}/api/status").json()["started"]
    hub.processes()
    hub.stop(signal.SIGKILL)  # after a SIGKILL the notebooks keep running
    database = hub.state / "jupyterhub.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        (newest,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        _as_before(connection)
        connection.commit()
    _end_proxy(hub)

    hub.start()

    with closing(sqlite3.connect(database)) as connection:
        now = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert now == (newest,)
    assert list(hub.state.glob("jupyterhub.sqlite.*"))
    assert ada.ask("GET", "hub/api/user").json()["name"] == "ada"
    assert ada.ask("GET", f"{own}/api/status").json()["started"] == running
    assert ada.execute(own, kernel, "print(kept)") == "as it was\n"


def _as_before(connection: sqlite3.Connection) -> None:
    """Change the database to the previous revision."""
    connection.execute("ALTER TABLE spawners DROP COLUMN display_name")
    connection.execute("UPDATE alembic_version SET version_num = ?", (BEFORE,))


def _end_proxy(hub: RealHub) -> None:
    """End the proxy as tools/hub.py does after the hub was killed."""
    for one in hub.processes():
        with suppress(psutil.NoSuchProcess):  # the process has ended, or is a zombie
            if "configurable-http-proxy" in " ".join(one.cmdline()):
                one.kill()
                one.wait(20)


def test_locked_database(hub: RealHub, wait_for: Callable[..., None]) -> None:
    """The hub answers while another program locks its database, and recovers afterwards."""
    ada = hub.visitor("ada")
    with closing(sqlite3.connect(hub.state / "jupyterhub.sqlite", timeout=120)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        late = Visitor(hub.url)
        answer = late.session.get(f"{hub.url}hub/login", timeout=120)
        assert answer.status_code in {200, 500, 503}
        connection.rollback()
    wait_for(lambda: ada.ask("GET", "hub/api/user").status_code == 200, "the hub goes on")
    assert hub.visitor("bob").ask("GET", "hub/api/user").json()["name"] == "bob"


def test_killed_during_a_spawn(hub: RealHub, wait_for: Callable[..., None]) -> None:
    """After a hub was killed while a notebook started, the restarted hub starts the notebook."""
    bob = hub.visitor("bob")
    bob.ask("DELETE", "hub/api/users/bob/server")
    began = hub.log.stat().st_size
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(bob.ask, "POST", "hub/api/users/bob/server")
        wait_for(lambda: "Creating oauth client" in hub.log.read_text()[began:], "it starts")
        hub.processes()
        hub.stop(signal.SIGKILL)
        asked.exception(60)
    _end_proxy(hub)
    hub.start()
    assert bob.ask("GET", "hub/api/user").status_code == 200
    assert bob.run(bob.spawn(), "print(6 * 7)") == "42\n"


def test_what_is_no_backup(tmp_path: Path) -> None:
    """A file that is not a backup is refused with the reason, and nothing is changed."""
    state = tmp_path / "hub"
    state.mkdir(mode=0o700)
    (state / "accounts.json").write_text("kept")
    for content in (b"", b"nonsense", _packed({"manifest.json": b"{}"}), _escaping()):
        done = command("restore", "-", "--state", state, given=content)
        assert done.returncode == 1
        assert b"nothing was restored" in done.stderr
    assert (state / "accounts.json").read_text() == "kept"
    assert {path.name for path in state.iterdir()} <= {"accounts.json", "hub.lock"}
    missing = command("restore", tmp_path / "none", "--state", state)
    assert b"there is no file" in missing.stderr
    nothing = command("backup", "-", "--state", tmp_path / "elsewhere")
    assert nothing.returncode == 1
    assert b"is not the state folder of a hub" in nothing.stderr


def test_backup_of_a_newer_hub(tmp_path: Path) -> None:
    """A backup of a newer JupyterHub is not restored into an older one."""
    about = json.dumps({"format": 1, "jupyterhub": "99.0.0", "saved": ""}).encode()
    packed = _packed({"manifest.json": about, "jupyterhub.sqlite": b""})
    done = command("restore", "-", "--state", tmp_path / "hub", given=packed)
    assert done.returncode == 1
    assert b"99.0.0" in done.stderr


def _packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _escaping() -> bytes:
    return _packed({"../../evil": b"x", "manifest.json": b"{}"})
