"""`python -m tfcluster_magic.hub backup` and `restore`: the hub's state in one file, and back.

The database is whole although the hub writes meanwhile, and nobody else can read the file. Nothing
is replaced under a running hub, and what is replaced is kept aside. It owns no state and knows
nothing of users' files: notebooks, data and clusters have their own place.
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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import click

from .. import state_files
from ..errors import Conflict, InvalidRequest, NotFound, Problem
from ..i18n import _
from ..paths import private, state_dir
from .auth import FILE as ACCOUNTS
from .shared_settings import DATABASE, is_open

COOKIES = "cookie_secret"
FILES = (DATABASE, ACCOUNTS, COOKIES)
MANIFEST = "manifest.json"
FORMAT = 1
LARGEST = 1 << 30
"""Bytes of one file of the hub: more is none of ours."""
STDIO = "-"


def _of_state(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--state",
        type=click.Path(path_type=Path),
        envvar="TFCLUSTER_HUB_STATE",
        help="The hub's state folder; without it, that of the hub of this machine.",
    )(command)


@click.command()
@click.argument("file")
@_of_state
def backup(file: str, state: Path | None) -> None:
    """Save users, groups, sessions and passwords to FILE, or to the output for `-`.

    The hub may run. FILE is readable by you alone: who has it can be anybody at the hub.
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
    """Put back what `backup` saved in FILE, or what comes as input for `-`.

    The hub must not run. What was there is kept in a folder beside it.
    """
    folder = private(state or state_dir() / "hub")
    try:
        packed = sys.stdin.buffer.read() if file == STDIO else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFound(_("there is no file {file}").format(file=file)) from None
    aside = unpack(packed, folder)
    click.echo(_("restored {folder}").format(folder=folder), err=True)
    if aside:
        click.echo(_("what was there is in {aside}").format(aside=aside), err=True)


def pack(state: Path) -> bytes:
    """The state folder as a tar file; the hub may write meanwhile.

    Raises:
        NotFound: no hub has its state there.
    """
    database = state / DATABASE
    if not database.exists():
        text = _("{folder} is no hub's state: it has no {name}. Name another with --state")
        raise NotFound(text.format(folder=state, name=DATABASE))
    found = {DATABASE: _copied(database)}
    with state_files.locked(state / ACCOUNTS, shared=True):
        for name in (ACCOUNTS, COOKIES):
            with suppress(FileNotFoundError):  # signed in elsewhere; a secret of Kubernetes
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
    """Put the files back; the folder that has what was there, None where nothing was.

    Raises:
        Conflict: a hub runs on this folder, or a newer one made the file.
        InvalidRequest: it is no such file, or a damaged one.
    """
    found = _read(packed)
    with _no_hub(state):
        fresh = Path(tempfile.mkdtemp(dir=state, prefix=".restoring-"))  # 0700
        try:
            for name, content in found.items():
                with os.fdopen(os.open(fresh / name, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as out:
                    out.write(content)
                    out.flush()
                    os.fsync(out.fileno())
            _check(fresh / DATABASE)
            aside = _put_aside(state)
            for name in found:
                (fresh / name).replace(state / name)
        finally:
            for left in fresh.iterdir():
                left.unlink()
            fresh.rmdir()
    return aside


def _copied(database: Path) -> bytes:
    """SQLite's own way to copy a database that is in use.

    ref: https://www.sqlite.org/backup.html
    """
    with tempfile.TemporaryDirectory(prefix="tfcluster-hub-") as folder:  # 0700
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
        raise _damaged(_("it is of another version"))
    here = version("jupyterhub")
    if _numbers(made_by) > _numbers(here):
        text = _(
            "the backup is of JupyterHub {made_by}, and {here} is installed, which cannot read it: "
            "install TFCluster at the version that made it, or a newer one"
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


def _put_aside(state: Path) -> Path | None:
    """Move what is there into a folder of its own."""
    there = [file for name in FILES for file in state.glob(f"{name}*") if file.is_file()]
    if not there:
        return None
    aside = state / f"replaced-{_now().replace(':', '')}"
    aside.mkdir(mode=0o700)
    for file in there:
        file.replace(aside / file.name)
    return aside


@contextmanager
def _no_hub(state: Path) -> Iterator[None]:
    """Hold the lock of a hub of this machine, so that none starts; see tools/hub.py."""
    with os.fdopen(os.open(state / "hub.lock", os.O_CREAT | os.O_RDWR, 0o600), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _runs(state) from None
        if is_open(state / DATABASE):
            raise _runs(state)
        yield


def _runs(state: Path) -> Conflict:
    text = _("a hub runs on {folder}: end it first, with Ctrl-C where it was started")
    return Conflict(text.format(folder=state))


def _damaged(why: str) -> InvalidRequest:
    allowed = _("a file that `python -m tfcluster_magic.hub backup` made is allowed")
    return InvalidRequest([Problem("FILE", why, allowed)], _("nothing was restored"))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
