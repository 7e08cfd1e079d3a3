"""A TensorBoard process on a folder, which is shared, and ended when nobody uses it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import event_writer as ev
from support.http_client import get
from support.polling import wait_until

from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.tensorboard import process
from tfcluster_magic.tensorboard.child_process import start_time

OPEN = """
import sys
from tfcluster_magic.tensorboard import process
print(process.open(sys.argv[1], state_dir=sys.argv[2]).pid)
"""


def processes(state: Path) -> list[int]:
    """Return the processes of all boards with this state folder: each session whose leader has the
    folder in its arguments, with all its processes, such as the data server.
    """
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and start_time(int(entry)):
            try:
                session = os.getsid(int(entry))
                lines = [Path(f"/proc/{p}/cmdline").read_bytes() for p in {int(entry), session}]
            except OSError:
                continue
            if any(os.fsencode(state) in line for line in lines):
                found.append(int(entry))
    return found


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Yield a state folder; stop its boards afterwards."""
    folder = tmp_path / "state"
    yield folder
    for board in process.list_boards(folder):
        process.stop(board.folder, state_dir=folder)
    wait_until(lambda: not processes(folder), "a process is left")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Create a folder with the events of one run."""
    path = ev.event_file(tmp_path / "log" / "digits" / "1")
    path.write_bytes(ev.version() + ev.event(1, {"loss": 0.5}))
    return tmp_path / "log"


def test_life_of_a_board(
    state: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A board serves the runs and can be stopped. Its process has neither TensorFlow nor the
    notebook server's secrets.
    """
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setenv("JUPYTER_TOKEN", "secret")
    monkeypatch.setenv("TFCLUSTER_RUN_UID", "some-run")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (tmp_path / "tensorboard.py").write_text("raise SystemExit('the wrong tensorboard')")
    monkeypatch.chdir(tmp_path)

    board = process.open(logs, state_dir=state)
    assert board.folder == str(logs)
    assert process.list_boards(state) == [board]
    wait_until(lambda: json.loads(get(board.url + "data/runs")) == ["digits/1"], "no run is served")

    assert "tensorflow" not in Path(f"/proc/{board.pid}/maps").read_text()
    environment = Path(f"/proc/{board.pid}/environ").read_text().split("\0")
    names = {variable.partition("=")[0] for variable in environment}
    assert not names & {
        *("JUPYTERHUB_API_TOKEN", "JPY_PARENT_PID", "JUPYTER_TOKEN", "TFCLUSTER_RUN_UID")
    }
    assert os.getsid(board.pid) == board.pid
    assert (state / "tensorboard").stat().st_mode & 0o077 == 0
    assert len(processes(state)) == 2  # the board and its data server

    assert process.stop(logs, state_dir=state)
    assert start_time(board.pid) is None
    wait_until(lambda: not processes(state), "a process is left")
    assert process.list_boards(state) == []
    assert not list((state / "tensorboard").glob("*.json"))
    assert not process.stop(logs, state_dir=state)


def test_a_board_without_event_files_says_where_it_looked(state: Path, tmp_path: Path) -> None:
    """Until the first event file appears, the page of a board names the folder and says how to
    write event files there.
    """
    folder = tmp_path / "digits"
    folder.mkdir()
    board = process.open(folder, looked_at=["/log/<digits>/1"], state_dir=state)
    page = get(board.url)
    assert b"No event files yet" in page
    assert b"<code>/log/&lt;digits&gt;/1</code>" in page
    assert b"TFCLUSTER_OUTPUT_DIR" in page
    (tmp_path / "elsewhere").mkdir()
    (folder / "written").symlink_to(tmp_path / "elsewhere")
    path = ev.event_file(tmp_path / "elsewhere")
    path.write_bytes(ev.version() + ev.event(1, {"loss": 0.5}))
    assert b"No event files yet" not in get(board.url)
    wait_until(lambda: json.loads(get(board.url + "data/runs")) == ["written"], "the curve")


def test_two_callers_at_once_share_one_board(state: Path, logs: Path) -> None:
    """Callers in several processes, one of which uses a link to the folder, get the same board,
    which outlives them.
    """
    link = logs.parent / "link"
    link.symlink_to(logs)
    callers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(folder), str(state)], stdout=subprocess.PIPE, text=True
        )
        for folder in (logs, link, logs)
    ]
    pids = {int(caller.communicate(timeout=120)[0]) for caller in callers}
    assert len(pids) == 1
    assert process.open(logs, state_dir=state).pid in pids


