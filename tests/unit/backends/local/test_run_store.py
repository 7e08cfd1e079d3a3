"""Records as files: names, numbers, locks, and the effects of partial writes and foreign files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tfcluster_magic import state_files
from tfcluster_magic.backends import run_names
from tfcluster_magic.backends.local import lost_supervisor
from tfcluster_magic.backends.local.run_store import RunFolder, Store
from tfcluster_magic.errors import BackendUnavailable, NameTaken, TFClusterError
from tfcluster_magic.quota import ledger
from tfcluster_magic.spec import (
    Annotations,
    Lifecycle,
    Metadata,
    Phase,
    Reason,
    Spec,
    Status,
    Stop,
    TFCluster,
    Usage,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "state")


def record(store: Store, cluster: str = "digits", **status: object) -> RunFolder:
    """Record a run, which is Running unless `status` says otherwise."""
    run, folder = store.allocate(cluster, Path("/nonexistent"))
    metadata = Metadata(name=f"{cluster}-{run}", cluster=cluster, run=run, uid="u", created_at=1.0)
    folder.write_status(Status(**{"phase": Phase.RUNNING, "reason": Reason.RUNNING, **status}))  # type: ignore[arg-type]
    store.commit(folder, metadata, Spec(lifecycle=Lifecycle(keep_for=60.0)))
    return folder


def loaded(folder: RunFolder) -> TFCluster:
    """Return the run in a folder, which must exist."""
    cluster = folder.load()
    assert cluster is not None
    return cluster


def test_a_run_is_what_was_recorded(store: Store) -> None:
    """A run is read back as it was written, with a stop request as part of its spec."""
    folder = record(store)
    assert loaded(folder).metadata.name == "digits-1"
    assert loaded(folder).status.phase is Phase.RUNNING
    state_files.write(folder.stop_file, b'{"reason": "enough"}')
    assert loaded(folder).spec.stop == Stop(reason="enough")


def test_the_note_of_an_earlier_version(store: Store) -> None:
    """A note saved by an earlier version is shown until the next note, tag or display name."""
    folder = record(store)
    (folder.path / "note.json").write_bytes(b'"rate 0.1"')
    assert loaded(folder).metadata.annotations == Annotations(note="rate 0.1")
    state_files.write(folder.annotations_file, b'{"tags": ["baseline"]}')
    assert loaded(folder).metadata.annotations == Annotations(tags=("baseline",))


def test_a_folder_without_a_record_is_no_run(store: Store) -> None:
    """A partial launch is skipped until its record exists."""
    _, folder = store.allocate("digits", Path("/nonexistent"))
    folder.write_status(Status(phase=Phase.QUEUED, reason=Reason.QUEUED))
    assert folder.load() is None
    assert next(iter(store.folders())).path == folder.path


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"phase": "Flying"}'])
def test_a_status_that_cannot_be_read(store: Store, content: bytes) -> None:
    """A damaged status does not hide its run."""
    folder = record(store)
    folder.status_file.write_bytes(content)
    assert not loaded(folder).status.phase.is_final


def test_a_run_of_a_newer_version(store: Store) -> None:
    """A record of a newer version is read; fields that are unknown, at any depth, are left out."""
    folder = record(store, phase=Phase.SUCCEEDED, reason=Reason.COMPLETED, released_at=5.0)
    for file, change in (
        (folder.record_file, lambda d: d["spec"].update(schedule="daily", mode="pipelined")),
        (folder.record_file, lambda d: d["spec"]["lifecycle"].update(patience=3)),
        (folder.status_file, lambda d: d.update(quality="good", heals="many")),
        (folder.status_file, lambda d: d.update(counts={"worker": {"desired": 1, "asleep": 1}})),
    ):
        content = json.loads(file.read_bytes())
        change(content)
        file.write_bytes(json.dumps(content).encode())
    before = folder.status_file.read_bytes()
    run = lost_supervisor.load_run(folder)
    assert run is not None
    assert run.status.phase is Phase.SUCCEEDED
    assert run.status.released_at == 5.0
    assert run.spec.lifecycle.keep_for == 60.0
    assert folder.status_file.read_bytes() == before, "an ended run is not ended again"


@pytest.mark.parametrize("kind", [Stop, Status, dict[str, object]])
@pytest.mark.parametrize("content", ["[]", "3", '{"at": {}}', "{", '"x"'])
def test_something_else_than_was_written(tmp_path: Path, kind: type, content: str) -> None:
    """A file with foreign content counts as missing, and is never an error."""
    (tmp_path / "file").write_text(content)
    found = state_files.read(tmp_path / "file", kind)
    assert found in (None, Stop(), {"at": {}})


def test_an_ended_run_whose_status_is_damaged(store: Store) -> None:
    """An ended run with a damaged status is reported as damaged, not as killed; its output is
    known.
    """
    folder = record(store)
    state_files.write(folder.task_file, b'{"outputDir": "/user/log/digits/1"}')
    folder.status_file.write_bytes(b"{")
    run = lost_supervisor.load_run(folder)
    assert run is not None
    assert "damaged" in run.status.message
    assert run.status.paths["output"] == "/user/log/digits/1"


def test_what_a_lost_run_held_is_counted_to_its_last_sign(store: Store) -> None:
    """The tasks of a killed supervisor died with it. Their resources count as used only until the
    last output of the tasks.
    """
    held = Usage(at=1000.0, holding={"worker": 2}, days={"1970-01-01": {"worker": 5.0}})
    folder = record(store, phase=Phase.RUNNING, reason=Reason.RUNNING, usage=held)
    folder.tasks.mkdir(exist_ok=True)
    (folder.tasks / "worker-0.log").write_text("step 1")
    os.utime(folder.tasks / "worker-0.log", (1060.0, 1060.0))
    run = lost_supervisor.load_run(folder)
    assert run is not None
    assert ledger.seconds_by_type(run.status.usage, 9e9) == {"worker": 125.0}


def test_numbers_go_up_and_are_not_given_twice(store: Store, tmp_path: Path) -> None:
    """A new run's number is one above the highest existing number, even if only logs are left of
    the run with that number.
    """
    assert store.allocate("digits", tmp_path)[0] == 1
    assert store.allocate("digits", tmp_path)[0] == 2
    (tmp_path / "digits" / "7").mkdir(parents=True)
    (tmp_path / "digits" / "checkpoints").mkdir()
    assert store.allocate("digits", tmp_path)[0] == 8
    assert store.numbers("digits") == [8, 2, 1]


def test_a_number_is_not_given_again_after_its_run_was_removed(
    store: Store, tmp_path: Path
) -> None:
    """The number of a run is never given again, however the run is deleted and whether or not it
    used resources. The number of a failed launch is given again.
    """
    folder = record(store)
    run = int(folder.path.name)
    store.remove(folder)
    assert store.next_number("digits", tmp_path) == run + 1
    again, half = store.allocate("digits", tmp_path)
    store.undo(half, tmp_path)
    assert (again, store.next_number("digits", tmp_path)) == (run + 1, run + 1)
    assert store.next_number("other", tmp_path) == 1
    (store.state_dir / "hours.json").write_text("{")
    assert store.next_number("digits", tmp_path) == 1, "nobody can know any more"


def test_foreign_files_are_no_runs(store: Store) -> None:
    """Folders whose names cannot be names of runs are ignored."""
    folder = record(store)
    (store.runs_dir / "Not a name").mkdir()
    (store.runs_dir / "file").write_text("")
    (store.runs_dir / "digits" / "x1").mkdir()
    (store.runs_dir / "digits" / "٣").mkdir()  # a digit, but not ASCII
    assert [found.path for found in store.folders()] == [folder.path]
    assert [*Store(store.state_dir / "missing").folders()] == []


def test_names(store: Store) -> None:
    """A given name in use is refused; a derived name in use gets a suffix, however many names are
    taken, and the launch says so.
    """
    run = loaded(record(store))
    assert run_names.choose_name("other", True, {"digits": run}) == ("other", ())
    with pytest.raises(NameTaken, match=r"digits-1 is still running: .*tfcluster stop digits"):
        run_names.choose_name("digits", True, {"digits": run})
    taken = {"digits": run}
    for _ in range(30):
        name, (told,) = run_names.choose_name("digits", False, taken)
        assert str(told).startswith(f"digits-1 has not ended, so this cluster is named {name}; ")
        taken[name] = run
    assert [*taken][:3] == ["digits", "digits-b", "digits-c"]
    assert [*taken][25:28] == ["digits-z", "digits-bb", "digits-bc"]
    long = "a" * 40
    assert run_names.choose_name(long, False, {long: run})[0] == "a" * 38 + "-b"


def test_the_launch_lock_is_for_one_at_a_time(store: Store) -> None:
    """A second launch waits until the first has its name and number."""
    order = []

    def second() -> None:
        with store.launch_lock():
            order.append("second")

    with store.launch_lock():
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_a_launch_that_hangs_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch does not wait forever for another launch; after a while, its error names the holder
    of the lock.
    """
    monkeypatch.setattr("tfcluster_magic.backends.local.run_store.LOCK_TIMEOUT", 0.1)
    with (
        store.launch_lock(),
        pytest.raises(BackendUnavailable, match=f"process {os.getpid()}"),
        store.launch_lock(),
    ):
        pass


