"""Which TensorBoards run: the files below `<state dir>/tensorboard/`.

Promises that a board is named only while its process lives, known by pid and start time, and that
at most one caller of any process changes an entry at a time. It owns, for each folder on this host,
a registry file (`.json`, written by the board once it listens, with the path that is its secret), a
lock and the board's output (`.log`). It starts and ends nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from .. import paths, state_files
from ..errors import TFClusterError
from ..i18n import _
from ..spec import Model
from .server import HOST, started

T = TypeVar("T")
_PREFIX = re.compile(r"/[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Board:
    """A TensorBoard that runs: where it is, and what it shows; `fresh` for whoever started it."""

    url: str
    pid: int
    folder: str
    port: int
    path_prefix: str
    fresh: bool = field(default=False, compare=False)


class _Facts(Model, frozen=True):
    """The registry file, as `tensorboard_server._announce` writes it."""

    folder: str
    prefix: str
    port: Annotated[int, Meta(ge=1, le=65535)]
    pid: Annotated[int, Meta(ge=2, le=2**31 - 1)]
    started: str


def said(path: Path, kind: type[T]) -> T | None:
    """Return a file of the registry as a `kind`; None if there is none of ours. Names of folders
    need not be UTF-8 here.
    """
    try:
        return msgspec.convert(json.loads(state_files.content(path)), kind)
    except (FileNotFoundError, state_files.Unreadable, ValueError, RecursionError):
        return None


def registry(state_dir: str | os.PathLike[str] | None) -> Path:
    """The folder of the registry, made where it is missing; None means this user's state folder."""
    base = paths.state_dir() if state_dir is None else Path(state_dir).absolute()
    return paths.private(base / "tensorboard")


def read(path: Path) -> Board | None:
    """The board that this registry file names, if its process lives."""
    facts = said(path, _Facts)
    if facts is None or not _PREFIX.fullmatch(facts.prefix) or "\0" in facts.folder:
        return None  # no such file, or not one of ours: there is no board
    if started(facts.pid) is None or started(facts.pid) != facts.started:
        return None
    url = f"http://{HOST}:{facts.port}{facts.prefix}/"
    return Board(url, facts.pid, facts.folder, facts.port, facts.prefix)


class Entry:
    """The registry's files for one folder on this host."""

    def __init__(self, registry: Path, folder: str) -> None:
        self.folder = folder
        # a state folder may be shared by hosts, a board on loopback is not
        key = f"{folder}\0{socket.gethostname()}"
        self._stem = registry / hashlib.sha256(key.encode()).hexdigest()[:24]

    def file(self, suffix: str) -> Path:
        """The entry's file of this kind: json, lock or log."""
        return self._stem.with_suffix(f".{suffix}")

    def living(self) -> Board | None:
        """The board of this entry, if its process lives."""
        return read(self.file("json"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock; a board that is being started inherits it until it listens."""
        path = self.file("lock")
        try:
            file = os.fdopen(state_files.lock_file(path), "rb")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise TFClusterError(
                _(
                    "cannot lock {path}: {why}; make it writable, "
                    "or name another state folder in TFCLUSTER_STATE_DIR"
                ).format(path=path, why=error.strerror or error)
            ) from None
        with file:
            yield file.fileno()
