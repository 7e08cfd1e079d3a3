"""The fault matrix: faults of real processes, and the messages for the user.

After every fault the phase and the named task are right, a sentence gives the cause, logs are kept,
and no process or control group is left (`real_runs.Runs.close` checks this too).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from support.faulty_programs import EATS, FAULTS, IS, Fault
from support.real_runs import PATIENCE, Run, Runs, environment_of, kill

from tfcluster_magic.errors import Conflict, NotFound
from tfcluster_magic.spec import Phase, Reason

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
NEVER_SERVES = f"{SLEEPS}tf.distribute.Server\n"
UNTIL_TOLD = f"""{IS}
import time
print("attempt", attempt, flush=True)
while task.startswith("ps") or not os.path.exists(os.environ["TFCLUSTER_DATA_DIR"] + "/go"):
    time.sleep(0.05)
"""
CLI = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]


@pytest.mark.cluster
def test_each_fault_is_told_with_its_cause_and_its_task(runs: Runs) -> None:
    """A run with a fault fails, names its task, gives the cause, and keeps its logs.

    All faults of the table start at once, because most of them only wait. They are in one test,
    because otherwise each process of pytest-xdist would launch all of them.
    """
    launched = {name: _launched(runs, name, fault) for name, fault in FAULTS.items()}
    found = {name: _what_is_wrong(run, FAULTS[name]) for name, run in launched.items()}
    wrong = [f"--- {name}: {said}" for name, said in found.items() if said]
    assert not wrong, "\n".join(wrong)


def _launched(runs: Runs, name: str, fault: Fault) -> Run:
    program = fault.program() if callable(fault.program) else fault.program
    return runs.launch(program, name=name, **fault.options)


def _what_is_wrong(run: Run, expected: Fault) -> str:
    """Return how a run with a fault differs from the expected end; "" if it does not."""
    try:
        _is_told(run, expected)
    except AssertionError as error:
        return str(error)
    return ""


def _is_told(run: Run, expected: Fault) -> None:
    status = run.until_released()

    print(status.phase.value, status.reason.value, status.culprit, status.message)
    assert (status.phase, status.reason) == (Phase.FAILED, expected.reason), run.story()
    assert status.culprit == expected.culprit
    for words in expected.says:
        assert words in status.message
    assert expected.logged in run.log(expected.culprit or run.tasks[0])
    assert (run.output / f"{run.tasks[0]}.log").exists()
    run.assert_nothing_left()


@pytest.mark.parametrize(
    ("task", "whole"),
    [("worker-1", False), ("worker-1", True), ("chief-0", False), ("ps-0", True)],
    ids=["worker", "worker-with-its-runtime", "chief", "ps-with-its-runtime"],
)
def test_a_task_that_is_killed_is_restarted(runs: Runs, task: str, whole: bool) -> None:
    """If a task is killed from outside, only this task restarts. The record names it, and the run
    succeeds in the end.
    """
    counts = {"chief": True, "workers": 2, "ps": 1}
    run = runs.launch(UNTIL_TOLD, name="killed", **counts, reclaim_after=0.2)
    run.until_logged(task, "attempt 1")
    kill(run.runtime_of(task) if whole else run.program_of(task))
    run.until_logged(task, "attempt 2")
    runs.say("go")
    status = run.until_released()

    assert status.phase is Phase.SUCCEEDED, run.story()
    assert (status.heals, status.restarts) == (1, {task: 1})
    healed = next(event for event in status.events if event.reason == "Healing").message
    assert healed.startswith(f"{task} was killed from outside (SIGKILL). It is restarted (1 of 3")
    assert status.reclaimed is not None
    assert status.reclaimed.tasks == ("ps-0",)
    run.assert_nothing_left()


def test_a_killed_supervisor_takes_its_tasks_along(runs: Runs) -> None:
    """When the supervisor is killed its tasks end with it, and the record says so."""
    run = runs.launch(SLEEPS, name="alone", workers=2, ps=1)
    for task in run.tasks:
        run.until_logged(task, "up")
    kill(run.supervisor())
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.FAILED, Reason.SUPERVISOR_LOST)
    assert "supervisor was killed from outside; its tasks ended with it" in status.message
    assert "tfcluster rerun alone-1" in status.message
    assert "up" in run.log("worker-0")
    run.assert_nothing_left()


def test_a_supervisor_that_is_asked_to_end_stops_its_run(runs: Runs) -> None:
    """SIGTERM to the supervisor, as at a shutdown, stops the run properly, and the record says
    so.
    """
    run = runs.launch(SLEEPS, name="shutdown", workers=1, ps=1)
    run.until_logged("worker-0", "up")
    run.supervisor().send_signal(signal.SIGTERM)
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)
    assert "SIGTERM" in status.message


@pytest.fixture
def kernel(runs: Runs, tmp_path: Path) -> Iterator[KernelManager]:
    """A Jupyter kernel with the hub's and its own secrets in its environment."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path), env={**os.environ, **runs.environment})
    yield manager
    if manager.is_alive():
        manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


