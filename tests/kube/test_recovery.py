"""Recovery of TensorFlow training after a deleted parameter server and after a lost node."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl, Object, condition, is_ready
from support.kube.operator import SMALL, SYSTEM, Tenant, spec_of
from support.kube.under_test import UnderTest
from support.kube.workloads import fetch, pod, web

from tfcluster_magic.kube.api.decoding import epoch_seconds
from tfcluster_magic.kube.api.resource_amounts import parse_quantity, pod_resources
from tfcluster_magic.kube.status.exit_status import is_over
from tfcluster_magic.spec import Lifecycle

pytestmark = [pytest.mark.alone, pytest.mark.needs("two-nodes", "node-inside", "rwx")]

TRAIN = """
import os, time
import tensorflow.compat.v1 as tf

flags = tf.flags
flags.DEFINE_list("ps_hosts", [], "")
flags.DEFINE_list("worker_hosts", [], "")
flags.DEFINE_string("job_name", "worker", "")
flags.DEFINE_integer("task_index", 0, "")
FLAGS = flags.FLAGS


def main(_):
    tf.logging.set_verbosity(tf.logging.ERROR)
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts, "worker": FLAGS.worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    mine = f"/job:worker/task:{FLAGS.task_index}"
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(worker_device=mine, cluster=cluster)):
            step = tf.train.get_or_create_global_step()
            one_more = tf.assign_add(step, 1, use_locking=True)
        with tf.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=FLAGS.task_index == 0,
            checkpoint_dir=os.environ["TFCLUSTER_OUTPUT_DIR"],
            save_checkpoint_steps=20,
            config=tf.ConfigProto(device_filters=["/job:ps", mine]),
        ) as session:
            while not session.should_stop():
                done = session.run(one_more)
                print(f"at {time.time():.2f} step {done}", flush=True)
                time.sleep(0.2)


tf.app.run(main)
"""
GROUP = """
import json, os, pathlib, socket, time

config = json.loads(os.environ["TF_CONFIG"])
(host, port), first = config["cluster"]["worker"][0].rsplit(":", 1), config["task"]["index"] == 0
if first:
    listener = socket.create_server(("", int(port)))
    peer, _address = listener.accept()
    while peer.recv(1) != b"h":  # a probe
        peer, _address = listener.accept()
else:
    while True:
        try:
            peer = socket.create_connection((host, int(port)), 5)
            break
        except OSError:
            time.sleep(0.2)
    peer.settimeout(None)
    peer.sendall(b"h")
saved = pathlib.Path(os.environ["TFCLUSTER_OUTPUT_DIR"], "epoch")
epoch = int(saved.read_text()) if saved.exists() else 1
while True:  # each epoch needs both
    print(f"Epoch {epoch}/", flush=True)
    peer.sendall(b"x")
    if not peer.recv(1):
        raise RuntimeError("UNAVAILABLE: failed to connect to all addresses: Socket closed")
    epoch += 1
    if first:
        saved.with_suffix(".new").write_text(str(epoch))
        saved.with_suffix(".new").replace(saved)
    time.sleep(0.5)
"""
"""Synchronous workers, as in MultiWorkerMirroredStrategy: each needs the other in every epoch."""
STEP = re.compile(r"^at ([\d.]+) step (\d+)$", re.MULTILINE)
EPOCH = re.compile(r"^Epoch (\d+)/", re.MULTILINE)


@dataclass(frozen=True)
class Resumed:
    """Facts about training that continued after a fault."""

    after: float
    """Seconds from the fault to the first step of any worker."""
    last: int
    """Last step before all replacement pods were up."""
    first: int
    """First step after all replacement pods were up."""


@dataclass
class Training:
    """A run whose output tests read from the log volume, because its pods and nodes may be gone."""

    tenant: Tenant
    name: str

    def log(self, task: str) -> str:
        """Return what a task has printed in all its attempts."""
        return self._read(f"cat {self._folder}/{task}.log")

    def checkpoint(self) -> int:
        """Return the step of the newest checkpoint; -1 if there is none."""
        found = re.findall(r"model\.ckpt-(\d+)\.index", self._read(f"ls {self._folder}"))
        return max(map(int, found), default=-1)

    def steps(self) -> list[tuple[float, int]]:
        """Return the times and numbers of all workers' steps, sorted."""
        both = STEP.findall(self.log("worker-0")) + STEP.findall(self.log("worker-1"))
        return sorted((float(at), int(step)) for at, step in both)

    def resumed(self, fault: float) -> Resumed | None:
        """Return the facts once all replacement pods were up and training continued; None until
        then.
        """
        new = [pod for pod in self.tenant.pods(self.name) if _made(pod) > fault - 1.0]
        if not new or not all(map(is_ready, new)):
            return None
        up = max(_up(pod) for pod in new)
        steps = self.steps()
        last = max((step for at, step in steps if at <= up), default=-1)
        return next((Resumed(at - fault, last, step) for at, step in steps if at > up), None)

    def told(self) -> str:
        """Return the record's messages about restarts."""
        events = self.tenant.status(self.name)["events"]
        return "\n".join(each["message"] for each in events if each["reason"] == "Healing")

    @property
    def _folder(self) -> str:
        return "/log/" + self.name.replace("-", "/")

    def _read(self, command: str) -> str:
        return self.tenant.kubectl.exec("reader", "sh", "-c", f"{command} 2>/dev/null || true")


