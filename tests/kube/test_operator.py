"""The operator on a real cluster: its runs while it works, while it is stopped, and after it has
started again.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubenode.commands import wait_until
from support.kube import workloads
from support.kube.kubectl import Object
from support.kube.operator import Tenant, spec_of
from support.kube.under_test import UnderTest

from tfcluster_magic.kube.api import access
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.api.decoding import epoch_seconds
from tfcluster_magic.kube.api.informer import CacheUpdate, Informer
from tfcluster_magic.spec import Lifecycle

PROGRAM = """
import os, signal, sys, time
name, attempt = os.environ["TFCLUSTER_TASK"], os.environ["TFCLUSTER_ATTEMPT"]
print("here is", name, attempt, flush=True)
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(float(sys.argv[2])), sys.exit(143)))
if name.startswith("worker-"):
    until = time.time() + float(sys.argv[1])
    while time.time() < until and not os.path.exists("/tmp/enough"):
        time.sleep(0.1)
    if len(sys.argv) > 3 and name == "worker-1":
        raise ValueError(sys.argv[3])
else:
    time.sleep(3600)
"""
"""Workers run for argv[1] s or until /tmp/enough exists. Every task takes argv[2] s to end. With
argv[3], worker-1 fails.
"""
LONG = "3600"
SHORT = Lifecycle(reclaim_after=2.0, grace=6.0)


class Watched:
    """The pods of a namespace, and when each was first asked to end."""

    def __init__(self, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", tenant.kubectl.kubeconfig)
        api, _namespace = access.connect()
        self.asked: dict[str, float] = {}
        self.pods: dict[str, Object] = {}
        self._lock = threading.Lock()
        self.informer = Informer(api, path("pods", tenant.name), changed=self._note)
        self.informer.start()
        assert self.informer.synced.wait(30)

    def _note(self, update: CacheUpdate) -> None:
        head = update.object["metadata"]
        with self._lock:
            self.pods[head["uid"]] = update.object
            if head.get("deletionTimestamp"):
                self.asked.setdefault(head["name"], time.time())

    def reclaimed(self, run: str) -> float:
        """Return when the run's parameter server was asked to end."""
        (found,) = (at for name, at in self.asked.items() if name.startswith(f"{run}-ps-"))
        return found

    def last_end(self, run: str) -> float:
        """Return when the last worker's container ended, by the node's clock; rounded up to a
        second.
        """
        ends = []
        for pod in self.pods.values():
            if pod["metadata"]["name"].startswith(f"{run}-worker-"):
                state = pod["status"]["containerStatuses"][0]["state"]
                ends.append(epoch_seconds(state["terminated"]["finishedAt"]) or 0.0)
        return max(ends)


@pytest.fixture(scope="module")
def watched(tenant: Tenant) -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patched:
        seen = Watched(tenant, patched)
    yield seen
    seen.informer.stop()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("program") / "work.py"
    file.write_text(PROGRAM)
    return file


@pytest.fixture(scope="module")
def launched(tenant: Tenant, watched: Watched, program: Path) -> Tenant:
    """All runs of these tests, launched together, so that the tests take only as long as the
    longest run.
    """
    tenant.launch("works-1", spec_of(program, "1", "0", workers=2, ps=1, lifecycle=SHORT))
    fails = ("2", "0", "the shapes do not match")
    tenant.launch("fails-1", spec_of(program, *fails, workers=2, ps=1, lifecycle=SHORT))
    brief = Lifecycle(reclaim_after=0.0, keep_for=6.0)
    tenant.launch("brief-1", spec_of(program, "1", "0", lifecycle=brief))
    for name in ("stops-1", "goes-1", "heals-1"):
        tenant.launch(name, spec_of(program, LONG, "0", workers=2, ps=1, lifecycle=SHORT))
    tenant.launch("again-1", spec_of(program, LONG, "0", lifecycle=SHORT))
    tenant.launch("group-1", spec_of(program, LONG, "0", workers=2, lifecycle=SHORT))
    return tenant


