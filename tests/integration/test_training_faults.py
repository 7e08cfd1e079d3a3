"""Faults in the middle of real TensorFlow training: 1 parameter server and 2 workers, killed while
they work, and In-Graph servers that nobody uses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.real_runs import EXAMPLES, PATIENCE, Run, Runs, kill

from tfcluster_magic.spec import Phase, Reason

pytestmark = pytest.mark.cluster

STEPS = re.compile(r": step (\d+) loss")
HELD_OUT = re.compile(r"held-out accuracy: (0\.\d+|1\.0+)")


def healing(run: Run) -> list[str]:
    """What the record says of restarts."""
    return [event.message for event in run.status.events if event.reason == "Healing"]


def checkpoint(run: Run) -> int:
    """The newest checkpoint's step; -1 without any."""
    found = run.output.glob("model.ckpt-*.index")
    return max((int(path.stem.rpartition("-")[2]) for path in found), default=-1)


def accuracy(run: Run, task: str) -> float:
    """What the program measured in the end."""
    found = HELD_OUT.search(run.log(task))
    assert found, run.story()
    return float(found.group(1))


def test_training_resumes_after_its_parameter_server_was_killed(runs: Runs) -> None:
    """A killed parameter server comes back, training goes on from its checkpoint, and the record
    says from which step.
    """
    program = EXAMPLES / "between_graph.py"
    run = runs.launch(program, "--steps=1000", name="ps-killed", workers=2, ps=1, reclaim_after=0.5)
    run.until(lambda _: checkpoint(run) >= 200, "a checkpoint")
    kill(run.program_of("ps-0"))
    run.until(lambda status: status.restarts == {"ps-0": 1}, "ps-0 is restarted")
    before = {task: len(run.log(task)) for task in ("worker-0", "worker-1")}
    status = run.until_released()

    assert status.phase is Phase.SUCCEEDED, run.story()
    told = re.search(r"training resumes from the checkpoint at step (\d+)\.$", healing(run)[0])
    assert told, healing(run)
    assert healing(run)[0].startswith("ps-0 was killed from outside (SIGKILL). It is restarted")
    later = [int(n) for task, at in before.items() for n in STEPS.findall(run.log(task)[at:])]
    assert min(later) >= int(told.group(1)) >= 200
    assert accuracy(run, "worker-0") > 0.9
    run.assert_nothing_left()


def test_workers_that_are_killed_rejoin_training(runs: Runs) -> None:
    """A killed worker, the one that leads as well, comes back and training ends well."""
    program = EXAMPLES / "between_graph.py"
    options = {"workers": 2, "ps": 1, "reclaim_after": 0.5}
    run = runs.launch(program, "--steps=1500", name="worker-killed", **options)
    for task in ("worker-1", "worker-0"):
        run.until(lambda _: checkpoint(run) >= 200, "a checkpoint")
        run.until_logged(task, f"worker {task[-1]}: step")
        kill(run.program_of(task))
        run.until(lambda status, task=task: task in status.restarts, f"{task} is restarted")
    status = run.until_released()

    assert status.phase is Phase.SUCCEEDED, run.story()
    assert status.restarts == {"worker-0": 1, "worker-1": 1}
    assert "worker-1 was killed from outside (SIGKILL). It is restarted" in healing(run)[0]
    assert healing(run)[0].endswith("the others go on meanwhile.")
    assert accuracy(run, "worker-0") > 0.9
    run.assert_nothing_left()


def test_training_goes_on_after_its_chief_was_killed(runs: Runs) -> None:
    """The killed chief of a ParameterServerStrategy finds its workers again."""
    run = runs.launch(
        EXAMPLES / "parameter_server_keras.py",
        "--epochs=3",
        name="chief-killed",
        workers=2,
        ps=1,
        chief=True,
        evaluator=False,
        success_policy="chief",
        reclaim_after=0.5,
    )
    run.until_logged("chief-0", "Epoch 2/3")
    kill(run.program_of("chief-0"))
    status = run.until_released()

    assert status.phase is Phase.SUCCEEDED, run.story()
    assert status.restarts["chief-0"] == 1
    assert healing(run)[0].startswith("chief-0 was killed from outside (SIGKILL)")
    assert accuracy(run, "chief-0") > 0.9
    run.assert_nothing_left()


