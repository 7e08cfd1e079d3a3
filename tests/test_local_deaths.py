"""Deaths half-way: clients, supervisors and folders that are gone in the middle of something."""

from __future__ import annotations

import os
import signal

from local_runs import SLEEP, Launch, Wait, folder_of, is_up, over, supervisor_of

from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.models import Phase, Reason, Stop, TaskState, TypeCounts

IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


def test_no_task_of_a_lost_run_is_told_to_run(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Each task of a run that lost its supervisor is told as ended, one by one as in counts."""
    run = launch(SLEEP, worker=2)
    wait_for(lambda: backend.get("digits").status.phase is Phase.RUNNING)
    os.kill(supervisor_of(run), signal.SIGKILL)
    status = over(backend, "digits").status
    assert [task.state for task in status.attention] == [TaskState.FAILED] * 2
    assert status.counts["worker"] == TypeCounts(desired=2, failed=2)


def test_tasks_of_a_stop_that_lost_its_supervisor_are_stopped(
    backend: LocalBackend, launch: Launch, wait_for: Wait
) -> None:
    """Tasks that were being stopped when their supervisor was killed have not failed."""
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
    """What a supervisor and a task were writing when they were killed is not left beside."""
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