@pytest.fixture(scope="module")
def hurt(launched: Tenant) -> dict[str, list[Object]]:
    """The workers of two runs, as they were before the first worker of each run was deleted. The
    deletion comes before the other tests, because Kubernetes takes ten seconds to replace a pod.
    """
    before = {}
    for name in ("heals-1", "group-1"):
        launched.phase(name, "Running")
        before[name] = launched.pods(name, "worker")
    names = (pods[0]["metadata"]["name"] for pods in before.values())
    launched.kubectl("delete", "pod", *names, "--wait=false")
    return before


@pytest.mark.usefixtures("hurt")
def test_a_failure_names_the_task_and_its_last_lines(launched: Tenant) -> None:
    """A run whose program fails is Failed, names the task and its error, and frees its parameter
    server. `kubectl wait` for the condition Failed returns.
    """
    status = launched.phase("fails-1", "Failed")
    launched.kubectl("wait", "tfc/fails-1", "--for=condition=Failed", "--timeout=60s")
    assert status["culprit"] == "worker-1"
    assert "worker-1" in status["message"]
    assert "the shapes do not match" in status["message"]
    launched.wait("fails-1", lambda s: s.get("releasedAt"), "its resources are released")
    assert launched.status("fails-1")["counts"]["ps"] == {"desired": 1, "stopped": 1}


def test_a_stop_ends_every_task(launched: Tenant) -> None:
    """`spec.stop` ends all tasks of a run; the run is then Stopped, with the given reason."""
    launched.phase("stops-1", "Running")
    asked = '{"spec":{"stop":{"reason":"lunch","by":"alice","time":"2026-01-31T12:00:00Z"}}}'
    launched.kubectl("patch", "tfcluster", "stops-1", "--type=merge", "-p", asked)
    status = launched.phase("stops-1", "Stopped")
    assert "lunch" in status["message"]
    assert launched.kubectl.get("tfc", "stops-1")["metadata"]["generation"] == 2
    launched.kubectl("wait", "tfc/stops-1", "--for=condition=Failed", "--timeout=60s")
    wait_until(lambda: not launched.pods("stops-1"), "its pods are gone", seconds=120)


def test_a_deleted_run_leaves_nothing(launched: Tenant) -> None:
    """Deleting a running run also deletes its pods and all its objects."""
    launched.phase("goes-1", "Running")
    launched.kubectl("delete", "tfcluster", "goes-1")
    wait_until(lambda: not launched.left_of("goes-1"), "nothing of it is left", seconds=120)
    assert "goes-1: the turn failed" not in launched.operator.log()


def test_a_deleted_worker_is_replaced(launched: Tenant, hurt: dict[str, list[Object]]) -> None:
    """A deleted worker pod is replaced and the status says so; the other worker stays."""
    (victim, other) = hurt["heals-1"]

    def is_healed(status: Object) -> bool:
        counts = status["counts"]["worker"]
        return bool(status.get("heals") == 1 and counts.get("running") == 2)

    status = launched.wait("heals-1", is_healed, "both workers run again", seconds=120)

    def pod_names() -> set[str]:
        return {pod["metadata"]["name"] for pod in launched.pods("heals-1", "worker")}

    assert other["metadata"]["name"] in pod_names()
    # a Job replaces a pod once its containers have ended; the kubelet may remove that pod later
    wait_until(
        lambda: victim["metadata"]["name"] not in pod_names(), "the deleted pod is gone", seconds=60
    )
    assert any("deleted" in event["message"] for event in status["events"])


def test_workers_without_parameter_servers_restart_together(
    launched: Tenant, hurt: dict[str, list[Object]]
) -> None:
    """Without parameter servers, a lost worker restarts all workers as the next attempt."""
    before = {pod["metadata"]["uid"] for pod in hurt["group-1"]}

    def is_restarted(status: Object) -> bool:
        counts = status["counts"]["worker"]
        return bool(status.get("attempt") == 2 and counts.get("running") == 2)

    status = launched.wait("group-1", is_restarted, "both run as attempt 2", seconds=120)
    assert (status["heals"], status["restarts"]) == (1, {"worker-0": 1, "worker-1": 1})
    running = [p for p in launched.pods("group-1") if p["status"]["phase"] == "Running"]
    assert len(running) == 2
    assert not before & {pod["metadata"]["uid"] for pod in running}