def test_a_run_outlives_the_kernel_that_launched_it(runs: Runs, kernel: KernelManager) -> None:
    """A run that a cell launched continues after its kernel is killed, and has none of the kernel's
    secrets.
    """
    client = kernel.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE)
    cells = (
        "%load_ext tfcluster_magic",
        f"%%tfcluster launch --name notebook --workers 2\n{UNTIL_TOLD}",
    )
    for cell in cells:
        reply = client.execute_interactive(cell, timeout=PATIENCE, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply["content"]
    run = runs.adopt("notebook")
    run.until_logged("worker-1", "attempt 1")
    private = ("JPY_", "JUPYTERHUB_", "JUPYTER_TOKEN")
    for process in run.processes():
        assert not [n for n in environment_of(process) if n.startswith(private)]
    client.stop_channels()
    os.kill(kernel.provisioner.pid, signal.SIGKILL)
    kernel.provisioner.process.wait()
    runs.say("go")

    assert run.until_released().phase is Phase.SUCCEEDED
    assert run.status.restarts == {}


def launching(runs: Runs, program: Path, *words: str) -> subprocess.Popen[str]:
    """Start a launch by the command line in its own process."""
    command = [*CLI, "launch", *words, "--workers", "2", "-o", "name", str(program)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **runs.environment}, **pipes)


def test_two_launches_of_one_name_at_once(runs: Runs) -> None:
    """If two processes launch runs of the same name at once, one succeeds, and the message of the
    other names the run that has the name. Launches without a name get different names, and no two
    runs share a port.
    """
    program = runs.file(SLEEPS)
    named = [launching(runs, program, "--name", "digits") for _ in range(2)]
    derived = [launching(runs, program) for _ in range(2)]
    told = {p: p.communicate(timeout=PATIENCE) for p in (*named, *derived)}

    refused = next(p for p in named if p.returncode)
    assert [p.returncode for p in named].count(0) == 1
    assert "digits-1 is still" in told[refused][1]
    assert "tfcluster stop digits" in told[refused][1]
    names = sorted(out.strip() for out, _ in told.values() if out)
    assert names == ["digits-1", "train-1", "train-b-1"]
    addresses = [a for n in names for a in runs.adopt(n).status.addresses["worker"]]
    assert len(set(addresses)) == len(addresses) == 6


def test_a_stop_while_it_starts(runs: Runs) -> None:
    """A run that is stopped before its tasks are up ends as Stopped, and nothing is restarted."""
    run = runs.launch(NEVER_SERVES, name="starting", workers=2, ps=1)
    run.until_logged("worker-1", "up")
    assert run.status.phase is Phase.STARTING
    runs.manager.stop(run.name, "wrong data", by="ada")
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)
    assert status.message == "Stopped by ada: wrong data."
    assert status.culprit is None
    run.assert_nothing_left()


def test_a_stop_while_a_task_is_restarted(runs: Runs) -> None:
    """A stop wins over a restart in progress: nothing starts after it."""
    run = runs.launch(NEVER_SERVES, name="stop-while-healing", workers=2, ps=1)
    run.until_logged("worker-1", "up")
    kill(run.program_of("worker-1"))
    run.until(lambda status: status.restarts == {"worker-1": 1}, "worker-1 is restarted")
    assert run.status.reason is Reason.HEALING
    runs.manager.stop(run.name, "enough")
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)
    assert status.restarts == {"worker-1": 1}
    run.assert_nothing_left()


