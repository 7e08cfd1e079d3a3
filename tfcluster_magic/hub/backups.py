"""`python -m tfcluster_magic.hub backup` and `restore`: save and restore the hub's state.

The database in a backup is consistent even if the hub writes during the backup. Only the owner of
the backup file can read it. A restore refuses to run while a hub runs on the folder, and keeps the
replaced files. Users' notebooks, data and clusters are not part of a backup.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import click

from .. import state_files
from ..errors import Conflict, InvalidRequest, NotFound, Problem
from ..i18n import _
from ..paths import private, state_dir
from .auth import FILE as ACCOUNTS
from .auth.sign_in import ALLOW_LIST_FILE
from .shared_settings import DATABASE, is_open
from .user_limits import OVERRIDES, POLICY

COOKIES = "cookie_secret"
LIMITS = (ALLOW_LIST_FILE, POLICY, OVERRIDES)
"""Files that a restore replaces only if the backup has them, because older backups lack them."""
FILES = (DATABASE, ACCOUNTS, COOKIES, *LIMITS)
MANIFEST = "manifest.json"
FORMAT = 1
LARGEST = 1 << 30
"""Maximum size of a file in a backup, in bytes."""
STDIO = "-"


def _of_state(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--state",
        type=click.Path(path_type=Path),
        envvar="TFCLUSTER_HUB_STATE",
        help="The hub's state folder; by default, that of the hub on this machine.",
    )(command)


@click.command()
@click.argument("file")
@_of_state
def backup(file: str, state: Path | None) -> None:
    """Save users, groups, sessions and passwords to FILE, or to stdout for `-`. The hub may run
    meanwhile. Keep FILE secret: it lets its reader sign in as anybody.
    """
    folder = state or state_dir() / "hub"
    if file == STDIO:
        sys.stdout.buffer.write(pack(folder))
        return
    target = Path(file)
    packed = pack(folder)
    try:
        number = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise Conflict(_("{file} already exists: name another file").format(file=target)) from None
    with os.fdopen(number, "wb") as out:
        out.write(packed)
        out.flush()
        os.fsync(out.fileno())
    click.echo(_("saved {folder} to {file}").format(folder=folder, file=target), err=True)


@click.command()
@click.argument("file")
@_of_state
def restore(file: str, state: Path | None) -> None:
    """Restore the state that `backup` saved in FILE, or read it from stdin for `-`. Stop the hub
    first. The replaced files are kept in a folder beside the new ones.
    """
    folder = private(state or state_dir() / "hub")
    try:
        packed = sys.stdin.buffer.read() if file == STDIO else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFound(_("there is no file {file}").format(file=file)) from None
    aside = unpack(packed, folder)
    click.echo(_("restored {folder}").format(folder=folder), err=True)
    if aside:
        click.echo(_("the replaced files are in {aside}").format(aside=aside), err=True)


def pack(state: Path) -> bytes:
    """Return the hub's state as a tar.gz file; the hub may run meanwhile.

    Raises:
        NotFound: the folder has no hub database.
    """
    database = state / DATABASE
    if not database.exists():
        text = _(
            "{folder} is not the state folder of a hub: it has no {name}. Name the "
            "right one with `--state`"
        )
        raise NotFound(text.format(folder=state, name=DATABASE))
    found = {DATABASE: _copied(database)}
    with state_files.locked(state / ACCOUNTS, shared=True):
        for name in FILES[1:]:
            with suppress(FileNotFoundError):  # not every hub has all files
                found[name] = (state / name).read_bytes()
    about = {"format": FORMAT, "jupyterhub": version("jupyterhub"), "saved": _now()}
    found[MANIFEST] = json.dumps(about, indent=1).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in sorted(found.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def unpack(packed: bytes, state: Path) -> Path | None:
    """Restore a backup; return the folder with the replaced files, or None if no file was replaced.

    Raises:
        Conflict: a hub runs on this folder, or a newer JupyterHub made the backup.
        InvalidRequest: the file is damaged or is not a backup.
    """
    found = _read(packed)
    with _no_hub(state):
        fresh = Path(tempfile.mkdtemp(dir=state, prefix=".restoring-"))  # mode 0700
        try:
            for name, content in found.items():
                with os.fdopen(os.open(fresh / name, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as out:
                    out.write(content)
                    out.flush()
                    os.fsync(out.fileno())
            _check(fresh / DATABASE)
            aside = _put_aside(state, found.keys())
            for name in found:
                (fresh / name).replace(state / name)
        finally:
            for left in fresh.iterdir():
                left.unlink()
            fresh.rmdir()
    return aside


def _copied(database: Path) -> bytes:
    """Return a consistent copy of a database that may be in use.

    ref: https://www.sqlite.org/backup.html
    """
    with tempfile.TemporaryDirectory(prefix="tfcluster-hub-") as folder:  # mode 0700
        copy = Path(folder, DATABASE)
        with (
            closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        return copy.read_bytes()


def _read(packed: bytes) -> dict[str, bytes]:
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            found = {entry.name: _content(tar, entry) for entry in tar}
        about = json.loads(found.pop(MANIFEST))
        made_by, form = str(about["jupyterhub"]), about["format"]
    except (tarfile.TarError, OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise _damaged(str(error)) from error
    if form != FORMAT or not {DATABASE} <= found.keys() <= set(FILES):
        raise _damaged(_("it was made by another version"))
    here = version("jupyterhub")
    if _numbers(made_by) > _numbers(here):
        text = _(
            "the backup was made by JupyterHub {made_by}, and the installed {here} "
            "cannot read it: install the version of TFCluster that made it, or a "
            "newer one"
        )
        raise Conflict(text.format(made_by=made_by, here=here))
    return found


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry) if entry.isfile() and entry.size <= LARGEST else None
    if file is None or entry.name not in {*FILES, MANIFEST}:
        raise ValueError(entry.name)
    return file.read()


def _check(database: Path) -> None:
    try:
        with closing(sqlite3.connect(database)) as connection:
            said = connection.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        said = str(error)
    if said != "ok":
        raise _damaged(said)


def _put_aside(state: Path, found: Collection[str]) -> Path | None:
    """Create a folder, and move the files there that the restored backup will replace. Return the
    folder; None if there are no such files. `found` has the names of the files in the backup.
    """
    replaced = [name for name in FILES if name in found or name not in LIMITS]
    there = [file for name in replaced for file in state.glob(f"{name}*") if file.is_file()]
    if not there:
        return None
    aside = state / f"replaced-{_now().replace(':', '')}"
    aside.mkdir(mode=0o700)
    for file in there:
        file.replace(aside / file.name)
    return aside


@contextmanager
def _no_hub(state: Path) -> Iterator[None]:
    """Hold the lock that tools/hub.py takes, so that no hub starts. Raises Conflict if a hub is
    running on the folder.
    """
    with os.fdopen(os.open(state / "hub.lock", os.O_CREAT | os.O_RDWR, 0o600), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _runs(state) from None
        if is_open(state / DATABASE):
            raise _runs(state)
        yield


def _runs(state: Path) -> Conflict:
    text = _("a hub is running on {folder}: stop it first, with Ctrl-C where it was started")
    return Conflict(text.format(folder=state))


def _damaged(why: str) -> InvalidRequest:
    allowed = _("use a file made by `python -m tfcluster_magic.hub backup`")
    return InvalidRequest([Problem("FILE", why, allowed)], _("nothing was restored"))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
