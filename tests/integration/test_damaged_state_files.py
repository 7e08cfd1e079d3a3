"""A damaged state file breaks nothing else, and its run can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local_runs import SLEEP, Launch, Wait, folder_of, is_up, over, supervisor_of, tasks_of
from support.state_damage import damage, files_of, kinds

from tfcluster_magic import state_files
from tfcluster_magic.backends.local import processes
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import Conflict, TFClusterError
from tfcluster_magic.hub.console.sites.person_reader import ReaderRequest, RunsReader
from tfcluster_magic.output import report
from tfcluster_magic.runs.manager import ClusterManager
from tfcluster_magic.spec import Phase, Reason, Stop, TFCluster
from tfcluster_magic.spec.task_file import RUNTIME
from tfcluster_magic.tensorboard import process, views

PRINTS = "print('hello')\n"


def look(backend: LocalBackend, others: set[str]) -> dict[str, TFCluster]:
    """Read all runs in every way, check that the undamaged ones are intact, and return all."""
    manager = ClusterManager(backend)
    seen = {run.metadata.name: run for run in manager.list(all_runs=True)}
    manager.options()
    manager.hours()
    assert seen.keys() >= others
    for name, run in seen.items():
        report.status(manager.status(name), notes=manager.notes(run))
        for _ in manager.logs(name, tail=5):
            pass
    told = next(iter(backend.watch()))
    assert told is not None
    rows = RunsReader().answer(ReaderRequest(do="list"))
    assert not rows.error, rows.detail
    assert {row.name for row in rows.rows} == seen.keys()
    return seen


@pytest.fixture
def other(backend: LocalBackend, launch: Launch) -> Iterator[TFCluster]:
    """Return a run that nobody damages."""
    run = launch(PRINTS, name="other", worker=1)
    over(backend, "other")
    yield run
    assert backend.get("other").status.phase is Phase.SUCCEEDED
    assert [line.text for line in backend.logs("other") if line] == ["hello"]


@pytest.mark.parametrize("kind", kinds())
def test_damaged_files_of_a_run(
    kind: str, backend: LocalBackend, launch: Launch, other: TFCluster, wait_for: Wait
) -> None:
    """Whichever file of a run is damaged, during the run or afterwards, every command works. The
    run ends with all its processes, and can be deleted.
    """
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    folder = folder_of(run)
    for number, file in enumerate(files_of(folder.path)):
        damage(file, kind, number)
        look(backend, {"other-1", "digits-1"})
    backend.stop("digits", Stop(reason="enough"))
    wait_for(lambda: not tasks_of(run), "its tasks end")
    assert over(backend, "digits").status.phase in (Phase.STOPPED, Phase.FAILED)
    for number, file in enumerate(files_of(folder.path)):
        damage(file, kind, 100 + number)
        look(backend, {"other-1", "digits-1"})
        backend.stop("digits", Stop())
    assert launch(PRINTS, worker=1).metadata.name == "digits-2"
    over(backend, "digits-2")
    backend.delete("digits-1", with_logs=True)
    assert {run.metadata.name for run in backend.list()} == {"other-1", "digits-2"}
    assert not folder.path.exists()


@pytest.mark.parametrize("kind", ["empty", "pipe", "nested"])
def test_a_damaged_record_is_told_and_its_processes_are_found(
    kind: str, backend: LocalBackend, launch: Launch, other: TFCluster, wait_for: Wait
) -> None:
    """If a run's record and description are damaged and its supervisor is gone, lists show the path
    of the record and what to do. The run's processes end, and the run cannot be rerun.
    """
    hides = "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    run = launch(hides + SLEEP, worker=1)
    wait_for(is_up(backend))
    folder = folder_of(run)
    os.kill(supervisor_of(run), signal.SIGSTOP)  # a running supervisor would repair the files
    for file in (folder.record_file, folder.task_file, folder.lock_file):
        damage(file, kind)
    os.kill(supervisor_of(run), signal.SIGKILL)
    found = over(backend, "digits")
    wait_for(lambda: not tasks_of(run), "its processes end")
    assert (found.status.phase, found.status.reason) == (Phase.FAILED, Reason.RECORD_DAMAGED)
    assert str(folder.record_file) in found.status.message
    assert "`tfcluster delete digits-1`" in found.status.message
    with pytest.raises(Conflict, match=r"record\.json cannot be read"):
        ClusterManager(backend).rerun("digits")
    backend.delete("digits")
    assert [run.metadata.name for run in backend.list()] == ["other-1"]


@pytest.mark.parametrize("status", ["kept", "damaged"])
@pytest.mark.parametrize("where", ["same state folder", "another state folder"])
def test_a_copied_folder_ends_no_run(
    where: str, status: str, backend: LocalBackend, launch: Launch, wait_for: Wait, tmp_path: Path
) -> None:
    """Listing, stopping and deleting the copy of a live run's folder does not affect the run's
    tasks and output.
    """
    run = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    output = Path(run.status.paths["output"])
    (output / "checkpoint").write_text("kept")
    tasks = tasks_of(run)
    runs, copy = backend.state_dir / "runs", "digits-backup"
    if where == "another state folder":  # the copy has the run's name, so the record in it is valid
        runs, copy = tmp_path / "copied" / "runs", "digits"
        runs.mkdir(parents=True)
    subprocess.run(["cp", "-r", folder_of(run).path.parent, runs / copy], check=True)
    if status == "damaged":
        damage(runs / copy / "1" / "status.json", "empty")
    other = LocalBackend(state_dir=runs.parent, log_dir=tmp_path / "logs-of-the-copy")
    assert f"{copy}-1" in {each.metadata.name for each in other.list()}
    other.stop(f"{copy}-1", Stop(reason="a copy"))
    if where == "same state folder":
        assert other.get(f"{copy}-1").metadata.uid != run.metadata.uid
        other.delete(f"{copy}-1", with_logs=True)
        assert (output / "checkpoint").read_text() == "kept"
    assert tasks
    assert tasks_of(run) == tasks
    assert backend.get("digits-1").status.phase is Phase.RUNNING


def test_a_supervisor_writes_its_files_again(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """The supervisor of a running run rewrites the run's record, status and lock, and the tasks'
    description.
    """
    run = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    folder = folder_of(run)
    kept = (folder.record_file, folder.status_file, folder.task_file)
    before = [file.read_bytes() for file in kept]
    for file in (*kept, folder.lock_file):
        damage(file, "folder")
    assert folder.wake()
    wait_for(lambda: [state_files.read_bytes(file) for file in kept if file.is_file()] == before)
    wait_for(lambda: folder.lock_file.is_file() and folder.lock() is None)
    status = backend.get("digits").status
    assert (status.phase, status.reason) == (Phase.RUNNING, Reason.RUNNING)
    assert len(tasks_of(run)) == 2
    assert processes.supervisors(folder.path) == [supervisor_of(run)]


def test_a_lost_lock_ends_no_run(backend: LocalBackend, launch: Launch, wait_for: Wait) -> None:
    """A run whose lock file was removed is not mistaken for a run without a supervisor."""
    run = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    tasks = tasks_of(run)
    os.kill(supervisor_of(run), signal.SIGSTOP)
    folder_of(run).lock_file.unlink()
    assert backend.get("digits").status.phase is Phase.RUNNING
    assert tasks_of(run) == tasks
    os.kill(supervisor_of(run), signal.SIGCONT)


def test_a_copy_of_a_run_ends_nothing(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A copied folder counts as damaged. Reading, stopping and deleting it does not affect the
    tasks of the original run.
    """
    run = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    tasks, runs = tasks_of(run), folder_of(run).path.parents[1]
    subprocess.run(["cp", "-r", runs / "digits", runs / "backup"], check=True)
    assert backend.get("backup").status.reason is Reason.RECORD_DAMAGED
    assert {each.metadata.cluster for each in backend.list()} == {"digits", "backup"}
    backend.delete("backup-1")
    assert backend.get("digits").status.phase is Phase.RUNNING
    assert tasks_of(run) == tasks


