"""Start, failure and end of the project's own node, on a spare cluster."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kubenode import leftovers
from kubenode.cluster import Cluster
from kubenode.commands import LAST_LINES, wait_until
from kubenode.errors import NodeError
from kubenode.node import Node
from kubenode.processes import members, namespace_of

pytestmark = pytest.mark.needs("node-inside")
NAMESPACES = ("pid", "ipc", "uts")
"""Kinds of Linux namespaces that a test may keep open: unlike a mount or a network namespace, they
keep no mounts or devices alive.
"""


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """Kernel settings of this machine before these tests start a cluster."""
    return machine_settings()


@pytest.fixture(scope="module")
def made(machine: None, settings: dict[str, str]) -> Iterator[Cluster]:
    """A cluster with its own name; at the end nothing of it may be left."""
    cluster = Cluster(f"{Cluster().name}-spare")
    cluster.down()
    yield cluster
    cluster.down()


@pytest.fixture
def running(made: Cluster) -> Cluster:
    """The spare cluster, running. Most tests leave it running, because a start takes seconds."""
    made.up()
    return made


@pytest.fixture
def spare(made: Cluster) -> Cluster:
    """The spare cluster, stopped."""
    made.down()
    return made


class Traces:
    """Traces of a running cluster on this machine, to check after its end."""

    def __init__(self, cluster: Cluster) -> None:
        first = cluster.first.pid
        self.state = cluster.state
        self.cgroup = f"tfcluster-kube-{cluster.name}"
        # The namespaces are kept open until the check, because the kernel may otherwise reuse their
        # numbers for another cluster.
        self._kept = [os.open(f"/proc/{first}/ns/{kind}", os.O_RDONLY) for kind in NAMESPACES]
        self.namespaces = {_namespace(first, kind) for kind in NAMESPACES}
        assert not self.namespaces & {_namespace(os.getpid(), kind) for kind in NAMESPACES}
        self.processes = len(list(members(namespace_of(first))))

    def left(self) -> list[str]:
        """Return what is left of the cluster: processes in its namespaces, mounts, loop devices,
        cgroups. This closes the namespaces that were kept open, so call it only once.
        """
        found = [each for each in leftovers.found(self.state, self.cgroup) if "folder" not in each]
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if self.namespaces & {_namespace(pid, kind) for kind in NAMESPACES}:
                found.append(f"process {pid}")
        for each in self._kept:
            os.close(each)
        return found


def machine_settings() -> dict[str, str]:
    """Return the machine-wide kernel settings that kubelet changes."""
    names = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom")
    return {name: Path("/proc/sys", name).read_text() for name in names}


def _namespace(pid: int, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""


@pytest.mark.long  # test_a_cluster_is_killed_begins_anew_and_ends_whole restarts all servers
def test_up_restarts_ended_servers(running: Cluster) -> None:
    """`up` restarts ended servers of a cluster and keeps its objects, its API address and its other
    servers.
    """
    spare = running
    ended = ("etcd", "kube-apiserver", "kube-scheduler")
    others = {each: _pid(spare.first, each) for each in spare.first.servers() if each not in ended}
    address = spare.kubeconfig.read_text()
    spare.kubectl("create", "configmap", "kept")
    for server in ended:
        spare.first.stop(server, "KILL")
    spare.up()
    assert {each: _pid(spare.first, each) for each in others} == others
    assert {*spare.first.servers()} == {*others, *ended}
    assert spare.kubeconfig.read_text() == address
    spare.kubectl("get", "configmap", "kept")


@pytest.mark.long  # in the next test, `up` also starts a new cluster
def test_a_cluster_whose_door_has_ended(running: Cluster) -> None:
    """If the process that forwards the API's port into the node has ended, `up` starts a new
    cluster, because this process cannot be restarted.
    """
    spare = running
    first = spare.first.pid
    os.kill(_pid(spare.first, "door-api"), signal.SIGKILL)
    wait_until(lambda: not spare.first.alive("door-api"), "the door has closed", seconds=90)
    spare.up()
    assert spare.first.pid != first
    assert "node-1" in spare.kubectl("get", "nodes", "-o", "name")


def test_a_cluster_is_killed_begins_anew_and_ends_whole(
    running: Cluster, settings: dict[str, str]
) -> None:
    """A second `up` changes nothing; after kill -9 of all processes of the cluster, `up` starts a
    new one. `down` leaves no trace of either cluster, and may be repeated.
    """
    spare = running
    servers = {server: _pid(spare.first, server) for server in spare.first.servers()}
    spare.up()
    assert {server: _pid(spare.first, server) for server in spare.first.servers()} == servers
    before = Traces(spare)
    assert before.processes > len(servers)
    for pid in list(members(namespace_of(spare.first.pid))):
        with suppress(ProcessLookupError):  # the port forwards have ended with process 1
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not spare.nodes(), "all its processes have ended", seconds=90)
    spare.up()
    assert "node-1" in spare.kubectl("get", "nodes", "-o", "name")
    after = Traces(spare)
    spare.down()
    assert before.left() == after.left() == []
    assert not spare.state.exists()
    assert machine_settings() == settings
    spare.down()


def test_a_taken_port_is_named(spare: Cluster) -> None:
    """A cluster whose API port is taken does not start and leaves nothing; the error names the
    port.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(NodeError, match=rf"Port {port} of 127\.0\.0\.1 is taken"):
            spare.up(port)
    assert spare.leftovers() == []


@pytest.mark.long  # the test above covers another failed start
def test_an_api_server_that_dies_at_the_start(spare: Cluster) -> None:
    """If the API server dies at the start, the error shows its last lines, and the cluster is
    removed.
    """
    found: list[Traces] = []

    def kill() -> None:
        node, server = spare.first, "kube-apiserver"
        wait_until(
            lambda: node.alive(server) and node.log(server).read_text().count("\n") > LAST_LINES,
            "the API server says something",
            seconds=60,
            every=0.02,
        )
        found.append(Traces(spare))
        node.stop(server, "KILL")

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(NodeError) as failed:
        spare.up()
    killer.join()
    said = str(failed.value)
    assert "kube-apiserver ended. Its last lines" in said
    assert len(said.splitlines()) > LAST_LINES
    assert found[0].left() == spare.leftovers() == []


def _pid(node: Node, server: str) -> int:
    return int((node.folder / "servers" / server).read_text().split()[0])


@pytest.mark.parametrize("name", ["..", ".", "a/b", "-x", "A", "x" * 40])
def test_a_cluster_has_a_plain_name(name: str) -> None:
    """A name that leads out of the state folder, which `down` deletes, is refused."""
    with pytest.raises(NodeError, match="cannot be called"):
        Cluster(name)
