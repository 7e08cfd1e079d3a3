"""The life of a supervisor: locks, signals, and runs that lost their supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
)

from tfcluster_magic.backends.local import processes
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import BackendUnavailable
from tfcluster_magic.spec import Phase, Program, Reason, Replicas, ReplicaSet, Spec, Stop, to_json


def test_a_killed_supervisor_takes_its_tasks_with_it(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """After `kill -9` of the supervisor, no task is left, even if nobody reads the run."""
    text = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\n" + SLEEP
    run = launch(text, worker=2)
    wait_for(is_up(backend, 2))
    assert len(tasks_of(run)) == 6  # for each worker: task.py, the program and the program's child
    os.kill(supervisor_of(run), signal.SIGKILL)
    wait_for(lambda: not tasks_of(run))


def test_a_killed_supervisor_is_told_by_whoever_looks_first(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """The first reader of a run without its supervisor records the run's end, once, with a helpful
    message.
    """
    run = launch(SLEEP, worker=2)
    wait_for(is_up(backend, 2))
    os.kill(supervisor_of(run), signal.SIGKILL)
    readers = [LocalBackend() for _ in range(8)]
    with ThreadPoolExecutor(len(readers)) as pool:
        found = list(pool.map(lambda reader: over(reader, "digits"), readers))
    assert all(seen == found[0] for seen in found)
    status = found[0].status
    assert (status.phase, status.reason) == (Phase.FAILED, Reason.SUPERVISOR_LOST)
    assert "was killed" in status.message
    assert "tfcluster rerun digits-1" in status.message
    assert status.counts["worker"].failed == 2
    assert [e.reason for e in status.events].count(Reason.SUPERVISOR_LOST.value) == 1
    assert [line.text for line in backend.logs("digits") if line] == ["up", "up"]
    assert launch("pass", worker=1).metadata.run == 2


def test_a_stop_that_lost_its_supervisor_is_a_stop(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A run that was being stopped when its supervisor was killed is stopped."""
    text = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    run = launch(text, grace=600.0, worker=1)
    wait_for(is_up(backend))
    backend.stop("digits", Stop())
    wait_for(lambda: backend.get("digits").status.phase is Phase.STOPPING)
    os.kill(supervisor_of(run), signal.SIGKILL)
    assert over(backend, "digits").status.phase is Phase.STOPPED


def test_a_reboot_is_told_as_one(backend: LocalBackend, launch: Launch, wait_for: Wait) -> None:
    """A run from an earlier boot of the machine says that the machine was restarted."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    folder_of(run).lock_file.write_text(str(uuid.uuid4()))
    os.kill(supervisor_of(run), signal.SIGKILL)
    assert "machine was restarted" in over(backend, "digits").status.message


def test_sigterm_to_the_supervisor_is_a_stop(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """A supervisor that gets SIGTERM, as at a shutdown, stops its run cleanly."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    os.kill(supervisor_of(run), signal.SIGTERM)
    status = over(backend, "digits").status
    assert status.phase is Phase.STOPPED
    assert "SIGTERM" in status.message


def test_a_run_outlives_what_launched_it(
    backend: LocalBackend, program_of: Callable[..., Program], wait_for: Wait, tmp_path: Path
) -> None:
    """A run continues when the whole session that launched it is killed."""
    spec = Spec(program=program_of(SLEEP), replicas=ReplicaSet(worker=Replicas(count=1)))
    (tmp_path / "spec.json").write_bytes(to_json(spec))
    text = f"""
import msgspec, sys, time
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.spec import Spec
spec = msgspec.json.decode(open({str(tmp_path / "spec.json")!r}, "rb").read(), type=Spec)
LocalBackend().create(LaunchRequest(cluster="digits", spec=spec))
print("launched", flush=True)
time.sleep(600)
"""
    kernel = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=True
    )
    with kernel:
        assert kernel.stdout is not None
        assert kernel.stdout.readline() == b"launched\n"
        os.killpg(kernel.pid, signal.SIGKILL)
    wait_for(is_up(backend))
    assert backend.get("digits").status.phase in (Phase.STARTING, Phase.RUNNING)


def test_a_starting_supervisor_is_not_taken_for_lost(backend: LocalBackend, launch: Launch) -> None:
    """Readers that read all the time while a run starts never report its supervisor as lost."""
    seen: set[Reason] = set()
    done = threading.Event()

    def look() -> None:
        other = LocalBackend()
        while not done.is_set():
            seen.update(run.status.reason for run in other.list())

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(3):
        launch("pass", name=f"run{chr(97 + number)}", worker=1)
    for run in backend.list():
        over(backend, run.metadata.name)
    done.set()
    for reader in readers:
        reader.join()
    assert seen <= {Reason.QUEUED, Reason.STARTING, Reason.RUNNING, Reason.COMPLETED}
    assert Reason.COMPLETED in seen


def test_a_supervisor_that_cannot_start_is_told_with_its_lastwords_of(
    backend: LocalBackend, launch: Launch, own_folders: Path
) -> None:
    """If the supervisor fails at once, the launch reports the reason, and no run is left."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The 60 ports are more than the supervisor can open, while the launch itself needs fewer files.
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, before[1]))
    try:
        with pytest.raises(BackendUnavailable, match="Too many open files"):
            launch(SLEEP, worker=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert backend.list() == []
    assert [*(own_folders / "state" / "runs").glob("*")] == []
    assert [*(own_folders / "tfcluster" / "log").glob("*")] == []


def test_an_idle_supervisor_sleeps_and_is_small(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """While nothing happens, a supervisor never wakes up, and it uses less than 30 MiB of
    memory.
    """
    run = launch(SLEEP, worker=1)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    pid = supervisor_of(run)
    wait_for(lambda: _asleep(pid))
    assert processes.pss([pid]) < 30 * 2**20


def _asleep(pid: int) -> bool:
    before = _wake_ups(pid)
    time.sleep(1.5)
    return _wake_ups(pid) == before


def _wake_ups(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("voluntary_ctxt_switches"))
