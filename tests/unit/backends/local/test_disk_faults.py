"""Disks that are full, records that are missing or invalid, folders that cannot be created."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
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
from support.project import ROOT, TESTS

from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.local.run_store import Store
from tfcluster_magic.errors import PreflightRefused, TFClusterError
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import Phase, Program, Reason, Replicas, ReplicaSet, Spec, Stop, TFCluster

UNTIL_TOLD = """
import os, time
print("up", flush=True)
while not os.path.exists(os.environ["TFCLUSTER_OUTPUT_DIR"] + "/go"):
    time.sleep(0.02)
"""


def test_a_status_that_cannot_be_written_is_written_later(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """While the state folder is not writable, a run continues; its status is written later."""
    run = launch(UNTIL_TOLD, worker=1)
    folder = folder_of(run)
    # A folder in place of the status's temporary file blocks writes by any account, also by root.
    in_the_way = folder.path / f".status.json.{supervisor_of(run)}"
    wait_for(lambda: _made(in_the_way))
    _tell(run)
    wait_for(lambda: not tasks_of(run))
    wait_for(lambda: b"cannot write the status" in folder.supervisor_log.read_bytes())
    assert not backend.get("digits").status.phase.is_final
    in_the_way.rmdir()
    assert over(backend, "digits").status.phase is Phase.SUCCEEDED


def test_the_end_of_a_task_is_known_without_its_termination_message(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """The end of a task is known even if the task could not write its termination message, as on a
    full disk.
    """
    text = """
