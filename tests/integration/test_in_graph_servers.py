"""In-Graph servers that are killed, in use by a client, or unused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.real_runs import PATIENCE, Runs, kill

from tfcluster_magic.spec import Phase, Reason

pytestmark = pytest.mark.cluster


AFTER = {
    "ps-0": "its variables are gone",
    "worker-1": "the client in the notebook goes on, or has to open a new session",
}


def test_in_graph_servers_come_back(runs: Runs) -> None:
    """A killed server serves again at its address, and the record says what was lost."""
    run = runs.launch(None, mode="in-graph", name="servers", workers=2, ps=1)
    before = run.until_phase(Phase.RUNNING).addresses
    for task, after in AFTER.items():
        kill(run.program_of(task))
        run.until(lambda status, task=task: status.restarts.get(task) == 1, f"{task} is restarted")
        status = run.until(
            lambda status, task=task: status.counts[task[:-2]].starting == 0, f"{task} serves"
        )

        assert status.addresses == before
        assert "SIGKILL" in run.healing()[-1]
        assert after in run.healing()[-1]
        run.until(
            lambda _, task=task: run.log(task).count("serves on") == 2, f"{task} says so in its log"
        )
    assert status.restarts == dict.fromkeys(AFTER, 1)


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
        time.sleep(4)  # longer than the idle timeout, and its looks
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
    """In-Graph servers run while a client is connected, even if it computes nothing, and end
    afterwards.
    """
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
