"""GPUs, which tasks get as whole devices and runs do not share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.local_runs import (
    SLEEP,
    TELL_ENVIRONMENT,
    Launch,
    over,
)
from support.polling import wait_until

from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import PreflightRefused
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import (
    Dependency,
    Lifecycle,
    Phase,
    Program,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Stop,
)


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an `nvidia-smi` on PATH that lists two GPUs."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nprintf '0, GPU-aaaa\\n1, GPU-bbbb\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


def devices_of(backend: LocalBackend, ref: str) -> dict[str, str]:
    """Return the devices that each task of a run sees."""
    told = [line for line in backend.logs(ref) if line]
    return {line.task: json.loads(line.text).get("CUDA_VISIBLE_DEVICES", "all") for line in told}


def test_each_task_gets_devices_of_its_own(
    backend: LocalBackend, launch: Launch, two_gpus: None, program_of: Callable[..., Program]
) -> None:
    """A task sees the GPUs that it requested; a task that requested none sees no GPU."""
    assert backend.options().gpu.total == 2
    replicas = ReplicaSet(
        worker=Replicas(count=2, resources=Resources(gpu=1)), chief=Replicas(count=1)
    )
    spec = Spec(program=program_of(TELL_ENVIRONMENT), replicas=replicas)
    backend.create(LaunchRequest(cluster="digits", spec=spec))
    over(backend, "digits")
    assert devices_of(backend, "digits") == {
        "chief-0": "-1",
        "worker-0": "GPU-aaaa",
        "worker-1": "GPU-bbbb",
    }


def test_devices_are_held_until_the_run_is_over(
    backend: LocalBackend, launch: Launch, two_gpus: None
) -> None:
    """No two running clusters share a GPU, and the refusal says how many GPUs the machine has."""
    launch(SLEEP, worker=1, resources=Resources(gpu=1))
    assert backend.options().gpu.free == 1
    with pytest.raises(
        PreflightRefused, match=r"1 worker of 1 GPU fits, but 2 were requested: .*--workers 1"
    ):
        launch(SLEEP, name="other", worker=2, resources=Resources(gpu=1))
    launch(TELL_ENVIRONMENT, name="other", worker=1, resources=Resources(gpu=1))
    over(backend, "other")
    assert devices_of(backend, "other") == {"worker-0": "GPU-bbbb"}
    backend.stop("digits", Stop())
    over(backend, "digits")
    assert backend.options().gpu.free == 2


def test_only_the_devices_of_the_launcher_are_given(
    backend: LocalBackend, two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the administrator gave this user one GPU, only that GPU is used."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert backend.options().gpu.total == 1


def test_a_machine_without_gpus(backend: LocalBackend, launch: Launch) -> None:
    """Without GPUs, CUDA_VISIBLE_DEVICES is unchanged, and a request for a GPU is refused."""
    with pytest.raises(PreflightRefused, match="no GPU"):
        launch(SLEEP, worker=1, resources=Resources(gpu=1))
    launch(TELL_ENVIRONMENT, worker=1)
    over(backend, "digits")
    assert devices_of(backend, "digits") == {"worker-0": "all"}


def test_an_ended_run_keeps_only_what_its_parameter_servers_hold(
    backend: LocalBackend, two_gpus: None, program_of: Callable[..., Program]
) -> None:
    """While parameter servers wait for their reclaim, the workers' devices are free again."""
    text = "import os, time\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'ps': time.sleep(600)\n"
    each = Resources(gpu=1, memory="1Gi")
    replicas = ReplicaSet(
        worker=Replicas(count=1, resources=each), ps=Replicas(count=1, resources=each)
    )
    limits = Lifecycle(reclaim_after=600.0)
    spec = Spec(program=program_of(text), replicas=replicas, lifecycle=limits)
    backend.create(LaunchRequest(cluster="digits", spec=spec))
    assert backend.options().gpu.free == 0
    for run in backend.watch("digits"):
        if run is not None and run.status.phase is Phase.SUCCEEDED:
            break
    there = backend.options()
    assert there.gpu.free == 1
    assert there.memory.free <= there.memory.total - 2**30


def test_a_run_gets_devices_when_its_wait_is_over(
    backend: LocalBackend, launch: Launch, two_gpus: None
) -> None:
    """A run that waits for another run holds no device. When that wait is over, the run waits for
    free devices, and is not overtaken by runs that began to wait for devices later.
    """
    one, two = Resources(gpu=1), Resources(gpu=2)
    launch(SLEEP, name="holder", worker=1, resources=one)
    launch("pass", name="prepare", worker=1)
    over(backend, "prepare")
    prepared = (Dependency(run="prepare-1"),)
    launch(TELL_ENVIRONMENT, name="large", worker=1, resources=two, after=prepared)
    wait_until(lambda: "1 more GPU" in backend.get("large").status.message)
    launch(TELL_ENVIRONMENT, name="small", worker=1, resources=one, after=prepared)
    wait_until(lambda: "its turn after large-1" in backend.get("small").status.message)
    holds = (Dependency(run="holder-1"),)
    launch(TELL_ENVIRONMENT, name="held", worker=1, resources=two, after=holds)
    assert backend.options().gpu.free == 1
    launch(TELL_ENVIRONMENT, name="now", worker=1, resources=one)
    over(backend, "now")
    backend.stop("holder", Stop())
    for name in ("large", "small"):
        assert over(backend, name).status.phase is Phase.SUCCEEDED
    assert devices_of(backend, "large") == {"worker-0": "GPU-aaaa,GPU-bbbb"}
    assert over(backend, "held").status.reason is Reason.DEPENDENCY_FAILED
