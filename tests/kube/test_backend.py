"""The Kubernetes backend in users' conditions: with only their rights, over a network that is cut,
and with missing parts. The contract of every backend is in test_backend_contract.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kubenode.commands import wait_until
from support.kube import tenants
from support.kube.kubectl import Kubectl
from support.kube.operator import Tenant, spec_of
from support.kube.relay import Relay

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.base import Removed
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.errors import (
    BackendUnavailable,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    TFClusterError,
)
from tfcluster_magic.kube.api import client
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import Lifecycle, Mode, Phase, Spec, Stop, TFCluster

NEVER_THERE = "registry:5000/nothing:1"
"""An image that no registry has: its run stays Starting, and uses no resources."""
HELLO = """
import time
for i in range(40):
    print("line", i, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def user(new_tenant: Callable[[], Tenant], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of a user, in their namespace."""
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    return tenants.kubeconfig(tenant.kubectl, tmp_path_factory.mktemp("user") / "kubeconfig")


@pytest.fixture
def backend(user: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesBackend]:
    """The backend with the kubeconfig of the fixture `user`; its runs are deleted afterwards."""
    monkeypatch.setenv("KUBECONFIG", str(user))
    yield KubernetesBackend()
    left = KubernetesBackend()  # this connection bypasses the relay
    for run in left.list():
        left.api.delete(client.path("tfclusters", left.namespace, run.metadata.name))


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """A program that prints for some seconds."""
    path = tmp_path / "hello.py"
    path.write_text(HELLO)
    return path


@pytest.fixture
def relay(backend: KubernetesBackend) -> Iterator[Relay]:
    """A relay between the backend and its API server."""
    server = urlsplit(backend.api.server)
    assert server.hostname and server.port
    running = Relay(server.hostname, server.port)
    backend.api.server = f"https://{server.hostname}:{running.port}"
    yield running
    running.end()


def stuck(hello: Path) -> Spec:
    """Options of a launch whose tasks never start."""
    patient = Lifecycle(grace=1.0, image_timeout=3600)
    return spec_of(hello, image=NEVER_THERE, lifecycle=patient)


def refusal(call: Callable[[], object]) -> TFClusterError | None:
    """Return the error of a call; None if it raises none."""
    try:
        call()
    except TFClusterError as error:
        return error
    return None


def words_of(refused: Callable[[], object]) -> TFClusterError:
    """Return the error of a call that must fail."""
    told = refusal(refused)
    assert told is not None, "it was not refused"
    return told


def test_every_verb_with_the_users_rights_alone(
    backend: KubernetesBackend, hello: Path, tmp_path: Path
) -> None:
    """From a laptop all operations work with only a user's role. Operations that need the volumes
    are refused with that reason.
    """
    manager = ClusterManager(backend)
    assert manager.options().backend == "kubernetes"
    name = manager.launch(str(hello), workers=2, name="verbs").metadata.name
    printed: dict[str, list[str]] = {}
    for line in manager.logs(name, follow=True):
        if line is not None and not line.text.startswith("tfcluster: "):
            printed.setdefault(line.task, []).append(line.text)
    every = [f"line {i}" for i in range(40)]
    assert printed == {"worker-0": every, "worker-1": every}
    assert manager.wait(name, 300, until=Until.RELEASED).status.phase is Phase.SUCCEEDED
    assert [run.metadata.name for run in manager.list()] == [name]
    last = [line.text for line in manager.logs(name, ["worker-1"], tail=1) if line]
    assert last == ["line 39"]
    again = manager.rerun(name).metadata.name
    assert again == "verbs-2"
    manager.stop(again, "enough")
    assert manager.wait(again, 300, until=Until.RELEASED).status.phase is Phase.STOPPED
    assert isinstance(words_of(lambda: manager.delete(name, with_logs=True)), Conflict)
    manager.delete(name)
    manager.delete(again)
    assert isinstance(words_of(lambda: manager.status("verbs")), NotFound)

    large = tmp_path / "large.py"
    large.write_text("text = '" + "x" * 70_000 + "'\n")
    told = str(words_of(lambda: manager.launch(str(large))))
    assert "workspace volume" in told and "launch it there" in told


COUNTS = """
import os, pathlib, time
kept = pathlib.Path(os.environ["TFCLUSTER_OUTPUT_DIR"], "model.ckpt-1.index")
task = os.environ["TFCLUSTER_TASK"]
if kept.exists():
    print(task, "goes on from", kept.read_text(), flush=True)
else:
    kept.write_text("step 7")
    print("saved", flush=True)
    time.sleep(600)
"""


@pytest.mark.needs("rwx")
def test_an_active_run_is_resumed_with_another_size(
    backend: KubernetesBackend, tmp_path: Path
) -> None:
    """`rerun --workers 2 --resume` stops the run, and the next run starts from the checkpoints of
    the stopped run.
    """
    program = tmp_path / "counts.py"
    program.write_text(COUNTS)
    manager = ClusterManager(backend)
    first = manager.launch(str(program), workers=1, name="counts", grace="2s").metadata.name
    assert any(line and line.text == "saved" for line in manager.logs(first, follow=True))
    again = manager.rerun("counts", resume=True, workers=2)
    assert again.metadata.name == "counts-2"
    assert manager.status(first).status.phase is Phase.STOPPED
    printed = {line.text for line in manager.logs("counts-2", follow=True) if line}
    assert {f"worker-{index} goes on from step 7" for index in range(2)} <= printed
    assert manager.wait("counts-2", 300).spec.resume_from == first


def test_a_watch_outlives_a_cut(backend: KubernetesBackend, relay: Relay, hello: Path) -> None:
    """Deletions and launches while the connection is cut are reported once it is back."""
    direct = KubernetesBackend()
    direct.create(LaunchRequest(cluster="first", spec=stuck(hello)))
    watch = (change for change in backend.watch() if change is not None)
    first = next(watch)
    assert isinstance(first, TFCluster)
    assert first.metadata.name == "first-1"
    relay.closed.set()
    relay.cut()
    direct.api.delete(client.path("tfclusters", direct.namespace, "first-1"))
    direct.create(LaunchRequest(cluster="second", spec=stuck(hello)))
    relay.closed.clear()
    removed: list[str] = []
    made: list[TFCluster] = []
    while not (removed and made):
        change = next(watch)
        if isinstance(change, Removed):
            removed.append(change.name)
        elif change.metadata.name == "second-1":
            made.append(change)
    assert removed == ["first-1"]


def test_following_one_run_outlives_a_cut(
    backend: KubernetesBackend, relay: Relay, hello: Path
) -> None:
    """A wait for one run continues while the API server is down, and gets the run's end."""
    direct = KubernetesBackend()
    name = direct.create(LaunchRequest(cluster="digits", spec=stuck(hello))).metadata.name
    watch = backend.watch(name)
    next(change for change in watch if change is not None)
    relay.closed.set()
    relay.cut()
    direct.stop(name, Stop(reason="meanwhile"))
    relay.closed.clear()
    last = [change for change in watch if change is not None][-1]
    assert last.status.phase is Phase.STOPPED
    assert last.status.released_at is not None


def test_followed_logs_outlive_a_cut(backend: KubernetesBackend, relay: Relay, hello: Path) -> None:
    """A client that follows a task's log gets every line once, and sees the end of the task,
    although the API server was down.
    """
    manager = ClusterManager(backend)
    name = manager.launch(str(hello), workers=1, name="cut").metadata.name
    told: list[str] = []
    for line in manager.logs(name, follow=True):
        told += [line.text] if line and not line.text.startswith("tfcluster: ") else []
        if line and line.text == "line 5":
            relay.closed.set()
            relay.cut()
            threading.Timer(2.0, relay.closed.clear).start()
    assert told == [f"line {i}" for i in range(40)]


def test_a_server_that_is_away(backend: KubernetesBackend, relay: Relay) -> None:
    """Verbs name the server that does not answer and say that runs continue; afterwards they work
    again.
    """
    relay.closed.set()
    relay.cut()
    told = words_of(backend.list)
    assert isinstance(told, BackendUnavailable)
    assert backend.api.server in str(told) and "running tasks continue" in str(told)
    relay.closed.clear()
    assert backend.list() == []


def test_a_token_that_is_no_longer_good(
    user: Path, kube: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that the server does not accept any more are reported, with a remedy."""
    kube.apply(*tenants.rights(tenants.user_rules(), kube.namespace))
    path = tenants.kubeconfig(kube, tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert KubernetesBackend().list() == []
    kube.delete("serviceaccount", tenants.ACCOUNT)
    wait_until(
        lambda: refusal(KubernetesBackend().list),
        "the server refuses the token",
        seconds=120,
    )
    told = words_of(KubernetesBackend().list)
    assert isinstance(told, BackendUnavailable)
    assert "does not accept these credentials" in str(told) and "Sign in" in str(told)


def test_missing_rights(
    user: Path, kube: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a right is missing, the message names the resource and the namespace, and says whom to
    ask.
    """
    kube.apply(*tenants.rights([], kube.namespace))
    path = tenants.kubeconfig(kube, tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(path))
    told = words_of(KubernetesBackend().list)
    assert isinstance(told, NotAllowed)
    assert f"may not list tfclusters in namespace {kube.namespace}" in str(told)
    assert "bind the ClusterRole tfcluster-user" in str(told)


def test_a_cluster_without_tfcluster(backend: KubernetesBackend) -> None:
    """If the server does not know the resource, the error says how to install TFCluster."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(client.API_PREFIXES, "tfclusters", "/apis/tfcluster.dev/v0")
        told = words_of(backend.list)
    assert isinstance(told, BackendUnavailable)
    assert "TFCluster is not installed on this cluster" in str(told)


def test_a_namespace_that_no_operator_serves(
    user: Path, kube: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch in a namespace without an operator is refused; the message says what is missing."""
    monkeypatch.setenv("KUBECONFIG", kube.kubeconfig)
    told = words_of(KubernetesBackend(namespace=kube.namespace).options)
    assert "does not serve namespace" in str(told) and "tfcluster.dev/tenant=true" in str(told)


def test_a_spec_cannot_be_changed(backend: KubernetesBackend, hello: Path) -> None:
    """If the API server refuses a change of a spec, the error lists problems by field, as for a
    launch.
    """
    run = backend.create(LaunchRequest(cluster="digits", spec=stuck(hello)))
    where = client.path("tfclusters", backend.namespace, run.metadata.name)

    def change() -> None:
        with backend._explained(run.metadata.name):
            backend.api.merge(where, {"spec": {"lifecycle": {"graceSeconds": 7}}})

    refused = words_of(change)
    assert isinstance(refused, InvalidRequest)
    assert any("spec" in str(problem.field) for problem in refused.problems)


def test_in_graph_servers_are_out_of_reach_of_a_laptop(
    backend: KubernetesBackend,
) -> None:
    """Connecting from outside of the cluster is refused; the message says where it works."""
    spec = Spec(mode=Mode.IN_GRAPH, image=NEVER_THERE)
    run = backend.create(LaunchRequest(cluster="drive", spec=spec))
    told = backend.out_of_reach(run)
    assert told is not None and "connect in a notebook there" in told
    assert f"{run.metadata.name}-worker-0.{run.metadata.name}:2222" in told