def test_the_launch_lock_of_a_killed_launch_is_free(store: Store) -> None:
    """A killed launch releases the lock."""
    text = f"""
import os, signal
from pathlib import Path
from tfcluster_magic.backends.local.run_store import Store
with Store(Path({str(store.state_dir)!r})).launch_lock():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", text], check=False)
    with store.launch_lock():
        assert store.state_dir.stat().st_mode & 0o777 == 0o700


def test_a_runs_lock_goes_over_to_a_child(store: Store) -> None:
    """A child process that inherits a run's lock keeps it after the parent has released it."""
    folder = record(store)
    lock_fd = folder.lock()
    assert lock_fd is not None
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock_fd,)
    )
    os.close(lock_fd)
    assert folder.lock() is None
    child.communicate(b"\n")
    again = folder.lock()
    assert again is not None
    os.close(again)


def test_waking_nobody(store: Store) -> None:
    """Waking a missing supervisor returns False and does not block."""
    folder = record(store)
    assert not folder.wake()
    os.mkfifo(folder.control)
    assert not folder.wake()


def test_ended_records_are_kept_as_long_as_asked(store: Store) -> None:
    """A sweep removes ended runs whose `keepFor` has passed, and keeps active runs."""
    now = time.time()
    old = record(store, phase=Phase.SUCCEEDED, released_at=now - 61)
    young = record(store, phase=Phase.SUCCEEDED, released_at=now - 59)
    active = record(store, started_at=now - 10**6)
    with store.launch_lock():
        store.sweep(Path("/nonexistent"))
    assert [f.path.exists() for f in (old, young, active)] == [False, True, True]