import signal
if os.environ["TFCLUSTER_ATTEMPT"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run = launch(UNTIL_TOLD + text, worker=1)
    wait_for(is_up(backend))
    (folder_of(run).tasks / "worker-0.exit.json").mkdir()
    _tell(run)
    status = over(backend, "digits").status
    assert status.phase is Phase.SUCCEEDED
    assert "worker-0 was killed from outside (SIGKILL)" in status.events[-2].message


def _tell(run: TFCluster) -> None:
    """Let the program of UNTIL_TOLD continue."""
    Path(run.status.paths["output"], "go").touch()


def _made(folder: Path) -> bool:
    try:
        folder.mkdir()
    except FileExistsError:
        return False  # the supervisor is writing this file at the moment
    return True


def test_a_stop_that_cannot_be_written_is_told_directly(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A run can be stopped on a full disk."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    (folder_of(run).path / f".stop.json.{os.getpid()}").mkdir()
    backend.stop("digits", Stop(reason="the disk is full"))
    status = over(backend, "digits").status
    assert status.phase is Phase.STOPPED
    assert "the disk is full" in status.message


def test_a_record_that_is_removed_by_hand_ends_its_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A run ends if its folder was removed."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    store = Store(backend.state_dir)
    pid = supervisor_of(run)
    store.remove(folder_of(run))
    wait_for(lambda: not tasks_of(run) and not words_of(pid))


def test_a_log_folder_that_cannot_be_made(
    launch: Launch, backend: LocalBackend, own_folders: Path
) -> None:
    """If the log folder cannot be created, the refusal names the folder, and no run is left."""
    (own_folders / "tfcluster").mkdir(exist_ok=True)
    (own_folders / "tfcluster" / "log").write_text("in the way")
    with pytest.raises(PreflightRefused, match=r"is not a folder.*TFCLUSTER_LOG_DIR"):
        launch(SLEEP, worker=1)
    assert backend.list() == []
    assert [*(own_folders / "state" / "runs").glob("*")] == []


def test_a_state_folder_that_cannot_be_made(launch: Launch, own_folders: Path) -> None:
    """If the state folder cannot be created, the launch reports the reason and what to do."""
    (own_folders / "state").write_text("in the way")
    with pytest.raises(TFClusterError, match="TFCLUSTER_STATE_DIR"):
        launch(SLEEP, worker=1)
    # otherwise, this file would be in the way of the fixture, which lists the runs after the test
    (own_folders / "state").unlink()


def test_logs_are_found_in_the_output_folder(backend: LocalBackend, launch: Launch) -> None:
    """If the log in the state folder is gone, the copy next to the checkpoints is shown."""
    run = launch("print('hello')", worker=1)
    over(backend, "digits")
    (folder_of(run).tasks / "worker-0.log").unlink()
    assert [line.text for line in backend.logs("digits") if line] == ["hello"]


def test_a_record_of_rubbish_hides_nothing_else(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Every command ignores files that are not records, and names damaged records."""
    run = launch("pass", worker=1)
    over(backend, "digits")
    runs = backend.state_dir / "runs"
    (runs / "half" / "1").mkdir(parents=True)
    (runs / "newer" / "1").mkdir(parents=True)
    (runs / "newer" / "1" / "record.json").write_text('{"metadata": {}, "soul": 1}')
    (runs / "digits" / "notes.txt").write_text("mine")
    (runs / "file").write_text("mine")
    folder_of(run).status_file.write_text("{")
    # The run has ended, but its record counts as lost only after the supervisor has exited.
    wait_for(lambda: backend.get("digits").status.reason is Reason.SUPERVISOR_LOST)
    found = {cluster.metadata.name: cluster.status.reason for cluster in backend.list()}
    assert found == {"digits-1": Reason.SUPERVISOR_LOST, "newer-1": Reason.RECORD_DAMAGED}
    assert launch("pass", worker=1).metadata.run == 2


def test_a_list_of_fifty_runs_is_quick_to_read(backend: LocalBackend, launch: Launch) -> None:
    """Listing ended runs only reads their files: it takes no lock and checks no process."""
    run = launch("pass", worker=1)
    over(backend, "digits")
    record = folder_of(run).record_file.read_bytes()
    status = folder_of(run).status_file.read_bytes()
    output = run.status.paths["output"].encode()
    for number in range(2, 51):
        folder = Store(backend.state_dir).folder("digits", number)
        folder.path.mkdir(parents=True)
        named = record.replace(b'"digits-1"', f'"digits-{number}"'.encode())
        folder.record_file.write_bytes(named.replace(b'"run":1', f'"run":{number}'.encode()))
        folder.status_file.write_bytes(status.replace(output, output[:-1] + b"%d" % number))
    assert len(backend.list()) == 50
    assert not any(Store(backend.state_dir).folder("digits", 50).path.glob("lock"))


def test_resuming_from_what_is_gone(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """A run can resume from the output folder of a run without a record; if the folder is missing,
    too, the launch is refused.
    """
    spec = Spec(
        program=program_of("import os\nprint(os.environ['TFCLUSTER_RESUME_FROM'])\n"),
        replicas=ReplicaSet(worker=Replicas(count=1)),
        resume_from="digits-1",
    )
    with pytest.raises(PreflightRefused, match="digits-1"):
        backend.create(LaunchRequest(cluster="digits", spec=spec))
    (backend.log_dir / "digits" / "1").mkdir(parents=True)
    assert backend.create(LaunchRequest(cluster="digits", spec=spec)).metadata.run == 2
    over(backend, "digits")
    told = [line.text for line in backend.logs("digits") if line]
    assert told[-1] == str(backend.log_dir / "digits" / "1")


def on_a_small_disk(story: str, state: Path, size: str) -> dict[str, Any]:
    """Run a scenario of full_disk.py on a small disk, and return its result."""
    state.mkdir()
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mount = f'mount -t tmpfs -o {size} none "$TFCLUSTER_STATE_DIR" && exec "$@"'
    script = TESTS / "support" / "full_disk.py"
    told = subprocess.run(
        [*alone, "sh", "-c", mount, "sh", sys.executable, str(script), story],
        env={**os.environ, "TFCLUSTER_RECORD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def assert_deleted(deleted: dict[str, Any]) -> None:
    assert deleted["left"] == []
    assert deleted["hours"], "its hours are kept"
    assert "No space left on device" in deleted["refused"]
    assert "TFCLUSTER_STATE_DIR" in deleted["refused"]


def test_a_program_that_ends_on_a_full_disk(own_folders: Path) -> None:
    """A run can end on a disk without a free byte; its end is visible, and `status` names the full
    disk.
    """
    state = own_folders / "state"
    found = on_a_small_disk("end", state, "size=2m")
    before, after = found["before"], found["after"]
    assert before["full"]
    assert f"No space left on the disk mounted at {state}" in before["text"]
    assert (after["phase"], after["reason"]) == ("Succeeded", "Completed")
    assert after["released"]
    assert f"No space left on the disk mounted at {state}" in after["text"]
    assert after["logs"][0] == "up"
    assert_deleted(found["deleted"])


@pytest.mark.parametrize(
    ("story", "size"), [("stop", "size=2m"), ("inodes", "size=2m,nr_inodes=100")]
)
def test_a_run_is_stopped_on_a_full_disk(story: str, size: str, own_folders: Path) -> None:
    """A run can be stopped on a disk without a free byte, or without a free inode."""
    found = on_a_small_disk(story, own_folders / "state", size)
    assert found["after"]["phase"] == "Stopped"
    assert found["after"]["released"]
    assert "no room" in found["after"]["text"]
    assert found["before"]["full"]
    assert found["deleted"]["left"] == []


def test_a_running_run_is_deleted_on_a_full_disk(own_folders: Path) -> None:
    """On a disk without a free byte, `delete` ends a run and removes it, and its hours are kept."""
    assert_deleted(on_a_small_disk("delete", own_folders / "state", "size=2m"))
