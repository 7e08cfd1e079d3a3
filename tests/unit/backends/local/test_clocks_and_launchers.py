"""Runs in bad conditions: clock changes, limits of several weeks, launchers that die."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.real_runs import Runs, runs_in

from tfcluster_magic.backends.local import launch
from tfcluster_magic.errors import TFClusterError, WaitTimeout
from tfcluster_magic.runs import manager
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import Phase, Reason

Wait = Callable[..., None]

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
WEEKS = "30d"
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The machine's clock as if somebody had set it back by an hour, once the file JUMPED is there. */
int clock_gettime(clockid_t id, struct timespec *at)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (id == CLOCK_REALTIME && access(getenv("JUMPED"), F_OK) == 0)
        at->tv_sec -= 3600;
    return result;
}
"""


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Yield a launcher of runs; end its runs after the test."""
    with runs_in(tmp_path / "user") as made:
        yield made


def test_limits_of_weeks(runs: Runs) -> None:
    """A run may last for weeks and take weeks to end, without an error in its supervisor."""
    program = (
        "import os, time\nif os.environ['TFCLUSTER_TASK_INDEX'] == '1':\n    time.sleep(600)\n"
    )
    run = runs.launch(program, workers=2, max_duration=WEEKS, grace=WEEKS, idle_timeout=WEEKS)
    run.until(lambda s: "worker-0 finished" in s.message, "worker-0 has finished")
    runs.manager.stop(run.name, "that is enough")
    status = run.until_released()
    assert status.phase is Phase.STOPPED
    assert status.reason is Reason.STOP_REQUESTED
    assert "with an error" not in " ".join(run.events())


def test_a_clock_that_is_set_back(runs: Runs, tmp_path: Path) -> None:
    """Parameter servers are reclaimed after their timeout although the clock was set back
    meanwhile.
    """
    source, shim, jumped = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "jumped"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    runs.environment |= {"LD_PRELOAD": str(shim), "JUMPED": str(jumped)}
    program = (
        "import os, time\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'ps':\n    time.sleep(600)\n"
    )
    run = runs.launch(program, workers=1, ps=1, reclaim_after="2s")
    run.until_phase(Phase.SUCCEEDED)
    jumped.touch()
    status = run.until_released()  # the clock was set back by far more than the timeout
    assert status.reclaimed is not None
    assert status.reclaimed.tasks == ("ps-0",)


def test_a_launcher_with_many_open_files(runs: Runs) -> None:
    """A notebook kernel with more than a thousand open files can launch a run."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2000), limits[1]))
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(open(os.devnull))
        run = runs.launch("print('hello')", workers=1)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert run.until_released().phase is Phase.SUCCEEDED


@pytest.mark.parametrize("which", ["state_dir", "log_dir", "data_dir"])
def test_folders_that_are_not_utf8(which: str, tmp_path: Path) -> None:
    """A folder whose name cannot be stored in a record is refused, and no run is left."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    manager = ClusterManager(**{"state_dir": str(tmp_path / "state"), which: str(folder)})
    source = tmp_path / "train.py"
    source.write_text("print('hello')")
    with pytest.raises(TFClusterError, match="not UTF-8 text"):
        manager.launch(str(source), workers=1)
    assert manager.list() == []


def test_a_reason_that_is_not_utf8(runs: Runs) -> None:
    """A run can be stopped with a reason of any bytes."""
    run = runs.launch(SLEEP, workers=1)
    runs.manager.stop(run.name, os.fsdecode(b"caf\xe9"))
    assert run.until_released().phase is Phase.STOPPED


def test_a_supervisor_that_does_not_answer(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the supervisor of a run hangs, stopping the run ends with an error."""
    monkeypatch.setattr(manager, "ENDING_TIMEOUT", 0.5)
    run = runs.launch(SLEEP, workers=1, grace=0)
    run.until_phase(Phase.RUNNING)
    supervisor = run.supervisor()
    supervisor.suspend()
    try:
        runs.manager.stop(run.name)
        with pytest.raises(WaitTimeout, match="does not answer"):
            runs.manager.wait(run.name, until=Until.RELEASED)
    finally:
        supervisor.resume()
    assert run.until_released().phase is Phase.STOPPED


def test_a_supervisor_that_starts_slowly(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher may time out, or be killed, before the run's supervisor has started. The run
    continues.
    """
    monkeypatch.setattr(launch, "START_TIMEOUT", 0.0)
    run = runs.launch("print('hello')", workers=1)
    assert run.until_released().phase is Phase.SUCCEEDED
