"""The backends under the contract tests, and helpers for them. A new backend needs only a line in
`BACKENDS`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfcluster_magic.backends.base import Backend
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.selection import make_backend
from tfcluster_magic.kube.api import access
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import (
    Dependency,
    Lifecycle,
    Phase,
    Program,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Stop,
    TFCluster,
)

BACKENDS: dict[str, Callable[[], Backend]] = (
    {"kubernetes": lambda: make_backend("kubernetes", {}, "", "")}
    if access.in_pod()
    else {"local": LocalBackend}
)
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, own_folders: Path) -> Iterator[Backend]:
    """Yield a backend without runs and output; stop all runs afterwards."""
    made = BACKENDS[request.param]()
    for left in Path(made.options().log_dir).glob("*"):
        shutil.rmtree(left)
    yield made
    for run in made.list():
        made.stop(run.metadata.name, Stop(reason="the test is over"))
    for run in made.list():
        until_released(made, run)
        made.delete(run.metadata.name)


@pytest.fixture
def launch(backend: Backend, program_of: Callable[..., Program]) -> Callable[..., TFCluster]:
    """Return a function that launches a program's text with a number of tasks."""

    def start(
        text: str,
        *arguments: str,
        name: str = "digits",
        given: bool = True,
        env: dict[str, str] | None = None,
        resources: Resources = Resources(),  # noqa: B008 - frozen
        limits: Lifecycle = Lifecycle(grace=1.0),  # noqa: B008 - frozen
        after: tuple[Dependency, ...] = (),
        **counts: int,
    ) -> TFCluster:
        replicas = {t: Replicas(count=n, resources=resources) for t, n in counts.items()}
        spec = Spec(
            program=program_of(text, *arguments),
            replicas=ReplicaSet(**replicas),
            env=env or {},
            lifecycle=limits,
            after=after,
        )
        return backend.create(LaunchRequest(cluster=name, spec=spec, name_given=given))

    return start


Launch = Callable[..., TFCluster]


def until(backend: Backend, run: TFCluster, true: Callable[[TFCluster], bool]) -> TFCluster:
    """Watch `run` until a condition holds."""
    for seen in backend.watch(run.metadata.name):
        if seen is not None and true(seen):
            return seen
    raise AssertionError(f"it never came to that: {backend.get(run.metadata.name).status}")


def until_phase(backend: Backend, run: TFCluster, phase: Phase) -> TFCluster:
    """Watch `run` until it is in `phase`."""
    return until(backend, run, lambda seen: seen.status.phase is phase)


def until_released(backend: Backend, run: TFCluster) -> TFCluster:
    """Watch `run` until none of its resources is left."""
    return until(backend, run, lambda seen: seen.status.released_at is not None)


def lines(backend: Backend, ref: str, **which: object) -> list[str]:
    """Return the lines that the tasks' program printed, without TFCluster's own."""
    found = backend.logs(ref, **which)  # type: ignore[arg-type]
    return [line.text for line in found if line and not line.text.startswith("tfcluster: ")]