@pytest.fixture(scope="module")
def lose(cluster: UnderTest) -> Iterator[Callable[[], None]]:
    """Return a function that takes the second node down. The node is back and ready after these
    tests.
    """
    assert cluster.own
    own = cluster.own
    yield lambda: own.lose(own.second.name)
    own.up(second=True)
    cluster.kubectl.wait("node", own.second.name, is_ready, "it is ready again")


@pytest.fixture(scope="module")
def trainings(
    cluster: UnderTest, tenant: Tenant, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Training, Training]]:
    """Two running trainings: one with a parameter server, completely on the second node, and a
    synchronous one with a worker on each node. The operator is on the second node too.
    """
    assert cluster.own
    first, second = cluster.own.first.name, cluster.own.second.name
    program = tmp_path_factory.mktemp("program") / "train.py"
    program.write_text(TRAIN)
    group = program.with_name("group.py")
    group.write_text(GROUP)
    reader = pod("reader", cluster.busybox, volumeMounts=[{"name": "log", "mountPath": "/log"}])
    claim = {"claimName": "log"}
    reader["spec"] |= {
        "nodeName": first,
        "volumes": [{"name": "log", "persistentVolumeClaim": claim}],
    }
    tenant.kubectl.apply(reader)
    quick = Lifecycle(grace=3.0)
    cluster.kubectl("cordon", first)
    try:
        # The operator moves to the second node, too. A test takes this node down, and the
        # operator must soon run again on the first.
        operator = cluster.kubectl.within(SYSTEM)
        operator("delete", "pod", "-l", "app=tfcluster-operator")
        operator("rollout", "status", "deployment/operator", "--timeout=120s", seconds=150)
        tenant.launch("asynchronous-1", spec_of(program, workers=2, ps=1, lifecycle=quick))
        wait_until(lambda: _nodes(tenant, "asynchronous-1") == [second] * 3, "placed", seconds=120)
    finally:
        cluster.kubectl("uncordon", first)
    with _room_for_one_task_each(cluster, (first, second)):
        tenant.launch("synchronous-1", spec_of(group, workers=2, lifecycle=quick))
        there = [first, second]
        wait_until(lambda: sorted(_nodes(tenant, "synchronous-1")) == there, "placed", seconds=120)
    for name in ("asynchronous-1", "synchronous-1"):
        tenant.phase(name, "Running", seconds=400)
    yield Training(tenant, "asynchronous-1"), Training(tenant, "synchronous-1")
    tenant.kubectl("delete", "tfclusters", "asynchronous-1", "synchronous-1", "--wait=false")


@contextmanager
def _room_for_one_task_each(cluster: UnderTest, nodes: Sequence[str]) -> Iterator[None]:
    """Fill these nodes until each has resources for only one more task; otherwise both tasks of the
    run would be on one node.
    """
    kubectl = cluster.kubectl.within("default")
    kubectl.wait_until_furnished()
    task = parse_quantity(SMALL.memory)
    names = [f"fills-{node}" for node in nodes]
    for node, name in zip(nodes, names, strict=True):
        room = parse_quantity(cluster.kubectl.get("node", node)["status"]["allocatable"]["memory"])
        words = ("get", "pods", "-A", "-o", "json", f"--field-selector=spec.nodeName={node}")
        there = [each for each in json.loads(cluster.kubectl(*words))["items"] if not is_over(each)]
        room -= sum(pod_resources(each["spec"]).get("memory", 0.0) for each in there)
        assert room > 2 * task
        asked = {"requests": {"memory": str(int(room - 1.5 * task))}}
        filler = pod(name, cluster.busybox, resources=asked)
        filler["spec"]["nodeName"] = node
        kubectl.apply(filler)
    for name in names:
        kubectl.running(name)
    yield
    kubectl("delete", "pod", *names)