def test_killed_board_is_replaced(state: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that was killed, or does not answer any more, is replaced by a new board."""
    first = process.open(logs, state_dir=state)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: start_time(first.pid) is None, "SIGKILL has no effect")
    assert process.list_boards(state) == []
    second = process.open(logs, state_dir=state)
    assert second.pid != first.pid

    monkeypatch.setattr(process, "_ANSWER_TIMEOUT", 1.0)
    monkeypatch.setattr(process, "_GRACE", 0.2)
    os.kill(second.pid, signal.SIGSTOP)
    monkeypatch.setattr(process, "_start", lambda *_: "started anew")
    assert process.open(logs, state_dir=state) == "started anew"
    assert start_time(second.pid) is None


def test_idle_board_ends(state: Path, logs: Path) -> None:
    """A board ends by itself after the idle timeout since the last connection was closed."""
    board = process.open(logs, state_dir=state, idle_timeout=1)
    used = socket.create_connection(("127.0.0.1", board.port))
    busy_until = time.monotonic() + 2.5
    wait_until(
        lambda: time.monotonic() > busy_until or start_time(board.pid) is None, "unreachable"
    )
    assert start_time(board.pid) is not None
    used.close()
    wait_until(lambda: not processes(state), "it does not end")
    assert not list((state / "tensorboard").glob("*.json"))


def test_a_board_ends_with_the_notebook_server_of_its_kernel(
    state: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board that a kernel started ends with its notebook server, even if that server is killed. A
    board without a notebook server, such as one that a shell started, continues.
    """
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setenv("JPY_PARENT_PID", str(server.pid))
    board = process.open(logs, state_dir=state)
    monkeypatch.setenv("JPY_PARENT_PID", "nonsense")
    (logs / "other").mkdir()
    other = process.open(logs / "other", state_dir=state)
    assert {known.pid for known in process.list_boards(state)} == {board.pid, other.pid}
    server.kill()
    server.communicate()
    wait_until(lambda: process.list_boards(state) == [other], "the board ends")


def test_secret_path(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board answers only below its own path, which is not in a process's arguments."""
    folder = tmp_path / "new" / "log"
    monkeypatch.setenv("TFCLUSTER_LOG_DIR", str(folder))
    board = process.open(folder, state_dir=state)
    assert folder.is_dir()  # the log root is created if missing
    assert board.url == f"http://127.0.0.1:{board.port}{board.path_prefix}/"
    assert json.loads(get(board.url + "data/runs")) == []
    assert json.loads(get(board.url + "data/environment"))["data_location"] == str(folder)
    for path in ("", "data/runs", "data/environment", f"x{board.path_prefix}/data/runs"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"http://127.0.0.1:{board.port}/{path}")
    secret = board.path_prefix.strip("/").encode()
    assert len(secret) > 20
    for pid in processes(state):
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
    process.stop(folder, state_dir=state)
    again = process.open(folder, state_dir=state)
    assert again.path_prefix != board.path_prefix


def test_folder_that_becomes_a_link(
    state: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If a folder becomes a link before, while or after a board opens it, the board does not show
    the link's target.
    """
    outside = tmp_path / "outside"
    ev.event_file(outside / "secret").write_bytes(ev.version() + ev.event(1, {"loss": 0.5}))
    board = process.open(logs, exact=True, state_dir=state)
    logs.rename(tmp_path / "old")
    logs.symlink_to(outside)
    ev.event_file(tmp_path / "old" / "more").write_bytes(ev.version() + ev.event(1, {"loss": 1}))
    served = lambda: json.loads(get(board.url + "data/runs"))  # noqa: E731
    wait_until(lambda: served() == ["digits/1", "more"], "what is added is not shown")
    assert "secret" not in served()

    with pytest.raises(TFClusterError, match="became a link to another folder"):
        process.open(logs, exact=True, state_dir=state)
    # as if the folder became a link between the check and the start of the process
    monkeypatch.setattr(process, "_checked_folder", lambda *_: str(logs))
    with pytest.raises(TFClusterError, match="became a link to another folder"):
        process.open(logs, exact=True, state_dir=state)


def test_folder_that_is_made_anew(state: Path, logs: Path, tmp_path: Path) -> None:
    """A folder that was removed and created again is shown as it is now."""
    first = process.open(logs, state_dir=state)
    logs.rename(tmp_path / "old")
    ev.event_file(logs / "new").write_bytes(ev.version() + ev.event(1, {"loss": 1}))
    second = process.open(logs, state_dir=state)
    assert second.pid != first.pid
    wait_until(lambda: json.loads(get(second.url + "data/runs")) == ["new"], "not the new folder")


def test_folder_that_cannot_be_shown(state: Path, tmp_path: Path) -> None:
    """If a folder does not exist, or is a file, the error names it, and nothing is started or
    created.
    """
    (tmp_path / "file").write_text("")
    for name, why in (("missing", "No such file"), ("file", "Not a directory")):
        with pytest.raises(TFClusterError, match=f"{name}: {why}.*may be empty"):
            process.open(tmp_path / name, state_dir=state)
    assert not (tmp_path / "missing").exists()
    with pytest.raises(TFClusterError, match="idle_timeout"):
        process.open(tmp_path, state_dir=state, idle_timeout=0)


def test_state_folder_that_cannot_be_written(logs: Path, tmp_path: Path) -> None:
    """The error about a state folder that cannot be written names the folder, and the variable that
    sets another folder.
    """
    (tmp_path / "state").write_text("a file")
    with pytest.raises(TFClusterError, match=r"state.*TFCLUSTER_STATE_DIR"):
        process.open(logs, state_dir=tmp_path / "state")


def test_tensorboard_is_not_installed(
    state: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without TensorBoard, the error says how to install it, and for which Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "v" / "bin" / "python"))
    with pytest.raises(TFClusterError, match=r"v/bin/python: pip install tensorboard"):
        process.open(logs, state_dir=state)
    assert process.list_boards(state) == []


@pytest.mark.parametrize(
    ("body", "told", "patience"),
    [
        ("raise ImportError('boom')", "ImportError: boom", 90),
        ("while True: pass", "printed nothing", 1),
    ],
)
def test_tensorboard_that_does_not_start(
    state: Path,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    body: str,
    told: str,
    patience: float,
) -> None:
    """A TensorBoard that fails or hangs at its start is reported with its last lines, and ended."""
    broken = tmp_path / "broken" / "tensorboard"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    with pytest.raises(TFClusterError, match=f"did not start.*(?s:.*){told}(?s:.*)output is in"):
        process.open(logs, state_dir=state, start_timeout=patience)
    wait_until(lambda: not processes(state), "a process is left")
