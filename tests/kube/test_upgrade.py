"""Faults and upgrades of control plane and nodes, which do not affect active runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubenode import control_plane, images, registry
from kubenode.buildah import buildah
from kubenode.commands import wait_until
from support.kube import tenants
from support.kube.kubectl import Object, is_ready
from support.kube.operator import Tenant, install, spec_of
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.errors import BackendUnavailable, TFClusterError
from tfcluster_magic.spec import Lifecycle

pytestmark = [pytest.mark.alone, pytest.mark.needs("node-inside", "rwx", "network-policy")]

TICK = """
import os, time
while not os.path.exists("/tmp/enough"):
    print("at", round(time.time(), 2), flush=True)
    time.sleep(0.2)
"""
AWAY = 22.0
"""Seconds without an API server: longer than the operator's Lease lasts, and longer than a node may
be silent before it counts as lost.
"""


@pytest.fixture(scope="module")
def operator(cluster: UnderTest, installed: Installed | None) -> Installed:
    """The operator, installed as users install it."""
    assert installed, "these tests are about the installed operator"
    return installed


@pytest.fixture(scope="module")
def ticking(
    new_tenant: Callable[[], Tenant], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tenant]:
    """A run that prints the time continuously."""
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    program = tmp_path_factory.mktemp("program") / "tick.py"
    program.write_text(TICK)
    ends = Lifecycle(grace=1.0, reclaim_after=0.0)
    tenant.launch("ticks-1", spec_of(program, workers=2, lifecycle=ends))
    tenant.phase("ticks-1", "Running")
    yield tenant
    tenant.kubectl("delete", "tfclusters", "--all", "--wait=false")


@pytest.fixture
def undisturbed(ticking: Tenant) -> Iterator[None]:
    """Check that a test changes neither pods nor record of the run, and that the run continues."""
    before, pods = ticking.status("ticks-1"), _uids(ticking)
    yield
    ended = time.time()
    assert _uids(ticking) == pods
    assert ticking.status("ticks-1") == before
    for pod in ticking.pods("ticks-1"):
        name = pod["metadata"]["name"]
        wait_until(lambda name=name: _ticked(ticking, name) > ended, f"{name} ticks", seconds=90)


def _ticked(tenant: Tenant, pod: str) -> float:
    """Return when a task printed its last line."""
    times = re.findall(r"^at ([\d.]+)$", tenant.kubectl.logs(pod), re.MULTILINE)
    return max(map(float, times), default=0.0)


def _uids(tenant: Tenant) -> set[str]:
    return {each["metadata"]["uid"] for each in tenant.pods("ticks-1")}


def _serves(tenant: Tenant, name: str, tmp_path: Path) -> float:
    """Launch a run, wait until the operator admits it, and return the time of the admission."""
    program = tmp_path / "brief.py"
    program.write_text("print(1)\n")
    tenant.launch(name, spec_of(program, lifecycle=Lifecycle(grace=1.0)))
    status = tenant.wait(name, lambda s: s.get("startedAt"), "it is admitted", seconds=90)
    tenant.kubectl("delete", "tfcluster", name, "--wait=false")
    return float(status["startedAt"])


@pytest.mark.usefixtures("undisturbed")
def test_an_operator_that_is_killed_is_back_at_once(
    operator: Installed, ticking: Tenant, tmp_path: Path
) -> None:
    """An operator killed with SIGKILL restarts in its pod, takes its own Lease back before it
    expires, and serves a launch.
    """
    (before,) = operator.kubectl.every("pod", "app=tfcluster-operator")
    name = before["metadata"]["name"]
    killed = time.time()
    operator.kubectl.succeeds(name, "sh", "-c", "kill -KILL -1")
    took = _serves(ticking, "killed-1", tmp_path) - killed
    print(f"a launch is served {took:.1f} s after the operator was killed")
    after = operator.kubectl.running(name)
    said = operator.kubectl.logs(name)
    assert "leading as" in said
    assert "waiting until it has ended" not in said
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (was,), (now,) = (each["status"]["containerStatuses"] for each in (before, after))
    assert now["restartCount"] == was["restartCount"] + 1


@pytest.mark.usefixtures("undisturbed")
def test_the_next_version_keeps_what_runs(
    cluster: UnderTest, operator: Installed, ticking: Tenant, tmp_path: Path
) -> None:
    """`kubectl apply -k` with another image replaces only the operator: the pods and record of a
    run stay the same, and the next launch is served.
    """
    assert cluster.own
    image = images.build("operator")
    following = images.Image("operator", f"{image.tag}-next")
    buildah(["tag", image.reference, following.reference])
    registry.push(following, cluster.own.first)
    install(cluster, following.reference, tmp_path)
    (pod,) = list(operator.kubectl.every("pod", "app=tfcluster-operator"))
    assert pod["spec"]["containers"][0]["image"] == following.reference
    _serves(ticking, "upgraded-1", tmp_path)


@pytest.fixture
def without_api(cluster: UnderTest, operator: Installed) -> Iterator[Callable[[], None]]:
    """Return a function that restarts the API server, which this fixture has killed."""
    assert cluster.own
    node = cluster.own.first

    def start() -> None:
        if not node.alive("kube-apiserver"):
            node.start_again("kube-apiserver")
            control_plane.ready(node)

    node.stop("kube-apiserver", "KILL")
    yield start
    start()


def test_a_run_goes_on_without_an_api_server(
    ticking: Tenant,
    undisturbed: None,
    without_api: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without an API server a run continues, and clients say so. When the server returns, nothing
    of the run has changed, and operator and clients work again.
    """
    monkeypatch.setenv("KUBECONFIG", ticking.kubectl.kubeconfig)
    went = time.monotonic()
    told = _refusal(KubernetesBackend(namespace=ticking.name).list)
    assert isinstance(told, BackendUnavailable)
    assert "running tasks continue" in str(told)
    # keep the API server away for AWAY seconds
    time.sleep(max(0.0, AWAY - (time.monotonic() - went)))
    without_api()
    back = time.time()
    (run,) = KubernetesBackend(namespace=ticking.name).list()
    assert run.metadata.name == "ticks-1"
    print(f"served {_serves(ticking, 'back-1', tmp_path) - back:.1f} s after its return")
    operator = ticking.operator
    assert isinstance(operator, Installed)
    operator.kubectl("rollout", "status", "deployment/operator", "--timeout=120s", seconds=150)


