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
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import paths
from .errors import TFClusterError
from .i18n import _
from .tensorboard_server import HOST, started


@dataclass(frozen=True)
class Board:
    """A TensorBoard that runs: where it is, and what it shows; `fresh` for whoever started it."""

    url: str
    pid: int
    folder: str
    port: int
    path_prefix: str
    fresh: bool = field(default=False, compare=False)


def registry(state_dir: str | os.PathLike[str] | None) -> Path:
    """The folder of the registry, made where it is missing; None means this user's state folder."""
    base = paths.state_dir() if state_dir is None else Path(state_dir).absolute()
    return paths.private(base / "tensorboard")


def read(path: Path) -> Board | None:
    """The board that this registry file names, if its process lives."""
    try:
        facts = json.loads(path.read_bytes())
        pid, port, prefix = int(facts["pid"]), int(facts["port"]), str(facts["prefix"])
        if started(pid) is None or started(pid) != facts["started"]:
            return None
        return Board(f"http://{HOST}:{port}{prefix}/", pid, str(facts["folder"]), port, prefix)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no such file, or not one of ours: there is no board


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
            file = path.open("a")
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
