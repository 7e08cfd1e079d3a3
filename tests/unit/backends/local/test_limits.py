"""Environment, stray processes and memory limits of tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_runs import (
    SLEEP,
    TELL_ENVIRONMENT,
    Launch,
    Wait,
    is_up,
    over,
    supervisor_of,
    tasks_of,
    words_of,
)

from tfcluster_magic.backends.local import memory_limits
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import PreflightRefused, TFClusterError
from tfcluster_magic.spec import Cause, Phase, Resources, TaskExit


def test_the_notebook_servers_secrets_stay_away(
    backend: LocalBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch, wait_for: Wait
) -> None:
    """No process of a run has the notebook server's credentials, or another run's identity."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "token-of-the-hub")
    monkeypatch.setenv("JPY_API_TOKEN", "token-of-the-hub")
    monkeypatch.setenv("JUPYTER_TOKEN", "token-of-the-server")
    monkeypatch.setenv("TFCLUSTER_RUN_UID", "another")
    monkeypatch.setenv("KEPT", "yes")
    run = launch(TELL_ENVIRONMENT + SLEEP, worker=1)
    wait_for(is_up(backend, 2))
    line = next(line for line in backend.logs("digits") if line)
    told = json.loads(line.text)
    assert told["KEPT"] == "yes"
    assert told["TFCLUSTER_RUN_UID"] == run.metadata.uid
    assert "token-of-the-hub" not in told.values()
    for pid in (supervisor_of(run), *tasks_of(run)):
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"token-of-the-hub" not in variables
        assert b"TFCLUSTER_RUN_UID=another" not in variables


def test_what_a_task_leaves_behind_goes_with_the_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait, tmp_path: Path
) -> None:
    """A daemon that a program starts does not outlive the run, even if the daemon's environment is
    empty.
    """
    pid_file = tmp_path / "pid"
    run = launch(
        f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(pid_file)!r}, "w").write(str(os.getpid()))
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
    os._exit(0)
""",
        worker=1,
    )
    assert over(backend, "digits").status.phase is Phase.SUCCEEDED
    assert tasks_of(run) == []
    if pid_file.exists() and (pid := pid_file.read_text()):
        assert not Path("/proc", pid).exists()


def test_a_killed_task_runner_is_healed(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """If the runner of a task is killed, the task's program ends and the task is restarted."""
    run = launch(SLEEP, worker=1)
    wait_for(is_up(backend))
    (runner,) = [pid for pid in tasks_of(run) if b"-E" in words_of(pid)]
    os.kill(runner, signal.SIGKILL)
    wait_for(is_up(backend, 2))
    assert backend.get("digits").status.heals == 1
    assert len(tasks_of(run)) == 2


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_by", ["kernel", "watching"])
def test_a_memory_limit_is_kept(kept_by: str, tmp_path: Path) -> None:
    """A task above its memory limit is ended, by the kernel if possible, otherwise by the
    supervisor.
    """
    parent = memory_limits.find_parent() if kept_by == "kernel" else None
    limit = 150 * 2**20
    guard = memory_limits.MemoryGuard("uid-of-test", {"worker-0": limit}, parent)
    members = guard.admit("worker-0")
    assert (members is None) == (parent is None)
    join = f"open({str(members)!r}, 'w').write(str(os.getpid()))" if members else "pass"
    eat = "import os; b = os.urandom(1 << 20) * 300; print('ate', flush=True); input()"
    text = f"import os, subprocess, sys; {join}\nsubprocess.run([sys.executable, '-c', {eat!r}])"
    runner = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with runner:
        assert runner.stdout is not None
        if parent is None:
            assert guard.watched(["worker-0"]) == ["worker-0"]
            assert runner.stdout.readline() == b"ate\n"
            guard.enforce({"worker-0": runner.pid})
        assert runner.wait(20) == 0, "the one that starts the program tells how it ended"
    killed = TaskExit(cause=Cause.KILLED, finished_at=1.0, signal=9)
    told = guard.explain("worker-0", killed)
    guard.close()
    assert told.cause is Cause.OOM
    assert told.detail.startswith("limit 150Mi, used ")
    if parent is not None:
        assert [*parent.path.glob("tfcluster-uid-of-test*")] == []


def test_a_task_within_its_limit_is_left_alone() -> None:
    """A task below its memory limit is not ended, and if it ends for another reason, memory is not
    blamed.
    """
    guard = memory_limits.MemoryGuard("uid-of-test", {"worker-0": 2**30}, None)
    guard.admit("worker-0")
    guard.enforce({"worker-0": os.getpid()})
    killed = TaskExit(cause=Cause.KILLED, finished_at=1.0, signal=9)
    assert guard.explain("worker-0", killed) == killed


def test_a_process_in_a_control_group_does_not_keep_it() -> None:
    """Every process in a control group of a run ends, and the group is removed."""
    parent = memory_limits.find_parent()
    if parent is None:
        return  # this machine cannot create control groups
    group = parent.make("uid-of-test", "worker-0", 2**30)
    stray = subprocess.Popen(["sleep", "60"])
    group.members.write_text(str(stray.pid))
    assert memory_limits.remove_groups(parent.path, "uid-of-test") == []
    assert not group.path.exists()
    assert stray.wait() == -signal.SIGKILL


def test_no_control_group_outlives_its_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """After a run with memory limits, even a run that lost its supervisor, its control groups are
    gone.
    """
    groups = memory_limits.find_parent()
    for end in (signal.SIGTERM, signal.SIGKILL):
        run = launch(SLEEP, worker=1, resources=Resources(memory="512Mi"))
        wait_for(is_up(backend))
        made = [*groups.path.glob(f"tfcluster-{run.metadata.uid}*")] if groups else []
        assert len(made) == (1 if groups else 0)
        os.kill(supervisor_of(run), end)
        over(backend, "digits")
        assert not any(group.exists() for group in made)


def test_a_launch_beyond_what_the_hub_allows_is_refused(
    backend: LocalBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Launches above the hub's limits are refused; a task without a CPU request counts as half a
    core. Without a file of limits, no launch is refused for a limit.
    """
    file = tmp_path / "limits.json"
    file.write_text(json.dumps({"group": "ml101", "quota": {"cpu": 2, "pods": 3}}))
    monkeypatch.setenv("TFCLUSTER_LIMITS", str(file))
    launch(SLEEP, worker=2)

    with pytest.raises(PreflightRefused) as refused:
        launch(SLEEP, worker=2, resources=Resources(cpu=1.0), name="more")
    assert [problem.field for problem in refused.value.problems] == ["quota.cpu", "quota.pods"]
    assert "(group ml101)" in str(refused.value)
    assert "digits-1" in str(refused.value)
    file.write_text("cut off")
    with pytest.raises(TFClusterError, match="ask its administrator"):
        launch(SLEEP, worker=1, name="more")
    monkeypatch.delenv("TFCLUSTER_LIMITS")
    launch(SLEEP, worker=2, name="more")