def test_the_run_ends_well(ticking: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all these faults the run ends in its first attempt, and a waiting client sees it."""
    monkeypatch.setenv("KUBECONFIG", ticking.kubectl.kubeconfig)
    manager = ClusterManager(KubernetesBackend(namespace=ticking.name))
    with ThreadPoolExecutor(1) as waiting:
        end = waiting.submit(manager.wait, "ticks-1", 120)
        for pod in ticking.pods("ticks-1"):
            ticking.kubectl.exec(pod["metadata"]["name"], "touch", "/tmp/enough")
        status = end.result().status
    assert status.phase.value == "Succeeded"
    assert (status.attempt, status.heals, status.restarts) == (1, 0, {})


def _refusal(call: Callable[[], object]) -> TFClusterError | None:
    try:
        call()
    except TFClusterError as error:
        return error
    return None


@pytest.fixture
def again(cluster: UnderTest, operator: Installed, tmp_path: Path) -> Iterator[None]:
    """Install everything again after the test, with the same image, so that no other operator pod
    starts.
    """
    pod = operator.kubectl.get("deployment", "operator")["spec"]["template"]["spec"]
    yield
    install(cluster, pod["containers"][0]["image"], tmp_path / "again")


def _replace(operator: Installed) -> str:
    """Replace the operator's pod by one that cannot become ready; return its name."""
    operator.kubectl("delete", "pod", "-l", "app=tfcluster-operator")

    def running() -> list[Object]:
        pods = operator.kubectl.every("pod", "app=tfcluster-operator")
        return [each for each in pods if each["status"]["phase"] == "Running"]

    wait_until(running, "it runs", seconds=120)
    return str(running()[0]["metadata"]["name"])


@pytest.mark.usefixtures("again")
def test_an_operator_that_lacks_something_says_what(
    cluster: UnderTest,
    operator: Installed,
    new_tenant: Callable[[], Tenant],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the custom resource or without its rights, the operator is not ready and its log says
    what to apply.

    A client says that TFCluster is not installed. Once the custom resource and the rights are
    back, the operator works.
    """
    tenant = new_tenant()
    crd = cluster.kubectl.get("crd", "tfclusters.tfcluster.dev")
    binding = cluster.kubectl.get("clusterrolebinding", "tfcluster-operator")
    cluster.kubectl("delete", "crd", "tfclusters.tfcluster.dev", seconds=180)
    cluster.kubectl("delete", "clusterrolebinding", "tfcluster-operator")
    monkeypatch.setenv("KUBECONFIG", tenant.kubectl.kubeconfig)
    told = str(_refusal(KubernetesBackend(namespace=tenant.name).list))
    assert "TFCluster is not installed on this cluster" in told
    name = _replace(operator)

    def says(words: str) -> None:
        wait_until(lambda: words in operator.log(), words, seconds=120, every=1.0)

    says("gives the operator its rights")
    assert not is_ready(operator.kubectl.get("pod", name))
    cluster.kubectl.apply(_again(binding))
    says("the custom resource is not installed: `kubectl apply -k k8s/crds`")
    assert not is_ready(operator.kubectl.get("pod", name))
    cluster.kubectl.apply(_again(crd))
    operator.kubectl.running(name, seconds=120)
    _serves(tenant, "first-1", tmp_path)


def _again(found: Object) -> Object:
    """Return an object in a form that can be applied again."""
    head = {key: found["metadata"][key] for key in ("name", "labels") if key in found["metadata"]}
    rest = {key: value for key, value in found.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": head}
