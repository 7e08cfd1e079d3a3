"""TensorBoard processes, one for each folder, shared by all callers, and their registry.

Callers in any process get the same board while it lives. A board outlives its caller, and ends
automatically when it has not been used for a while. A board that a notebook server or one of its
kernels started ends with that server, however the server ends. This module starts and stops boards
and manages the registry files; `child_process.py` is the board's own process. TensorBoard is never
imported here.

The board listens on 127.0.0.1, where all accounts of the machine, and pages in browsers, can reach
it. So it answers only below a secret path, which is in the registry (private to the user) and in
the address that is shown. TensorBoard's data server has no such protection: programs of other
accounts of this machine can ask it for the board's data.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta

from .. import paths, state_files
from ..errors import NotFound, TFClusterError
from ..i18n import _, current_language
from ..spec import Model, conversion
from . import child_process
from .child_process import HOST, start_time

T = TypeVar("T")
_PREFIX = re.compile(r"/[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Board:
    """A running TensorBoard: its address and its folder; `fresh` is true for the caller that
    started it.
    """

    url: str
    pid: int
    folder: str
    port: int
    path_prefix: str
    fresh: bool = field(default=False, compare=False)


class _RegistryFile(Model, frozen=True):
    """The registry file that `child_process._announce` writes."""

    folder: str
    prefix: str
    port: Annotated[int, Meta(ge=1, le=65535)]
    pid: Annotated[int, Meta(ge=2, le=2**31 - 1)]
    started: str


def read_file(path: Path, kind: type[T]) -> T | None:
    """Return a registry file as a `kind`; None if there is no valid one. `json` parses the file,
    because msgspec refuses the names of folders that are not valid UTF-8.
    """
    try:
        return conversion.convert(json.loads(state_files.read_bytes(path)), kind)
    except (FileNotFoundError, state_files.Unreadable, ValueError, RecursionError):
        return None


def registry_folder(state_dir: str | os.PathLike[str] | None) -> Path:
    """Return the registry folder, which may be missing; None means this user's state folder."""
    base = paths.state_dir() if state_dir is None else Path(state_dir).absolute()
    return base / "tensorboard"


def read_board(path: Path) -> Board | None:
    """Return the board in this registry file; None if the file is not valid, or the board's process
    has ended.
    """
    facts = read_file(path, _RegistryFile)
    if facts is None or not _PREFIX.fullmatch(facts.prefix) or "\0" in facts.folder:
        return None  # the file does not exist or is not a registry file
    if start_time(facts.pid) is None or start_time(facts.pid) != facts.started:
        return None
    url = f"http://{HOST}:{facts.port}{facts.prefix}/"
    return Board(url, facts.pid, facts.folder, facts.port, facts.prefix)