def test_deleting_a_run_that_runs(runs: Runs) -> None:
    """Deleting an active run ends it first; afterwards processes, record and logs are gone."""
    run = runs.launch(SLEEPS, name="gone", workers=2, ps=1)
    run.until_logged("worker-0", "up")
    runs.manager.delete(run.name, with_logs=True)

    with pytest.raises(NotFound):
        runs.manager.status(run.name)
    assert run.processes() == []
    assert run.control_groups() == []
    assert not run.output.exists()
    assert not run.folder.exists()


def test_a_deletion_that_would_be_refused_stops_nothing(runs: Runs) -> None:
    """A delete that cannot remove the output is refused before the run is stopped."""
    run = runs.launch(SLEEPS, name="kept", workers=1)
    run.until_logged("worker-0", "up")
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    read_only = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    delete = [*CLI, "delete", run.name, "--with-logs", "--yes"]
    refused = subprocess.run(
        [*alone, "sh", "-c", read_only, "sh", str(run.output.parent), *delete],
        env={**os.environ, **runs.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == Conflict.exit_code, refused.stderr
    assert f"you may not write in {run.output.parent}" in refused.stderr
    assert run.record.spec.stop is None
    runs.manager.delete(run.name, with_logs=True)
    assert not run.output.exists()


def launch_with_mount(runs: Runs, mount: str, program: str, *words: str) -> Run:
    """Launch in a separate mount namespace, where `mount` hides a folder of this machine."""
    alone = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    command = [*CLI, "launch", "--name", "mounted", "-o", "name", *words, str(runs.file(program))]
    script = f'set -e; mkdir -p "$TFCLUSTER_LOG_DIR"; mount {mount}; exec "$@"'
    subprocess.run(
        [*alone, "sh", "-c", script, "sh", *command],
        env={**os.environ, **runs.environment, "TFCLUSTER_LOG_DIR": str(runs.folder / "log")},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return runs.adopt("mounted")


SMALL = '-t tmpfs -o size=2m none "$TFCLUSTER_LOG_DIR"'
FILLS = """
with open(os.path.join(os.environ["TFCLUSTER_OUTPUT_DIR"], "model.ckpt-100.data"), "wb") as file:
    for _ in range(64):
        file.write(bytes(1 << 16))
        file.flush()
"""
PRINTS = f"{IS}\nfor i in range(40000):\n    print('a line of a log that goes on for long', i)\n"


def test_a_program_that_fills_the_disk(runs: Runs) -> None:
    """A program that cannot write its checkpoint fails with that reason, and its log is kept."""
    program = f"{IS}print('saving', flush=True)\n{FILLS}"
    run = launch_with_mount(runs, SMALL, program, "--workers", "1", "--ps", "0")
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.FAILED, Reason.PROGRAM_FAILED), run.story()
    assert status.culprit == "worker-0"
    assert "No space left on device" in status.message
    assert "The disk is full: free space" in status.message
    assert "saving" in run.log("worker-0")


def test_a_full_log_folder_never_stops_training(runs: Runs) -> None:
    """When copies of logs fill the log folder, the run continues, and its own log loses no line."""
    run = launch_with_mount(runs, SMALL, PRINTS, "--workers", "2", "--ps", "0")
    status = run.until_released()

    assert status.phase is Phase.SUCCEEDED, run.story()
    logs = [run.log(task) for task in run.tasks]
    assert all(log.count("goes on for long") == 40000 for log in logs)
    assert any("was stopped: No space left on device; training goes on" in log for log in logs)
    told = "accepts no copies of the tasks' output (No space left on device)"
    assert sum(told in words for words in status.warnings) == 1
    assert sum(told in event.message for event in status.events) == 1


def test_memory_is_watched_where_the_kernel_may_not_be_asked(runs: Runs) -> None:
    """Without control groups, a task above its memory limit is still ended, and the record gives
    the reason.
    """
    program = f"{IS}print('loading', flush=True)\n{EATS}{SLEEPS}"
    words = ("--workers", "1", "--ps", "0", "--worker-memory", "100Mi")
    run = launch_with_mount(runs, "-t tmpfs none /sys/fs/cgroup", program, *words)
    assert not (run.folder / "cgroup").exists()
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.FAILED, Reason.OOM_KILLED), run.story()
    assert status.culprit == "worker-0"
    assert "worker-0 ran out of memory at its limit of 100Mi (used " in status.message
    assert "--worker-memory 200Mi" in status.message
    assert "loading" in run.log("worker-0")