def test_a_run_of_a_deleted_name_waits_for_the_old_pods(launched: Tenant, program: Path) -> None:
    """A run with a deleted run's name is Queued until that run's pods have ended, says so, and then
    starts.
    """
    launched.phase("again-1", "Running")
    (ends,) = launched.pods("again-1")
    old = {ends["metadata"]["uid"]}
    # Delete its output too: a run never writes among the files of an earlier run.
    launched.kubectl.exec(ends["metadata"]["name"], "rm", "-rf", "/log/again/1")
    # a finalizer keeps the pod until its output is checked
    kept = '{"metadata": {"finalizers": ["tests.tfcluster.dev/kept"]}}'
    launched.kubectl("patch", "pod", ends["metadata"]["name"], "-p", kept)
    launched.kubectl("delete", "tfcluster", "again-1")
    launched.launch("again-1", spec_of(program, LONG, "0", lifecycle=SHORT))
    status = launched.wait("again-1", lambda s: s.get("message"), "it says what it waits for")
    assert status["phase"] == "Queued"
    assert "of an earlier run of this name" in status["message"]
    let_go = '{"metadata": {"finalizers": null}}'
    launched.kubectl("patch", "pod", ends["metadata"]["name"], "--type=merge", "-p", let_go)
    launched.phase("again-1", "Running")
    assert not old & {pod["metadata"]["uid"] for pod in launched.pods("again-1")}


def test_a_later_run_of_the_same_name_runs_its_own_program(
    tenant: Tenant, cluster: UnderTest, tmp_path: Path
) -> None:
    """A run never gets the program of a deleted run of its name, even on a node that still has that
    program.

    To keep the deleted run's program on the node, another pod mounts the same volumes: the kubelet
    keeps their files while any pod mounts them, and a little longer.
    """
    file = tmp_path / "say.py"
    file.write_text("print('the first')")
    tenant.launch("twice-1", spec_of(file))
    tenant.phase("twice-1", "Succeeded")
    (worker,) = tenant.pods("twice-1")
    reads = workloads.pod("reads-twice-1", cluster.busybox)
    reads["spec"]["volumes"] = worker["spec"]["volumes"]
    mounts = worker["spec"]["containers"][0]["volumeMounts"]
    reads["spec"]["containers"][0]["volumeMounts"] = mounts
    tenant.kubectl.apply(reads)
    tenant.kubectl.running("reads-twice-1")
    tenant.kubectl("delete", "tfcluster", "twice-1")
    # Delete its output too: a run never writes among the files of an earlier run.
    tenant.kubectl.exec("reads-twice-1", "rm", "-rf", "/log/twice/1")
    wait_until(lambda: not tenant.left_of("twice-1"), "nothing of it is left", seconds=120)
    file.write_text("print('the second')")
    tenant.launch("twice-1", spec_of(file))
    tenant.phase("twice-1", "Succeeded")
    (worker,) = tenant.pods("twice-1")
    assert "the second" in tenant.kubectl.logs(worker["metadata"]["name"])
    tenant.kubectl.delete("pod", "reads-twice-1", "--wait=false")