class RegistryEntry:
    """The registry files for one folder on this host."""

    def __init__(self, registry: Path, folder: str) -> None:
        self.folder = folder
        # hosts may share a state folder, but not a board on loopback
        key = f"{folder}\0{socket.gethostname()}"
        self._stem = registry / hashlib.sha256(key.encode()).hexdigest()[:24]

    def file(self, suffix: str) -> Path:
        """Return the path of the entry's json, lock or log file."""
        return self._stem.with_suffix(f".{suffix}")

    def living(self) -> Board | None:
        """Return the board of this entry; None if it has none, or the board's process has ended."""
        return read_board(self.file("json"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock of this entry, and yield its file descriptor. A board that is being started
        inherits the descriptor, and so holds the lock until it listens.
        """
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


_OWN_PAGE = """\
<!doctype html>
<html lang="{lang}"><head><meta charset="utf-8"><title>TensorBoard</title>{head}
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px/1.5 system-ui, sans-serif; }}
main {{ margin: 3rem auto; max-width: 60rem; padding: 0 1rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
</style></head>
<body><main>{body}</main></body></html>
"""


def own_page(body: str, head: str = "") -> str:
    """Return an HTML page of this package, in the current language, that is shown instead of
    TensorBoard's page.
    """
    return _OWN_PAGE.format(lang=current_language().replace("_", "-"), head=head, body=body)


def empty_page(looked_at: Sequence[str]) -> str:
    """Return the page that a board shows while there is no event file; the page reloads itself.
    `looked_at` are the folders under the names that users know.
    """
    folders = "".join(f"<li><code>{escape(each)}</code></li>" for each in looked_at)
    texts = [
        _("No event files yet"),
        _("TensorBoard shows files whose names have “.tfevents.” in them. None was found in:"),
        _(
            "Event files that a task writes elsewhere, such as in ./logs, are found through the "
            "files that the task has open. This page checks again every five seconds."
        ),
        _("How a program writes them:"),
        _(
            "The progress of a program that only prints is shown in the sidebar and in "
            "`tfcluster status`. For event files in an object store (gs://, s3://, hdfs://), start "
            "a TensorBoard yourself: `tensorboard --logdir gs://…`."
        ),
    ]
    title, found, elsewhere, how, others = map(escape, texts)
    others = re.sub(r"`([^`]*)`", r"<code>\1</code>", others)
    return own_page(
        f'<h1>{title}</h1><p role="status">{found}</p><ul>{folders}</ul><p>{elsewhere}</p>'
        f"<p>{how}</p><pre>{escape(_EXAMPLE)}</pre><p>{others}</p>",
        '<meta http-equiv="refresh" content="5">',
    )


_EXAMPLE = """\
folder = os.environ["TFCLUSTER_OUTPUT_DIR"]

model.fit(..., callbacks=[tf.keras.callbacks.TensorBoard(folder)])

with tf.summary.create_file_writer(folder).as_default():
    tf.summary.scalar("loss", loss, step=step)
"""

IDLE_TIMEOUT = 1800.0
"""Seconds without a connection after which a board ends."""
START_TIMEOUT = 60.0
"""Maximum seconds until a board listens. On an idle machine, it listens after about one second."""

_ANSWER_TIMEOUT = 10.0
_GRACE = 5.0
# Variables that a board does not get: those of the notebook server and of a run, and those of
# proxies, which would redirect a board's traffic.
_DROPPED_PREFIXES = ("JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN")
_DROPPED = {
    "TFCLUSTER_RUN_UID",
    *(p + "_proxy" for p in ("http", "https", "grpc", "all")),
    *(p + "_PROXY" for p in ("HTTP", "HTTPS", "ALL")),
}


def open(  # noqa: A001 - callers write `tensorboard.open`
    folder: str | os.PathLike[str],
    *,
    exact: bool = False,
    shown: str | None = None,
    looked_at: Sequence[str] = (),
    log_root: str | os.PathLike[str] | None = None,
    idle_timeout: float = IDLE_TIMEOUT,
    state_dir: str | os.PathLike[str] | None = None,
    start_timeout: float = START_TIMEOUT,
    until: int | None = None,
) -> Board:
    """Return the TensorBoard on `folder`: the running one, or a new one, which takes about a
    second.

    The folder may be empty: the board shows each run as soon as the run writes event files.
    `log_root` and folders below it are created if missing; None stands for the environment's log
    folder. An `exact` folder is refused if it, or a parent of it, has become a link. The board
    keeps showing this folder, even if its path later leads to another folder. The page displays
    `shown` as the location of the data. While there is no event file, the page says so and names
    the folders in `looked_at`. `idle_timeout` (seconds above 0), `shown` and `until` apply only to
    a new board. A new board ends when the process with the pid `until` ends. If `until` is None and
    the caller runs in a kernel, the board ends when the notebook server ends.

    Raises:
        NotFound: the folder does not exist or cannot be read.
        TFClusterError: TensorBoard is not installed or did not start.
    """
    if not idle_timeout > 0:
        raise TFClusterError(
            _("idle_timeout: got {idle_timeout!r}; a number of seconds above 0").format(
                idle_timeout=idle_timeout
            )
        )
    where = paths.private(registry_folder(state_dir))
    entry = RegistryEntry(where, _checked_folder(folder, log_root, exact))
    with entry.locked() as lock:
        board = entry.living()
        if board and _is_in_folder(board, entry.folder) and _answers(board):
            return board
        if board:
            _end(board)
        empty = empty_page(looked_at or [entry.folder])
        options = {"shown": shown or entry.folder, "idle": idle_timeout, "empty": empty}
        options["until"] = _until(until)
        return _start(entry, lock, options, start_timeout)


def list_boards(state_dir: str | os.PathLike[str] | None = None) -> list[Board]:
    """Return the boards whose processes live. The call does not count as use of a board."""
    known = (read_board(path) for path in sorted(registry_folder(state_dir).glob("*.json")))
    return [board for board in known if board]


def stop(
    folder: str | os.PathLike[str], *, state_dir: str | os.PathLike[str] | None = None
) -> bool:
    """End every board on `folder` and wait until it has ended. Return whether a board was running
    on it.
    """
    where, path = registry_folder(state_dir), os.path.realpath(os.path.expanduser(folder))
    found = False
    for board in list_boards(where.parent):
        if board.folder != path:
            continue
        entry = RegistryEntry(where, path)
        with entry.locked():
            living = entry.living()
            if living:
                _end(living)
                found = True
            with contextlib.suppress(OSError):
                entry.file("json").unlink()
    return found


def _checked_folder(
    folder: str | os.PathLike[str], log_root: str | os.PathLike[str] | None, exact: bool
) -> str:
    path = Path(os.path.realpath(os.path.expanduser(folder)))
    if exact and os.fspath(path) != os.fspath(folder):
        raise _folder_changed(os.fspath(folder))
    root = Path(os.path.realpath(log_root or paths.log_dir()))
    try:
        if root == path or root in path.parents:
            path.mkdir(parents=True, exist_ok=True)
        os.scandir(path).close()
    except OSError as error:
        raise NotFound(
            _(
                "TensorBoard cannot show {path}: {why}; name a folder that exists and that you "
                "may read (it may be empty: runs appear as they are written)"
            ).format(path=path, why=error.strerror or error)
        ) from None
    return str(path)


def _folder_changed(folder: str) -> NotFound:
    return NotFound(
        _(
            "TensorBoard cannot show {path}: it became a link to another folder while it was being "
            "opened; open the folder itself"
        ).format(path=folder)
    )


def _until(pid: int | None) -> tuple[int, str] | None:
    """Return the process with which a board ends, and when that process started."""
    said = os.environ.get("JPY_PARENT_PID", "")  # Jupyter sets it in kernels
    pid = pid or (int(said) if said.isdecimal() else None)
    began = None if pid is None else start_time(pid)
    return None if pid is None or began is None else (pid, began)


def _is_in_folder(board: Board, folder: str) -> bool:
    """Return whether the board's working directory is still the folder at the path `folder`."""
    try:
        return os.path.samefile(f"/proc/{board.pid}/cwd", folder)
    except OSError:
        return not os.path.exists("/proc/self/cwd")


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


def _start(
    entry: RegistryEntry, lock: int, options: dict[str, object], start_timeout: float
) -> Board:
    report, its_end = os.pipe()
    options |= {
        "folder": entry.folder,
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
        said = _read_report(report, start_timeout + _GRACE)
    except OSError as error:
        raise TFClusterError(
            _("TensorBoard could not be started: {why}").format(why=error)
        ) from None
    finally:
        os.close(report)
    board = entry.living()
    if said == b"ready" and board and _answers(board):
        return replace(board, fresh=True)
    if said == b"changed":
        raise _folder_changed(entry.folder)
    if said == b"missing":
        raise TFClusterError(
            _("TensorBoard is not installed for {python}: pip install tensorboard").format(
                python=sys.executable
            )
        )
    raise TFClusterError(
        _(
            "TensorBoard on {folder} did not start within {seconds:.0f} s{last_lines}\nits output "
            "is in {log}"
        ).format(folder=entry.folder, seconds=start_timeout, last_lines=_last_lines(log), log=log)
    )


def _spawn(options: dict[str, object], log: Path, descriptors: tuple[int, int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        # Remove the old log instead of overwriting it, because a board that is just ending may
        # still have it open.
        state_files.put_aside(log) if log.is_dir() else log.unlink()
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(log, how, 0o600), "wb") as output:
        subprocess.run(
            [sys.executable, child_process.__file__, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # not the caller's folder: a board would keep it busy, or import from it
            env=_environment(),
            pass_fds=descriptors,
            start_new_session=True,
            check=False,  # this child forks the board and ends at once; see `_read_report`
        )


def _read_report(report: int, within: float) -> bytes:
    """Return the board's report; empty if the board ended, or reports nothing for `within`
    seconds.
    """
    poll = select.poll()  # select() refuses the high descriptors of a busy notebook server
    poll.register(report, select.POLLIN)
    return os.read(report, 100) if poll.poll(within * 1000) else b""


def _last_lines(log: Path) -> str:
    lines = state_files.read_tail(log, 8192).decode("utf-8", "replace").splitlines()[-10:]
    if not lines:
        return _("; it printed nothing")
    return "".join(f"\n  {line[:300]}" for line in lines)


def _end(board: Board) -> None:
    """Send SIGTERM, and SIGKILL after a grace period; the data server ends too."""
    began = start_time(board.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(board.pid, signal.SIGTERM)
    if not _wait_until_gone(board.pid, began, _GRACE):
        with contextlib.suppress(ProcessLookupError):
            os.kill(board.pid, signal.SIGKILL)
        _wait_until_gone(board.pid, began, _GRACE)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(board.pid, signal.SIGKILL)  # the board's process group includes its data server


def _wait_until_gone(pid: int, began: str | None, within: float) -> bool:
    deadline = time.monotonic() + within
    while began is not None and start_time(pid) == began:
        if time.monotonic() > deadline:
            return False
        # Poll: a board is not our child, so no signal reports its end, and pidfd exists only on
        # Linux.
        time.sleep(0.01)
    return True