def test_mirrored_workers_restart_together(runs: Runs) -> None:
    """Without parameter servers all workers start again when one is killed, at the next epoch."""
    program = EXAMPLES / "multi_worker_mirrored.py"
    run = runs.launch(program, "--epochs=3", name="mwms-worker-killed", workers=2, ps=0)
    run.until_logged("worker-0", "Epoch 2/3")
    kill(run.program_of("worker-1"))
    status = run.until_released()

    assert status.phase is Phase.SUCCEEDED, run.story()
    assert status.attempt == 2
    assert status.restarts == {"worker-0": 1, "worker-1": 1}
    assert healing(run)[0].startswith("worker-1 was killed from outside (SIGKILL). All workers res")
    assert re.search(r"training resumes from its checkpoint ckpt-\d+\.$", healing(run)[0])
    epochs = [int(n) for n in re.findall(r"Epoch (\d+)/3", run.log("worker-0"))]
    assert epochs.count(1) == 1, "the second attempt took up what the first had done"
    assert epochs[-1] == 3
    assert accuracy(run, "worker-0") > 0.9
    run.assert_nothing_left()


@pytest.mark.parametrize(
    ("task", "after"),
    [
        ("ps-0", "its variables are gone"),
        ("worker-1", "the client goes on, or opens a new session"),
    ],
)
def test_in_graph_servers_come_back(runs: Runs, task: str, after: str) -> None:
    """A killed server serves again at its address, and the record says what that means."""
    run = runs.launch(None, mode="in-graph", name="servers", workers=2, ps=1)
    before = run.until_phase(Phase.RUNNING).addresses
    kill(run.program_of(task))
    run.until(lambda status: status.restarts == {task: 1}, f"{task} is restarted")
    status = run.until(lambda status: status.counts[task[:-2]].starting == 0, f"{task} serves")

    assert status.addresses == before
    assert "SIGKILL" in healing(run)[0]
    assert after in healing(run)[0]
    run.until(lambda _: run.log(task).count("serves on") == 2, f"{task} says so in its log")


CLIENT = """
import socket, sys, time
import tensorflow.compat.v1 as tf
from tfcluster_magic import ClusterManager

def in_use():  # until the session uses it, however long that takes
    while True:
        try:
            address = manager.status("used").status.addresses["worker"][0]
            return socket.create_connection(address.rsplit(":", 1))
        except (KeyError, OSError):
            time.sleep(0.05)

manager = ClusterManager()
manager.launch(mode="in-graph", name="used", workers=2, ps=1, idle_timeout=1.5, grace=3)
held = in_use()
cluster = manager.connect("used")

def still_runs():
    status = manager.status("used").status
    assert status.phase.value == "Running", status.message

with tf.Graph().as_default() as graph:
    with tf.device("/job:ps/task:0"):
        variable = tf.get_variable("v", [600, 600])
    with tf.device("/job:worker/task:1"):
        product = tf.reduce_sum(tf.matmul(variable, variable))
    with cluster.session(graph) as session:
        session.run(tf.global_variables_initializer())
        held.close()
        time.sleep(4)
        still_runs()
        print("connected", flush=True)
        until = time.monotonic() + 4
        while time.monotonic() < until:
            session.run(product)
            time.sleep(0.02)
        still_runs()
        print("computed", flush=True)
"""


def test_servers_are_kept_while_a_notebook_uses_them(runs: Runs) -> None:
    """In-Graph servers run as long as a client is connected, computing or not, and end after it."""
    runs.environment["TFCLUSTER_IDLE_SAMPLE"] = "0.2"
    client = subprocess.run(
        [sys.executable, str(runs.file(CLIENT))],
        env={**os.environ, **runs.environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    run = runs.adopt("used")
    assert client.stdout.split() == ["connected", "computed"], client.stderr + run.story()
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.IDLE_TIMEOUT)
    run.assert_nothing_left()


def test_servers_that_nobody_uses_are_stopped(runs: Runs) -> None:
    """In-Graph servers without a client end after idleTimeout, and the record says why."""
    runs.environment["TFCLUSTER_IDLE_SAMPLE"] = "0.2"
    run = runs.launch(None, mode="in-graph", name="in-graph-idle", workers=2, ps=1, idle_timeout=2)
    status = run.until_released()

    assert (status.phase, status.reason) == (Phase.STOPPED, Reason.IDLE_TIMEOUT)
    assert "No notebook used it for 2s (--idle-timeout)" in status.message
    assert status.culprit is None
    assert "serves on" in run.log("ps-0")
    assert Path(run.output, "ps-0.log").exists()
    run.assert_nothing_left()