@pytest.mark.parametrize("kind", kinds())
def test_damaged_files_beside_the_runs(
    kind: str, backend: LocalBackend, other: TFCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage to files that belong to no single run (the ledger of hours, the launch lock, the files
    of TensorBoards) breaks no command. A damaged file of limits may cause a refusal, whose message
    names the file.
    """
    state = backend.state_dir
    view = views.view_of_folder(state)
    damage(state / "hours.json", kind)
    damage(state / "launch.lock", kind)
    damage(state / "tensorboard" / "one.json", kind)
    damage(state / "tensorboard" / "views" / f"{view.id}.json", kind)
    look(backend, {"other-1"})
    assert process.list_boards() == []
    views.stored_views()
    assert views.view_of_folder(state) == view
    (state / "runs" / "007").mkdir()
    (state / "runs" / "other" / "01").mkdir()
    (state / "runs" / "other" / "99999999999999999999").mkdir()
    (state / "runs" / "other" / "2").write_text("no folder")
    look(backend, {"other-1"})
    limits = state / "limits.json"
    limits.write_bytes(b'{"group": "students", "quota": {"pods": 1}}')
    damage(limits, kind, 3)
    monkeypatch.setenv("TFCLUSTER_LIMITS", str(limits))
    try:
        backend.options()
        ClusterManager(backend).plan(cell="pass", workers=2, ps=0)
    except TFClusterError as error:
        assert "limits.json" in str(error)
    monkeypatch.delenv("TFCLUSTER_LIMITS")


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    """The reader of state files accepts a valid file, and names each kind of damage."""
    file = tmp_path / "stop.json"
    state_files.write(file, b'{"reason": "enough"}')
    assert state_files.load(file, Stop) == Stop(reason="enough")
    for kind in ("nested", "huge", "pipe", "endless", "link", "dangling", "folder", "socket"):
        damage(file, kind)
        with pytest.raises(state_files.Unreadable):
            state_files.load(file, Stop)
        # `write` replaces any kind of file at this path.
        state_files.write(file, b'{"reason": "enough"}')
        assert state_files.load(file, Stop) == Stop(reason="enough")
    link = tmp_path / ".stop.json.link"
    link.symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("mine")
    link.rename(tmp_path / f".stop.json.{threading.get_native_id()}")
    # `write` does not follow a link at the name of its temporary file.
    state_files.write(file, b"{}")
    assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.parametrize("kind", ["cut", "nested", "huge", "pipe", "endless", "folder", "socket"])
def test_a_task_that_is_told_nothing_says_so(kind: str, tmp_path: Path) -> None:
    """A task with a damaged description ends at once; its message names the description's path."""
    file = tmp_path / "task.json"
    file.write_text('{"version": 1, "counts": {"worker": 1}, "mode": "between-graph"}')
    damage(file, kind)
    task = subprocess.run(
        [sys.executable, "-S", "-E", str(RUNTIME / "task.py"), str(file), "worker-0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert task.returncode == 1
    assert f"cannot read the task's description {file}" in task.stdout
    assert "Traceback" not in task.stdout + task.stderr
