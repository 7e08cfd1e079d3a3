"""TensorBoard on a folder of event files: one process for each folder, shared by all who ask.

Promises that callers in any process get the same board while it lives, that a board outlives its
caller, and that it ends by itself when nobody uses it. It owns the start and the end of boards; the
registry is `tensorboard_registry.py`'s, the board's own process `tensorboard_server.py`'s. It never
imports TensorBoard.

The board listens on 127.0.0.1, without a password: every account of this machine can open it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import paths, tensorboard_server
from .errors import TFClusterError
from .tensorboard_registry import Board, Entry, read, registry
from .tensorboard_server import HOST, started

IDLE_TIMEOUT = 1800.0
"""Seconds without a connection after which a board ends by itself."""
START_TIMEOUT = 60.0
"""Seconds that a board may take to listen; about one when nothing else is going on."""

_ANSWER_TIMEOUT = 10.0
_GRACE = 5.0
# What belongs to the notebook server, to a run, or would send the board's own traffic away.
_DROPPED_PREFIXES = ("JUPYTERHUB_", "JPY_")
_DROPPED = {
    "TFCLUSTER_RUN_UID",
    *(p + "_proxy" for p in ("http", "https", "grpc", "all")),
    *(p + "_PROXY" for p in ("HTTP", "HTTPS", "ALL")),
}


def open(  # noqa: A001 - read as tensorboard.open
    folder: str | os.PathLike[str],
    *,
    path_prefix: str = "",
    idle_timeout: float = IDLE_TIMEOUT,
    state_dir: str | os.PathLike[str] | None = None,
    start_timeout: float = START_TIMEOUT,
) -> Board:
    """The TensorBoard on `folder`: the one that runs already, else a new one (about one second).

    The folder may be empty: runs appear as they are written. The log root and what is below it is
    made where it is missing. With `path_prefix` ("/user/ada/board") everything is served below that
    path, for a proxy that passes paths on unchanged. `idle_timeout` (seconds above 0) counts for a
    new board only.

    Raises:
        TFClusterError: no such folder, TensorBoard is not installed, or it did not start.
    """
    if not idle_timeout > 0:
        raise TFClusterError(f"idle_timeout: got {idle_timeout!r}; a number of seconds above 0")
    entry = Entry(registry(state_dir), _checked(folder), _prefix(path_prefix))
    with entry.locked() as lock:
        board = entry.living()
        if board and _answers(board):
            return board
        if board:
            _end(board)
        return _start(entry, lock, idle_timeout, start_timeout)


def list_boards(state_dir: str | os.PathLike[str] | None = None) -> list[Board]:
    """The boards whose processes live. Using them is not counted as use: they may go idle."""
    known = (read(path) for path in sorted(registry(state_dir).glob("*.json")))
    return [board for board in known if board]


def stop(
    folder: str | os.PathLike[str], *, state_dir: str | os.PathLike[str] | None = None
) -> bool:
    """End every board on `folder`, and say whether there was one. It is gone when this returns."""
    where, path = registry(state_dir), os.path.realpath(os.path.expanduser(folder))
    found = False
    for board in list_boards(where.parent):
        if board.folder != path:
            continue
        entry = Entry(where, path, board.path_prefix)
        with entry.locked():
            living = entry.living()
            if living:
                _end(living)
                found = True
            entry.file("json").unlink(missing_ok=True)
    return found


def _checked(folder: str | os.PathLike[str]) -> str:
    path = Path(os.path.realpath(os.path.expanduser(folder)))
    log_root = Path(os.path.realpath(paths.log_dir()))
    try:
        if log_root == path or log_root in path.parents:
            path.mkdir(parents=True, exist_ok=True)
        os.scandir(path).close()
    except OSError as error:
        raise TFClusterError(
            f"TensorBoard cannot show {path}: {error.strerror or error}; name a folder that exists "
            "and that you may read (it may be empty: runs appear as they are written)"
        ) from None
    return str(path)


def _prefix(given: str) -> str:
    stripped = given.strip("/")
    return f"/{stripped}" if stripped else ""


def _answers(board: Board) -> bool:
    connection = http.client.HTTPConnection(HOST, board.port, timeout=_ANSWER_TIMEOUT)
    try:
        connection.request("GET", f"{board.path_prefix}/data/environment")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
    }


def _start(entry: Entry, lock: int, idle_timeout: float, start_timeout: float) -> Board:
    report, its_end = os.pipe()
    options = {
        "folder": entry.folder,
        "prefix": entry.prefix,
        "idle": idle_timeout,
        "register": str(entry.file("json")),
        "lock": lock,
        "report": its_end,
        "startTimeout": max(1, round(start_timeout)),
    }
    log = entry.file("log")
    try:
        try:
            _spawn(options, log, (lock, its_end))
        finally:
            os.close(its_end)
        said = _hear(report, start_timeout + _GRACE)
    except OSError as error:
        raise TFClusterError(f"TensorBoard could not be started: {error}") from None
    finally:
        os.close(report)
    board = entry.living()
    if said == b"ready" and board and _answers(board):
        return board
    if said == b"missing":
        raise TFClusterError(
            f"TensorBoard is not installed for {sys.executable}: pip install tensorboard"
        )
    raise TFClusterError(
        f"TensorBoard on {entry.folder} did not start (it has {start_timeout:.0f} s for that)"
        f"{_last_lines(log)}\nits output is in {log}"
    )


def _spawn(options: dict[str, object], log: Path, descriptors: tuple[int, int]) -> None:
    with log.open("wb") as output:
        subprocess.run(
            [sys.executable, tensorboard_server.__file__, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # neither pins the caller's folder nor imports from it
            env=_environment(),
            pass_fds=descriptors,
            start_new_session=True,
            check=False,  # it forks the board at once and ends; `_hear` tells how it went
        )


def _hear(report: int, within: float) -> bytes:
    """What the board says; nothing when it ended instead, or says nothing for `within` seconds."""
    poll = select.poll()  # unlike select, it takes the high descriptors of a busy notebook server
    poll.register(report, select.POLLIN)
    return os.read(report, 100) if poll.poll(within * 1000) else b""


def _last_lines(log: Path) -> str:
    try:
        lines = log.read_text("utf-8", "replace").splitlines()[-10:]
    except OSError:
        lines = []
    return "".join(f"\n  {line[:300]}" for line in lines) if lines else "; it said nothing"


def _end(board: Board) -> None:
    """SIGTERM, and after a grace period SIGKILL; its data server goes with it."""
    began = started(board.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(board.pid, signal.SIGTERM)
    if not _gone(board.pid, began, _GRACE):
        with contextlib.suppress(ProcessLookupError):
            os.kill(board.pid, signal.SIGKILL)
        _gone(board.pid, began, _GRACE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(board.pid, signal.SIGKILL)  # it leads a session of its own


def _gone(pid: int, began: str | None, within: float) -> bool:
    deadline = time.monotonic() + within
    while began is not None and started(pid) == began:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)  # nobody is told when somebody else's child ends; pidfd is for Linux alone
    return True
