"""Behaviour that a task has only in a pod: counting attempts by its Job, delaying a restart until
the failure of a group is decided, and showing whether an In-Graph server is used.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, free_port, new_run

from tfcluster_magic.backends.local.launch import TaskFolders, task_description
from tfcluster_magic.kube.objects import pod_template
from tfcluster_magic.spec import Metadata, Mode, Replicas, ReplicaSet, Spec

ATTEMPT = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of the runtime importable by bare name, as inside a task."""
    monkeypatch.syspath_prepend(str(RUNTIME))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        yield made.program(ATTEMPT)


@pytest.mark.parametrize(
    ("failures", "ignored", "attempt"), [("", "", "1"), ("2", "", "3"), ("1", "3", "5")]
)
def test_attempts_are_counted_by_the_job(
    run: Run, failures: str, ignored: str, attempt: str
) -> None:
    """The number of the attempt is one more than the number of pods that the Job has replaced, for
    any reason.
    """
    job = {"TFCLUSTER_INDEX_FAILURES": failures, "TFCLUSTER_INDEX_IGNORED": ignored}
    task = run.task().start({"TFCLUSTER_ATTEMPT": "", **job})
    assert task.wait()["cause"] == "Completed"
    env = json.loads(task.output)
    assert env["TFCLUSTER_ATTEMPT"] == attempt
    assert not env.keys() & job.keys()
    assert task.event("started")["attempt"] == int(attempt)


def test_a_group_is_given_time(run: Run) -> None:
    """Without parameter servers, a worker that replaces a failed worker starts only after the
    hold-off.
    """
    run.config.update(counts={"worker": 2}, holdOff=1.0)
    run.config["addresses"].pop("ps")
    task = run.task("worker-1").start({"TFCLUSTER_INDEX_FAILURES": "1"})
    began = time.monotonic()
    task.event("started")
    assert time.monotonic() - began >= 1.0
    assert task.wait()["cause"] == "Completed"
    assert "waiting 1 s: all workers start again together, or none" in task.output


def test_a_stop_ends_the_hold_off(run: Run) -> None:
    """SIGTERM ends a worker during its hold-off, at once and with exit code 143."""
    run.config.update(counts={"worker": 2}, holdOff=600.0)
    run.config["addresses"].pop("ps")
    task = run.task().start({"TFCLUSTER_INDEX_FAILURES": "1"})
    wait_until(run.output.exists, "the task")
    task.process.terminate()
    assert task.wait()["cause"] == "Stopped"
    assert task.process.returncode == 143


@pytest.mark.parametrize(
    ("counts", "task", "failed"),
    [
        ({"worker": 2}, "worker-0", ""),  # the first start
        ({"worker": 2, "ps": 1}, "worker-0", "1"),  # with a ps, workers restart one by one
        ({"worker": 1, "evaluator": 1}, "worker-0", "1"),  # the only task of its group
        # an evaluator is not part of the group
        ({"worker": 2, "evaluator": 1}, "evaluator-0", "1"),
    ],
)
def test_others_start_at_once(
    run: Run, runtime: None, counts: dict[str, int], task: str, failed: str
) -> None:
    """A task that belongs to no group of workers, or did not fail, has no hold-off."""
    from task_config import TaskConfig

    config = TaskConfig({**run.config, "counts": counts, "addresses": {}, "holdOff": 7.0}, task)
    assert config.hold_off({"TFCLUSTER_INDEX_FAILURES": failed}) == 0


@pytest.fixture
def packed(tmp_path: Path) -> list[str]:
    """Return the arguments that start the runtime from its single file, as in a pod."""
    packed = tmp_path / pod_template.RUNTIME_FILE
    packed.write_bytes(base64.b64decode(pod_template.runtime_archive()))
    return [str(packed), "task"]


def test_a_task_runs_from_the_zip(run: Run, packed: list[str]) -> None:
    """A task runs from the runtime's single file. Its program gets HOME, the uid of the run in
    TFCLUSTER_RUN_UID, and the runtime's `sitecustomize` hook.
    """
    run.program(
        "import json, os, sitecustomize as s; print(json.dumps([dict(os.environ), s.__file__]))"
    )
    run.config["home"] = "/somewhere"
    task = run.task()
    task.started = packed
    task.start({"TFCLUSTER_RUN_UID": ""})
    assert task.wait()["cause"] == "Completed", task.output
    env, hook = json.loads(task.output)
    assert (env["HOME"], env["TFCLUSTER_RUN_UID"]) == ("/somewhere", run.config["uid"])
    assert hook == f"{packed[0]}/site/sitecustomize.py"


def test_the_zip_says_how_it_is_used(packed: list[str]) -> None:
    """The runtime started with wrong arguments prints its usage."""
    done = subprocess.run([sys.executable, packed[0]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "use: task <task.json> <task>, or tf_server [--server python]\n",
    )


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["native", pytest.param("python", marks=pytest.mark.long)])
def test_a_server_runs_from_the_zip(run: Run, packed: list[str], kind: str) -> None:
    """Both kinds of server, that of the C API and TensorFlow's own, start from the single file."""
    run.config.update(
        mode="in-graph",
        program=None,
        server=kind,
        counts={"worker": 1},
        addresses={"worker": [f"127.0.0.1:{free_port()}"]},
    )
    task = run.task()
    task.started = packed
    task.start()
    task.event("ready")
    wait_until(lambda: "worker-0 serves on" in task.output, "its line")


def _open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.cluster
def test_a_server_shows_that_it_is_used(run: Run) -> None:
    """The beacon of an In-Graph server is open while a client is connected, and closed while the
    server is idle.
    """
    server, beacon = free_port(), free_port()
    run.config.update(
        mode="in-graph",
        program=None,
        counts={"worker": 1},
        addresses={"worker": [f"127.0.0.1:{server}"]},
        beacon=beacon,
    )
    task = run.task().start({"TFCLUSTER_IDLE_SAMPLE": "0.1"})
    task.event("ready")
    wait_until(lambda: _open(beacon), "the beacon after the start")
    wait_until(lambda: not _open(beacon), "its end without a client")
    with socket.create_connection(("127.0.0.1", server)):
        wait_until(lambda: _open(beacon), "the beacon")


def test_a_beacon_takes_every_probe(runtime: None) -> None:
    """A beacon accepts any number of connections although nobody reads from them, more than fit in
    its queue.
    """
    from idle import Beacon
    from process import EventLoop

    loop, port = EventLoop(), free_port()
    beacon = Beacon(loop, port)
    beacon.show(True)
    clients: list[socket.socket] = []

    def connect() -> bool:
        clients.append(socket.create_connection(("127.0.0.1", port), 5))
        return len(clients) > 200

    def again() -> None:
        if not connect():
            loop.after("connect", 0.0, again)

    again()
    loop.run(lambda: len(clients) > 200)
    beacon.show(False)
    for client in clients:
        client.close()
    assert not _open(port)


def test_no_beacon_on_this_machine(runtime: None, tmp_path: Path) -> None:
    """A run of the local backend opens no port besides TensorFlow's."""
    from task_config import TaskConfig

    metadata = Metadata(name="d-1", cluster="d", run=1, uid="1", created_at=0.0)
    spec = Spec(mode=Mode.IN_GRAPH, replicas=ReplicaSet(worker=Replicas(count=1)))
    described = task_description(metadata, spec, tmp_path, TaskFolders(tmp_path, tmp_path, None))
    described["addresses"] = {"worker": ["127.0.0.1:4001"]}
    assert TaskConfig(described, "worker-0").beacon == 0