def _nodes(tenant: Tenant, name: str) -> list[str]:
    return [each["spec"].get("nodeName", "") for each in tenant.pods(name)]


def test_training_goes_on_after_its_parameter_server_was_deleted(
    tenant: Tenant, trainings: tuple[Training, Training]
) -> None:
    """A deleted parameter server returns, workers continue from the last checkpoint, and the record
    says what happened.
    """
    training, _group = trainings
    wait_until(lambda: training.checkpoint() >= 40, "checkpoints", seconds=120, every=2.0)
    (server,) = tenant.pods(training.name, "ps")
    saved, fault = training.checkpoint(), time.time()
    tenant.kubectl("delete", "pod", server["metadata"]["name"], "--wait=false")
    wait_until(lambda: training.resumed(fault), "a step", seconds=90, every=2.0)
    resumed = training.resumed(fault)
    assert resumed
    print(f"ps deleted: {resumed}, checkpoint at {saved}; {training.told()}")
    _tell(tenant, training, fault, resumed)
    assert resumed.first > saved
    assert re.search(r"ps-0 was killed from outside .*its pod was deleted", training.told())


def test_training_goes_on_after_a_node_was_lost(
    tenant: Tenant, trainings: tuple[Training, Training], lose: Callable[[], None]
) -> None:
    """After a node with tasks and the operator is lost, new pods on the other node continue the
    training.

    Only steps after the last checkpoint are lost, and the record names the lost node as the cause.
    """
    training, group = trainings
    wait_until(lambda: _epochs(group), "an epoch", seconds=120, every=2.0)
    saved, epochs, fault = training.checkpoint(), _epochs(group), time.time()
    lose()
    wait_until(lambda: training.resumed(fault), "a step", seconds=400, every=2.0)
    resumed = training.resumed(fault)
    assert resumed
    wait_until(lambda: len(_epochs(group)) > len(epochs) + 1, "an epoch", seconds=200, every=2.0)
    again = time.time() - fault
    print(f"node lost: {resumed}, checkpoint at {saved}; {training.told()}")
    print(f"group: {again:.1f} s, {epochs[-1]} {_epochs(group)[len(epochs) :]}")
    print(group.told())
    _tell(tenant, training, fault, resumed)
    assert resumed.first > saved
    assert _epochs(group)[len(epochs)] >= epochs[-1]
    for each in (training, group):
        assert "its node was lost" in each.told()
    assert {*tenant.status(training.name)["restarts"]} == {"ps-0", "worker-0", "worker-1"}


def test_a_node_that_lost_power_comes_back(
    cluster: UnderTest, kube: Kubectl, lose: Callable[[], None]
) -> None:
    """A lost node returns and runs pods."""
    assert cluster.own
    lost = cluster.own.second.name
    if is_ready(cluster.kubectl.get("node", lost)):  # no earlier test has lost the node
        lose()
    cluster.kubectl.wait("node", lost, lambda n: condition(n, "Ready") == "Unknown", "it is lost")
    cluster.own.up(second=True)
    cluster.kubectl.wait("node", lost, is_ready, "it is ready again")
    server = web("server", cluster.busybox)
    server["spec"]["nodeName"] = lost
    kube.apply(server, pod("client", cluster.busybox))
    address = kube.running("server")["status"]["podIP"]
    kube.running("client")
    asks = fetch(address)
    wait_until(lambda: kube.succeeds("client", *asks), "a client reaches a pod there", seconds=90)


def _tell(tenant: Tenant, training: Training, fault: float, resumed: Resumed) -> None:
    """Print when the replacement pods were created, were up, and made a step."""
    new = [pod for pod in tenant.pods(training.name) if _made(pod) > fault - 1.0]
    made, up = max(map(_made, new)) - fault, max(map(_up, new)) - fault
    print(f"pods after {made:.0f} s, up after {up:.0f} s, steps after {resumed.after:.0f} s")


def _made(pod: Object) -> float:
    """Return when a pod was created."""
    return epoch_seconds(pod["metadata"]["creationTimestamp"]) or 0.0


def _up(pod: Object) -> float:
    """Return when a ready pod became ready."""
    ready = (c for c in pod["status"]["conditions"] if c["type"] == "ContainersReady")
    return epoch_seconds(next(ready)["lastTransitionTime"]) or 0.0


def _epochs(group: Training) -> list[int]:
    return [int(each) for each in EPOCH.findall(group.log("worker-0"))]
