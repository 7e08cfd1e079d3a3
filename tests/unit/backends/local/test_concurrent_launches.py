"""Concurrent launches, of which no two get the same name, port or memory."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.local_runs import (
    SLEEP,
)

from tfcluster_magic.backends.local import task_processes
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import InvalidRequest, PreflightRefused
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import (
    Pods,
    Program,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    TaskType,
    Volume,
    to_json,
)


def test_launches_at_once_never_share_a_name_or_a_port(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """If many threads launch with the same derived name, each launch gets a name, a number and
    ports of its own.
    """
    spec = Spec(program=program_of(SLEEP), replicas=ReplicaSet(worker=Replicas(count=3)))
    request = LaunchRequest(cluster="digits", spec=spec, name_given=False)
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda _: LocalBackend().create(request), range(6)))
    assert len({run.metadata.name for run in runs}) == 6
    found = [address for run in runs for address in run.status.addresses["worker"]]
    assert len(set(found)) == 18


def test_what_only_kubernetes_has_is_refused_on_this_machine(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """Images, claims and secrets are refused; the refusal names the local alternative, and nothing
    is started.
    """
    pods = Pods(
        volumes=(Volume(claim="images", path="/mnt/images"),), secrets=(SecretUse(name="s3"),)
    )
    spec = Spec(program=program_of(SLEEP), image="registry:5000/team/tf:1", pods=pods)
    with pytest.raises(InvalidRequest, match="the launch was refused") as refused:
        backend.create(LaunchRequest(cluster="digits", spec=spec))
    assert backend.preflight(spec).problems[:3] == refused.value.problems
    told = {str(problem.field): str(problem.allowed) for problem in refused.value.problems}
    assert set(told) == {"--image", "--volume", "--secret"}
    assert all(text.startswith("only on Kubernetes: ") for text in told.values())
    assert backend.list() == []


def test_one_given_name_launched_twice_at_once(
    backend: LocalBackend, program_of: Callable[..., Program], tmp_path: Path
) -> None:
    """If several processes launch under the same name at the same time, exactly one launch
    succeeds.
    """
    spec = Spec(program=program_of(SLEEP), replicas=ReplicaSet(worker=Replicas(count=1)))
    (tmp_path / "spec.json").write_bytes(to_json(spec))
    text = f"""
import msgspec
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import NameTaken
from tfcluster_magic.spec import Spec
spec = msgspec.json.decode(open({str(tmp_path / "spec.json")!r}, "rb").read(), type=Spec)
try:
    LocalBackend().create(LaunchRequest(cluster="digits", spec=spec))
    print("launched")
except NameTaken:
    print("taken")
"""
    racers = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert sorted(racer.communicate()[0].strip() for racer in racers) == [
        "launched",
        *["taken"] * 3,
    ]
    assert len(backend.list()) == 1


def test_a_reserved_port_is_nobody_elses() -> None:
    """A reserved port is not given to another launch or program, but the task for which it is
    reserved can use it.
    """
    first, held = task_processes.reserve_ports({TaskType.WORKER: 200})
    second, more = task_processes.reserve_ports({TaskType.WORKER: 200})
    try:
        assert not set(first["worker"]) & set(second["worker"])
        port = int(first["worker"][0].rpartition(":")[2])
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as visitor, pytest.raises(ConnectionRefusedError):
            visitor.connect(("127.0.0.1", port))
        with socket.socket() as task, socket.socket() as visitor:
            task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            task.bind(("127.0.0.1", port))
            task.listen()
            visitor.connect(("127.0.0.1", port))
    finally:
        for bound in held + more:
            bound.close()


def test_two_launches_cannot_both_take_the_last_memory(
    backend: LocalBackend, program_of: Callable[..., Program]
) -> None:
    """If several launches each need more than half of the free memory, only one launch succeeds."""
    most = Resources(memory=str(int(backend.options().memory.free * 0.6)))
    replicas = ReplicaSet(worker=Replicas(count=1, resources=most))
    spec = Spec(program=program_of(SLEEP), replicas=replicas)

    def attempt(name: str) -> str:
        try:
            LocalBackend().create(LaunchRequest(cluster=name, spec=spec))
        except PreflightRefused as refused:
            return "refused" if "is free" in str(refused) else str(refused)
        return "launched"

    with ThreadPoolExecutor(3) as pool:
        found = sorted(pool.map(attempt, ["one", "two", "three"]))
    assert found == ["launched", "refused", "refused"]