def test_what_killed_launches_left_is_swept(store: Store) -> None:
    """A sweep removes what killed launches and deletions left, but no foreign files."""
    half = store.allocate("half", Path("/nonexistent"))[1]
    lock_fd = half.lock()
    empty = store.allocate("empty", Path("/nonexistent"))[1]
    foreign = store.allocate("foreign", Path("/nonexistent"))[1]
    (foreign.path / "notes.txt").write_text("mine")
    removed = store.runs_dir / "half" / ".removed-9-1"
    removed.mkdir()
    with store.launch_lock():
        store.sweep(Path("/nonexistent"))
        assert half.path.exists(), "that launch is under way"
        assert lock_fd is not None
        os.close(lock_fd)
        store.sweep(Path("/nonexistent"))
    assert not half.path.exists()
    assert not empty.path.exists()
    assert not removed.exists()
    assert foreign.path.exists()


def test_a_removed_run_takes_its_empty_folder_along(store: Store) -> None:
    """Deleting the only run of a cluster also removes the run's snapshot, whose folder is
    read-only, and the cluster's folder, which is empty then.
    """
    folder = record(store)
    folder.program.mkdir()
    (folder.program / "train.py").write_text("pass")
    folder.program.chmod(0o500)
    store.remove(folder)
    assert [*store.runs_dir.iterdir()] == []


def test_a_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    """A write that fails leaves the old content, and no other file."""
    target = tmp_path / "status.json"
    state_files.write(target, b"old")
    assert target.stat().st_mode & 0o777 == 0o600
    (tmp_path / f".status.json.{os.getpid()}").mkdir()
    with pytest.raises(OSError, match="directory"):
        state_files.write(target, b"new")
    assert target.read_bytes() == b"old"


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """If the state folder cannot be created, the error names the variable that sets another
    folder.
    """
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(TFClusterError, match="TFCLUSTER_STATE_DIR"),
        Store(tmp_path / "file" / "state").launch_lock(),
    ):
        raise AssertionError("it cannot be locked")


def test_a_record_that_ended_before_it_was_launched_is_kept(store: Store) -> None:
    """A run whose time of release is damaged, and lies before its launch, is kept for as long as
    other runs.
    """
    run = loaded(record(store, phase=Phase.STOPPED, released_at=1.5))
    launched = replace(run, metadata=replace(run.metadata, created_at=1000.0))
    assert not run_names.is_record_expired(launched, 1030.0)
    assert run_names.is_record_expired(launched, 1061.0)
