"""Clients, supervisors and folders that disappear in the middle of an operation."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.local_runs import (
    SLEEP,
    Launch,
    Wait,
    folder_of,
    is_up,
    over,
    supervisor_of,
    tasks_of,
    words_of,
)

from tfcluster_magic import paths, state_files
from tfcluster_magic.backends.local import processes, task_processes
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.local.run_store import Store
from tfcluster_magic.spec import Phase, Reason, Stop, TaskState, TFCluster, TypeCounts, to_json

IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


def test_no_task_of_a_lost_run_is_told_to_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Each task of a run that lost its supervisor is reported and counted as ended."""
    run = launch(SLEEP, worker=2)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    os.kill(supervisor_of(run), signal.SIGKILL)
    status = over(backend, "digits").status
    assert [task.state for task in status.attention] == [TaskState.FAILED] * 2
    assert status.counts["worker"] == TypeCounts(desired=2, failed=2)


def test_tasks_of_a_stop_that_lost_its_supervisor_are_stopped(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Tasks that were being stopped when their supervisor was killed do not count as failed."""
    run = launch(IGNORES, grace=600.0, worker=1)
    wait_for(is_up(backend))
    backend.stop("digits", Stop())
    wait_for(lambda: backend.get("digits").status.phase is Phase.STOPPING)
    os.kill(supervisor_of(run), signal.SIGKILL)
    status = over(backend, "digits").status
    assert [task.state for task in status.attention] == [TaskState.STOPPED]
    assert status.counts["worker"] == TypeCounts(desired=1, stopped=1)


def test_half_written_files_of_a_lost_run_go(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Files that a supervisor and a task were writing when they were killed are removed."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    folder = folder_of(run)
    half = [
        folder.path / ".status.json.4000001",
        folder.path / ".task.json.4000001",
        folder.tasks / "worker-0.exit.json.4000002",
    ]
    for path in half:
        path.write_text('{"phase":')
    os.kill(supervisor_of(run), signal.SIGKILL)
    assert over(backend, "digits").status.reason is Reason.SUPERVISOR_LOST
    assert [path for path in half if path.exists()] == []


def test_a_stop_whose_client_died_is_carried_out(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """If a client writes a stop and dies before it wakes the supervisor, the run is stopped
    nevertheless.
    """
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    state_files.write(folder_of(run).stop_file, to_json(Stop(reason="enough")))
    wait_for(lambda: backend.get("digits").status.released_at is not None)
    status = backend.get("digits").status
    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)


def test_a_second_stop_knocks_again(backend: LocalBackend, launch: Launch, wait_for: Wait) -> None:
    """If the first stop did not wake the supervisor, a second stop does, so that the run ends at
    once.
    """
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    folder = folder_of(run)
    os.kill(supervisor_of(run), signal.SIGSTOP)
    state_files.write(folder.stop_file, to_json(Stop(reason="enough")))
    knocks = os.open(folder.control, os.O_RDONLY | os.O_NONBLOCK)
    try:
        backend.stop("digits", Stop())
        assert os.read(knocks, 10) == b"\n"
    finally:
        os.close(knocks)
        os.kill(supervisor_of(run), signal.SIGCONT)
    assert over(backend, "digits").status.phase is Phase.STOPPED


def test_a_new_run_in_the_place_of_a_removed_one(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A run whose folder was removed ends, although the next run has its number and its folder."""
    first = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    for folder in (folder_of(first).path, Path(first.status.paths["output"])):
        while folder.exists():  # repeated, because tasks of the run may write during the removal
            shutil.rmtree(folder, ignore_errors=True)
    second = launch(SLEEP, worker=1)
    assert second.metadata.name == first.metadata.name
    wait_for(lambda: not tasks_of(first))
    wait_for(lambda: len(_supervisors(second)) == 1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    addresses = backend.get("digits").status.addresses
    assert addresses == second.status.addresses != first.status.addresses
    wait_for(lambda: len(tasks_of(second)) == 2)


def test_a_launch_that_is_interrupted_and_repeated(
    backend: LocalBackend, launch: Launch, wait_for: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a launch is interrupted by Ctrl-C while the supervisor starts, and is repeated at once,
    there is exactly one run.
    """

    def interrupted(ready: int) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tfcluster_magic.backends.local.launch._is_readable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            launch(SLEEP, worker=1)
    run = launch(SLEEP, worker=1)
    wait_for(lambda: len(_supervisors(run)) == 1)
    wait_for(is_up(backend))
    assert [known.metadata.uid for known in backend.list()] == [run.metadata.uid]
    assert backend.get("digits").status.addresses == run.status.addresses
    assert len(tasks_of(run)) == 2


def _supervisors(run: TFCluster) -> list[int]:
    """Return all supervisor processes of this run's folder, but not their tasks."""
    mark = {os.fsencode(folder_of(run).path), b"-I"}
    return [pid for pid in processes.snapshot() if mark <= {*words_of(pid)}]


def killed_in(function: str, verb: str) -> None:
    """Run a client that is killed when it enters `function` during `verb`."""
    owner, _dot, name = function.rpartition(".")
    text = f"""
import os, pkgutil, signal
from tfcluster_magic.runs.manager import ClusterManager
owner = pkgutil.resolve_name("{owner}")
owner.{name} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
manager = ClusterManager(backend_name="local")
manager.{verb}
"""
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == -signal.SIGKILL


def test_a_killed_launch_leaves_no_folder(
    backend: LocalBackend, launch: Launch, own_folders: Path
) -> None:
    """After a launch was killed half-way, the next launch also removes the empty log folder."""
    killed_in(
        "tfcluster_magic.backends.local.run_store.Store.commit",
        "launch(cell='pass', name='half', workers=1)",
    )
    made = [own_folders / "state" / "runs" / "half", own_folders / "tfcluster" / "log" / "half"]
    assert [folder.exists() for folder in made] == [True, True]
    launch("pass", worker=1)
    assert [folder.exists() for folder in made] == [False, False]


def test_a_killed_deletion_leaves_no_folder(backend: LocalBackend, launch: Launch) -> None:
    """After a deletion was killed half-way, the next launch removes the rest."""
    run = launch("pass", name="half", worker=1)
    over(backend, "half")
    killed_in("tfcluster_magic.state_files.remove_tree", "delete('half')")
    assert folder_of(run).path.parent.exists()
    launch("pass", worker=1)
    assert not folder_of(run).path.parent.exists()


def test_a_run_without_logs_leaves_no_folder(backend: LocalBackend, own_folders: Path) -> None:
    """A run whose tasks never wrote is deleted with its empty log folder."""
    killed_in(
        "tfcluster_magic.backends.local.launch.start_supervisor",
        "launch(cell='pass', name='digits', workers=1)",
    )
    status = backend.get("digits").status
    assert status.reason is Reason.SUPERVISOR_LOST
    assert "launch was ended half-way" in status.message
    assert "tfcluster rerun digits-1" in status.message
    backend.delete("digits")
    assert [*(own_folders / "tfcluster" / "log").glob("*")] == []


def test_two_threads_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If threads of one server stop the same run at once, each writes a temporary file of its own,
    so that neither write fails.
    """
    both = threading.Barrier(2, timeout=90)
    really = os.replace

    def together(*paths: Path) -> None:
        both.wait()
        really(*paths)

    monkeypatch.setattr(state_files.os, "replace", together)
    with ThreadPoolExecutor(2) as pool:
        writes = [
            pool.submit(state_files.write, tmp_path / "stop.json", b"x" * n) for n in (10, 20)
        ]
    assert [write.exception() for write in writes] == [None, None]
    assert (tmp_path / "stop.json").read_bytes() in (b"x" * 10, b"x" * 20)
    assert not [*tmp_path.glob(".stop.json.*")]


def test_a_run_of_which_nothing_can_be_read_can_be_resumed_from(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """After a power failure that damaged the status and the description of a run, other runs can
    resume from this run.
    """
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    folder = folder_of(run)
    os.kill(supervisor_of(run), signal.SIGKILL)
    wait_for(lambda: not tasks_of(run))
    folder.status_file.write_bytes(b"")
    folder.task_file.write_bytes(b"")
    assert "damaged" in over(backend, "digits").status.message
    spec = replace(run.spec, resume_from="digits-1")
    assert backend.preflight(spec).problems == ()


def test_a_launch_beside_one_that_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch that is undone does not remove the folder of another launch with the same name."""
    really, taken = paths.private, []

    def private(folder: Path) -> Path:
        made = really(folder)
        # simulates an undone launch, which removes the folder because it takes the folder for its
        # own
        if not taken:
            taken.append(made)
            made.rmdir()
        return made

    monkeypatch.setattr(paths, "private", private)
    run, folder = Store(tmp_path / "state").allocate("digits", tmp_path / "log")
    assert run == 1
    assert folder.path.is_dir()
    assert taken == [folder.path.parent]


def test_last_lines_of_a_killed_task_are_the_programs(tmp_path: Path) -> None:
    """If a task could not report its end, its last lines are read from its log, without what
    TensorFlow itself logged, unless there is nothing else.
    """
    log = tmp_path / "worker-0.log"
    dump = ["I0000 00:00:1.2 4 a.cc:1] Options: goo.gle/debugstr  ", "experimental {", "}", ""]
    log.write_text("\n".join(["step 1", "step 2", *dump * 5]))
    assert task_processes.last_log_lines(log) == ("step 1", "step 2")
    log.write_text("\n".join(dump))
    assert task_processes.last_log_lines(log)[0] == dump[0]
