"""Real TensorFlow clusters of one parameter server and two workers in every mode. A task is killed
during training if the mode allows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import pytest
from support.real_runs import (
    EXAMPLES,
    LOOPBACK,
    PATIENCE,
    Run,
    Runs,
    environment_of,
    kill,
    listening,
)

from tfcluster_magic.spec import Phase, Reason, Status

pytestmark = pytest.mark.cluster

PRIVATE = ("JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN")
STEPS = re.compile(r": step (\d+) loss")


@dataclass
class Sighting:
    """Observations of a run's processes while it ran."""

    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """The environment of each task's program when it was first seen."""
    private: set[str] = field(default_factory=set)
    """Variables of the hub and the kernel that were seen in the environment of any process."""
    sockets: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """All addresses on which each task ever listened."""

    def look(self, run: Run) -> None:
        for process in run.processes():
            # a process may end while it is examined
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                env = environment_of(process)
                self.private |= {name for name in env if name.startswith(PRIVATE)}
                self.sockets.setdefault(env["TFCLUSTER_TASK"], set()).update(listening(process))
                if "TF_CONFIG" in env:
                    self.environments.setdefault(env["TFCLUSTER_TASK"], env)


def watch(run: Run, until: Callable[[Status], bool], sighting: Sighting | None = None) -> Sighting:
    """Observe the run's processes until `until` is true of its status. Earlier observations in
    `sighting` are kept.
    """
    seen = sighting or Sighting()

    def look(status: Status) -> bool:
        seen.look(run)
        return until(status)

    run.until(look, "the end of the watch")
    return seen


def watched_to_its_end(run: Run, sighting: Sighting | None = None) -> tuple[Sighting, Status]:
    """Return the observations, and the status after the run has succeeded and ended completely."""
    sighting = watch(run, lambda status: status.phase.is_final, sighting)
    status = run.until_released()
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, Reason.COMPLETED), run.story()
    run.assert_nothing_left()
    return sighting, status


def assert_placed(run: Run, sighting: Sighting, serving: list[str]) -> None:
    """Check that every task knew all addresses, listened on loopback only, and had no secrets."""
    addresses = {t: list(hosts) for t, hosts in run.status.addresses.items()}
    cluster = {t: hosts for t, hosts in addresses.items() if t != "evaluator"}
    assert sorted(sighting.environments) == sorted(run.tasks)
    for task, environment in sighting.environments.items():
        task_type, _, index = task.rpartition("-")
        told = json.loads(environment["TF_CONFIG"])
        assert told == {"cluster": cluster, "task": {"type": task_type, "index": int(index)}}
        assert environment["TFCLUSTER_OUTPUT_DIR"] == str(run.output)
    assert sighting.private == set()
    assert {ip for found in sighting.sockets.values() for ip, _ in found} <= LOOPBACK
    for task in serving:
        task_type, _, index = task.rpartition("-")
        port = int(addresses[task_type][int(index)].rpartition(":")[2])
        assert port in {port for _, port in sighting.sockets[task]}, task


def assert_learned(run: Run, task: str, least: float = 0.95) -> None:
    """Check that the program reached this accuracy on digits, and left event files in
    its folder.
    """
    found = re.search(r"held-out accuracy: ([01]\.\d+)", run.log(task))
    assert found, run.story()
    assert float(found.group(1)) >= least
    assert list(run.output.rglob("*tfevents*"))


def checkpoint(run: Run) -> int:
    """Return the step of the newest checkpoint; -1 if there is none."""
    found = run.output.glob("model.ckpt-*.index")
    return max((int(path.stem.rpartition("-")[2]) for path in found), default=-1)


def test_between_graph_in_the_style_of_tensorflow_1(runs: Runs) -> None:
    """A TensorFlow 1 program gets the tasks that its flags name, with their addresses, and trains.
    A killed parameter server restarts, training resumes from its checkpoint, and the record says at
    which step. Killed workers rejoin, including the leading one. At the end the parameter server is
    reclaimed; the record says when, and what was freed.
    """
    workers = ("worker-1", "worker-0")
    run = runs.launch(
        EXAMPLES / "between_graph.py",
        "--steps=1500",
        name="success",
        ps_memory="2Gi",
        ps_cpu=1,
        reclaim_after=1,
    )
    assert sorted(run.tasks) == ["ps-0", "worker-0", "worker-1"]
    sighting = watch(run, lambda _: checkpoint(run) >= 200)
    kill(run.program_of("ps-0"))
    run.until(lambda status: status.restarts == {"ps-0": 1}, "ps-0 is restarted")
    before = {task: len(run.log(task)) for task in workers}

    def steps() -> list[int]:
        return [int(n) for task in workers for n in STEPS.findall(run.log(task)[before[task] :])]

    run.until(lambda _: steps(), "training goes on")
    for task in workers:
        kill(run.program_of(task))
        run.until(lambda status, task=task: task in status.restarts, f"{task} is restarted")
    sighting, status = watched_to_its_end(run, sighting)

    assert_placed(run, sighting, run.tasks)
    assert status.restarts == dict.fromkeys(("ps-0", *workers), 1)
    of_server, of_worker, _of_leader = run.healing()
    assert of_server.startswith("ps-0 was killed from outside (SIGKILL). It is restarted")
    told = re.search(r"training resumes from the checkpoint at step (\d+)\.$", of_server)
    assert told, of_server
    assert min(steps()) >= int(told.group(1)) >= 200
    assert "worker-1 was killed from outside (SIGKILL). It is restarted" in of_worker
    assert of_worker.endswith("the others go on meanwhile.")
    assert_learned(run, "worker-0", least=0.9)
    reclaimed = status.reclaimed
    assert reclaimed is not None
    assert (reclaimed.tasks, reclaimed.cpu, reclaimed.memory) == (("ps-0",), 1, 2 << 30)
    assert status.finished_at + 1 <= reclaimed.at <= status.released_at
    assert status.counts["ps"].stopped == 1
    assert sighting.environments["ps-0"]["TF_NUM_INTRAOP_THREADS"] == "1"