def test_training_goes_on_without_the_copy_of_its_log(tenant: Tenant, tmp_path: Path) -> None:
    """If a task's log volume stops accepting its output, the task continues to train, and the
    status warns once.
    """
    file = tmp_path / "full.py"
    file.write_text(
        "import os\n"
        "copy = os.environ['TFCLUSTER_OUTPUT_DIR'] + '/' + os.environ['TFCLUSTER_TASK'] + '.log'\n"
        "print('begun', flush=True)\n"
        "while not (os.path.exists(copy) and open(copy).read()): pass\n"
        "os.unlink(copy)\n"
        "os.symlink('/dev/full', copy)\n"
        "for line in range(1000): print('line', line, flush=True)\n"
    )
    tenant.launch("full-1", spec_of(file, workers=2))
    status = tenant.phase("full-1", "Succeeded")
    told = [
        words for words in status["warnings"] if "accepts no copies of the tasks' output" in words
    ]
    assert len(told) == 1
    for worker in tenant.pods("full-1"):
        assert "line 999" in tenant.kubectl.logs(worker["metadata"]["name"])


def test_a_record_goes_when_its_time_is_over(launched: Tenant) -> None:
    """A record is deleted `keepFor` after the run's end, with all objects of the run."""
    wait_until(lambda: not launched.left_of("brief-1"), "the record is gone", seconds=120)


def test_a_run_succeeds_with_its_workers_and_frees_its_ps(
    launched: Tenant, watched: Watched
) -> None:
    """A run succeeds once its workers have succeeded. Its parameter server is asked to end
    `reclaimAfter` later.
    """
    status = launched.phase("works-1", "Succeeded")
    launched.kubectl("wait", "tfc/works-1", "--for=condition=Complete", "--timeout=60s")
    assert status["counts"]["worker"] == {"desired": 2, "succeeded": 2}
    status = launched.wait("works-1", lambda s: s.get("releasedAt"), "its ps has ended")
    assert status["reclaimed"]["tasks"] == ["ps-0"]
    waited = watched.reclaimed("works-1") - watched.last_end("works-1")
    print(f"the ps was asked to end {waited:.1f} s after the last worker's exit")
    assert waited >= SHORT.reclaim_after - 1  # Kubernetes writes whole seconds


def _without_standstill(status: Object) -> Object:
    """Return a status without the parts that may change while a run is left alone: its messages,
    which after a minute report a silent program, and the fields about recent failures.
    """
    words = ("events", "message", "messages", "reason", "conditions", "failures", "windowOpenedAt")
    return {key: value for key, value in status.items() if key not in words}


def test_an_operator_that_returns_catches_up(
    launched: Tenant, watched: Watched, program: Path
) -> None:
    """An operator that starts again catches up with a run whose workers ended while it was stopped.
    It reclaims the parameter server, dates the success from the worker's exit, and changes no other
    run.
    """
    launched.launch("away-1", spec_of(program, LONG, "0", ps=1, lifecycle=SHORT))
    launched.phase("away-1", "Running")
    # Do not check the run's reason, which may be Stalled because the program prints nothing.
    launched.wait("heals-1", lambda s: s["counts"]["worker"].get("running") == 2, "healed")
    others = {pod["metadata"]["uid"] for pod in launched.pods("heals-1")}
    before = _without_standstill(launched.status("heals-1"))
    launched.operator.stop()
    worker = launched.pods("away-1", "worker")[0]["metadata"]["name"]
    launched.kubectl.exec(worker, "touch", "/tmp/enough")
    launched.kubectl.wait(
        "pod", worker, lambda pod: pod["status"]["phase"] == "Succeeded", "the worker has ended"
    )
    time.sleep(SHORT.reclaim_after)  # reclaimAfter passes while no operator runs
    (server,) = launched.pods("away-1", "ps")
    assert server["metadata"].get("deletionTimestamp") is None
    launched.operator.start()
    back = time.time()
    name = server["metadata"]["name"]
    wait_until(lambda: watched.asked.get(name), "its ps is asked to end", seconds=120)
    print(f"the ps was asked to end {watched.reclaimed('away-1') - back:.1f} s after the start")
    assert launched.phase("away-1", "Succeeded")["finishedAt"] <= watched.last_end("away-1") + 1.5
    print("ready after", re.findall(r"ready after ([\d.]+) s", launched.operator.log())[-1], "s")
    assert _without_standstill(launched.status("heals-1")) == before
    assert {pod["metadata"]["uid"] for pod in launched.pods("heals-1")} == others
