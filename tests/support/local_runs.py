"""Fixtures and observers for runs of the local backend; a plugin of conftest.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfcluster_magic.backends.local import processes
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.local.run_store import RunFolder
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import (
    Dependency,
    Lifecycle,
    Program,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Stop,
    TFCluster,
)

# The line and its end are printed in one write. A test that kills the task once the line is there
# thus never leaves half a line.
SLEEP = "import time\nprint('up\\n', end='', flush=True)\ntime.sleep(600)\n"
TELL_ENVIRONMENT = "import json, os\nprint(json.dumps(dict(os.environ)))\n"

Launch = Callable[..., TFCluster]
Wait = Callable[..., None]


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    """Yield the local backend; stop all runs afterwards."""
    made = LocalBackend()
    yield made
    for run in made.list():
        made.stop(run.metadata.name, Stop(reason="the test is over"))
    for run in made.list():
        over(made, run.metadata.name)


@pytest.fixture
def launch(backend: LocalBackend, program_of: Callable[..., Program]) -> Launch:
    """Return a function that launches a program's text with a number of tasks."""

    def start(
        text: str,
        name: str = "digits",
        resources: Resources | None = None,
        grace: float = 1.0,
        after: tuple[Dependency, ...] = (),
        **counts: int,
    ) -> TFCluster:
        each = resources or Resources()
        replicas = {t: Replicas(count=n, resources=each) for t, n in counts.items()}
        limits = Lifecycle(grace=grace)
        tasks = ReplicaSet(**replicas)
        spec = Spec(program=program_of(text), replicas=tasks, lifecycle=limits, after=after)
        return backend.create(LaunchRequest(cluster=name, spec=spec))

    return start


def over(backend: LocalBackend, ref: str) -> TFCluster:
    """Wait until nothing of the run is left, and return it."""
    for _ in backend.watch(ref):
        pass
    return backend.get(ref)


def folder_of(run: TFCluster) -> RunFolder:
    """Return the folder of the run."""
    return RunFolder(Path(run.status.paths["logs"]).parent)


def supervisor_of(run: TFCluster) -> int:
    """Return the pid of the run's supervisor."""
    mark = os.fsencode(folder_of(run).path)
    known = processes.snapshot()
    found = {pid for pid in known if {mark, b"-I"} <= {*words_of(pid)}}
    # A child that is about to become a task still has the supervisor's command line, so take the
    # process whose parent does not have it.
    (pid,) = [pid for pid in found if known[pid].parent not in found]
    return pid


def words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def tasks_of(run: TFCluster) -> list[int]:
    """Return every process of the run's tasks."""
    return processes.of_run(run.metadata.uid)


def is_up(backend: LocalBackend, tasks: int = 1) -> Callable[[], bool]:
    """Return a condition: whether this number of tasks have printed their first line."""
    return lambda: sum(1 for _ in backend.logs("digits")) == tasks