def test_parameter_server_strategy_with_chief_and_evaluator(runs: Runs) -> None:
    """A program gets the tasks that it needs: a chief coordinates workers and parameter servers, an
    evaluator outside the cluster follows its checkpoints, and the chief's success ends the run. A
    chief that is killed during training finds its workers again.
    """
    run = runs.launch(
        EXAMPLES / "parameter_server_keras.py",
        name="keras",
        evaluator=True,
        success_policy="chief",
        reclaim_after=3,
    )
    assert sorted(run.tasks) == ["chief-0", "evaluator-0", "ps-0", "worker-0", "worker-1"]
    sighting = watch(run, lambda _: "Epoch 2/5" in run.log("chief-0"))
    kill(run.program_of("chief-0"))
    sighting, status = watched_to_its_end(run, sighting)

    assert_placed(run, sighting, ["worker-0", "worker-1", "ps-0"])
    assert_learned(run, "chief-0")
    assert status.restarts["chief-0"] == 1
    assert run.healing()[0].startswith("chief-0 was killed from outside (SIGKILL)")
    assert status.counts["chief"].succeeded == 1
    assert status.counts["worker"].stopped == 2
    assert sighting.sockets["evaluator-0"] == set()


def test_multi_worker_mirrored_strategy(runs: Runs) -> None:
    """Two workers without parameter servers train one model together. When one is killed, all
    restart at the next epoch.
    """
    run = runs.launch(EXAMPLES / "multi_worker_mirrored.py", name="mwms", workers=2, ps=0)
    sighting = watch(run, lambda _: "Epoch 2/8" in run.log("worker-0"))
    kill(run.program_of("worker-1"))
    sighting, status = watched_to_its_end(run, sighting)

    assert_placed(run, sighting, run.tasks)
    assert_learned(run, "worker-0")
    assert status.counts["worker"].succeeded == 2
    assert status.reclaimed is None
    assert status.attempt == 2
    assert status.restarts == {"worker-0": 1, "worker-1": 1}
    (healed,) = run.healing()
    assert healed.startswith("worker-1 was killed from outside (SIGKILL). All workers res")
    assert re.search(r"training resumes from its checkpoint ckpt-\d+\.$", healed)
    epochs = [int(n) for n in re.findall(r"Epoch (\d+)/8", run.log("worker-0"))]
    assert epochs.count(1) == 1, "the second attempt took up what the first had done"
    assert epochs[-1] == 8


def test_mirrored_strategy_on_one_worker(runs: Runs) -> None:
    """A single worker is a cluster too: it trains and listens on no port."""
    run = runs.launch(EXAMPLES / "mirrored.py", name="mirrored", workers=1, ps=0)
    sighting, _ = watched_to_its_end(run)

    assert_placed(run, sighting, [])
    assert_learned(run, "worker-0")
    assert sighting.sockets["worker-0"] == set()


CLIENT = """
import sys
import tensorflow.compat.v1 as tf

target, = sys.argv[1:]
with tf.Graph().as_default() as graph:
    with tf.device("/job:ps/task:0"):
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
    steps = []
    for i in range(2):
        with tf.device(f"/job:worker/task:{i}"):
            product = tf.reduce_sum(tf.matmul(tf.ones([50, 50]), tf.ones([50, 50])))
        steps.append(tf.assign_add(total, product))
    with tf.Session(target, graph=graph) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(10):
            session.run(steps)
        print("total", int(session.run(total)))
        print(sorted(device.name for device in session.list_devices()))
"""


@pytest.mark.parametrize(
    ("server", "through"),
    [
        ("native", "serves on"),
        # Only `--long` tests this case. Without it, two files of tests/unit cover the same on a
        # cluster of one worker: runtime/test_tf_server.py the server's program, and
        # client/test_connection.py its clients.
        pytest.param("python", "through tf.distribute.Server", marks=pytest.mark.long),
    ],
)
def test_in_graph_servers_for_a_session(runs: Runs, server: str, through: str) -> None:
    """A TensorFlow 1 session in another process runs on In-Graph servers of either kind until they
    are stopped.
    """
    run = runs.launch(None, mode="in-graph", name="in-graph", server=server, workers=2, ps=1)
    sighting = watch(run, lambda status: status.phase is Phase.RUNNING)
    target = "grpc://" + run.status.addresses["worker"][0]
    client = subprocess.run(
        [sys.executable, str(runs.file(CLIENT)), target],
        env={**os.environ, "TF_GRPC_DEFAULT_OPTIONS": "grpc.enable_http_proxy=0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    sighting.look(run)
    assert f"total {2 * 10 * 50**3}" in client.stdout, client.stderr[-3000:] + run.story()
    assert "/job:worker/replica:0/task:1/device:CPU:0" in client.stdout
    assert_placed(run, sighting, run.tasks)
    assert all(through in run.log(task) for task in run.tasks)
    runs.manager.stop(run.name, "seen enough")
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)
    assert status.reclaimed is not None
    assert sorted(status.reclaimed.tasks) == sorted(run.tasks)
    run.assert_nothing_left()
