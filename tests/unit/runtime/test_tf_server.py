"""The In-Graph server with real TensorFlow: service, fallback, and idle reports."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.polling import wait_until
from support.task_process import PATIENCE, RUNTIME, Run, TaskProcess, free_port, new_run

from tfcluster_magic.spec.task_file import guard_path

pytestmark = pytest.mark.cluster


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield an In-Graph run of one parameter server and one worker on loopback."""
    with new_run(tmp_path) as made:
        made.config.update(
            mode="in-graph",
            counts={"ps": 1, "worker": 1},
            addresses={kind: [f"127.0.0.1:{free_port()}"] for kind in ("ps", "worker")},
            loopback=guard_path(),
            threads={"worker": 1, "ps": 1},
        )
        yield made


class Client:
    """A client like a notebook: a session that stays open until `leave`."""

    SCRIPT = """
    import json, os, sys
    import tensorflow.compat.v1 as tf
    worker, ps = sys.argv[1:3]
    graph = tf.Graph()
    with graph.as_default():
        with tf.device("/job:ps/task:0"):
            total = tf.get_variable("total", initializer=1.0)
        with tf.device("/job:worker/task:0"):
            grow = total.assign_add(41.0)
        start = tf.global_variables_initializer()
    session = tf.Session("grpc://" + worker, graph=graph)
    session.run(start)
    print(json.dumps(float(session.run(grow))), flush=True)
    sys.stdin.readline()
    os._exit(0)
    """

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(self.SCRIPT),
                addresses["worker"][0],
                addresses["ps"][0],
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TF_GRPC_DEFAULT_OPTIONS": "grpc.enable_http_proxy=0"},
        )

    def answer(self) -> Any:
        """Return the result that the client got from the cluster."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """End the client."""
        self.process.kill()
        self.process.communicate()

    def leave(self) -> None:
        """Close the session, as happens when a notebook is shut down."""
        self.process.communicate("\n", PATIENCE)


def last_idle(task: TaskProcess) -> Any:
    """Return the newest idle report of the task: a time, or None for activity; "" if there is no
    report.
    """
    found = [r["since"] for r in task.hear(0.05) if r["event"] == "idle"]
    return found[-1] if found else ""


def test_serves_a_client_and_tells_when_it_idles(run: Run) -> None:
    """Native servers compute for a TensorFlow 1 client, and do not count as idle while the client
    is connected.

    Connections among the tasks themselves do not count.
    """
    tasks = [
        run.task(name).start({"TFCLUSTER_IDLE_SAMPLE": "0.3", "http_proxy": "http://127.0.0.1:9"})
        for name in ("ps-0", "worker-0")
    ]
    for task in tasks:
        task.event("ready")
        line = f"{task.task} serves on 127.0.0.1:"
        wait_until(lambda task=task, line=line: line in task.output, line)
    ps, worker = tasks
    began = wait_until(lambda: last_idle(worker), "idling before the first client")
    assert len(loopback_listeners(run)) == 2
    with contextlib.ExitStack() as stack:
        client = Client(run.config["addresses"])
        stack.callback(client.end)
        assert client.answer() == 42.0
        wait_until(lambda: last_idle(worker) is None, "the end of idling")
        # The worker is now connected to the parameter server, but the parameter server is still
        # idle.
        wait_until(lambda: last_idle(ps), "the parameter server's idling")
        assert last_idle(worker) is None
        client.leave()
    assert wait_until(lambda: last_idle(worker), "idling after the client") > began
    for task in tasks:
        task.process.terminate()
    assert {task.wait()["cause"] for task in tasks} == {"Stopped"}


def loopback_listeners(run: Run) -> list[str]:
    """Return the run's ports that are open on loopback and on no other address."""
    rows = [row.split() for row in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    ports = {f"{int(a.rpartition(':')[2]):04X}" for (a,) in run.config["addresses"].values()}
    own = [r[1] for r in rows if r[3] == "0A" and r[1].rpartition(":")[2] in ports]
    assert all(address.startswith("0" * 16 + "FFFF00000100007F") for address in own)
    return own


@pytest.mark.parametrize("shared", [False, True])
def test_taken_port(run: Run, shared: bool) -> None:
    """A port that is taken ends the server at once with one line that names the port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run.config["addresses"]["worker"] = [f"127.0.0.1:{port}"]
        task = run.task().start({"TF_GRPC_REUSE_PORT": str(shared).lower()})
        message = task.wait()
    assert (message["cause"], message["exitCode"]) == ("Error", 98)
    line = f"tfcluster: port {port} is taken by another process: worker-0 cannot serve"
    assert message["lastLines"] == [line]
    assert "ready" not in [r["event"] for r in task.reports]


def test_reserved_port_is_not_taken(run: Run) -> None:
    """A server uses the port that its backend reserves for it."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", int(run.config["addresses"]["worker"][0].rpartition(":")[2])))
        task = run.task().start({"TF_GRPC_REUSE_PORT": "true"})
        task.event("ready")


def test_falls_back_by_itself(run: Run, tmp_path: Path) -> None:
    """If the C API is missing, the task falls back to tf.distribute.Server, and the log says so."""
    fake = tmp_path / "site" / "tensorflow"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text(
        "import sys\n"
        f"sys.path.remove({str(fake.parent)!r}); del sys.modules[__name__]\n"
        "import tensorflow\n"
    )
    task = run.task().start({"PYTHONPATH": str(fake.parent), "TF_CPP_MIN_LOG_LEVEL": "1"})
    task.event("ready")

    def own() -> list[str]:
        return [line for line in task.output.splitlines() if line.startswith("tfcluster: ")]

    wait_until(lambda: len(own()) == 2, "two lines")
    first, second = own()
    assert first.startswith("tfcluster: TensorFlow's C API cannot serve (")
    assert first.endswith(
        "libtensorflow_framework.so.2: cannot open shared object file: "
        "No such file or directory); going on with tf.distribute.Server"
    )
    assert second.endswith("through tf.distribute.Server")


def test_python_server_on_request_and_plain_definition(run: Run, tmp_path: Path) -> None:
    """`server: python` runs tf.distribute.Server; the ServerDef of the native server is well
    formed.
    """
    run.config["server"] = "python"
    task = run.task().start()
    script = """
    import importlib.util, json, sys, types
    bare = types.ModuleType("tensorflow")  # its messages alone: all of it takes seconds
    bare.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
    sys.modules["tensorflow"] = bare
    sys.path.insert(0, sys.argv[1])
    import tf_server
    cluster = {"ps": ["h:1", "h:2"], "worker": ["w:300"]}
    data = tf_server.server_def(cluster, "ps", 1, 3, 200)
    from tensorflow.core.protobuf import tensorflow_server_pb2
    read = tensorflow_server_pb2.ServerDef.FromString(data)
    config = read.default_session_config
    print(json.dumps([
        {job.name: dict(job.tasks) for job in read.cluster.job}, read.job_name, read.task_index,
        config.intra_op_parallelism_threads, config.inter_op_parallelism_threads, read.protocol,
    ]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(RUNTIME)],
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert json.loads(done.stdout) == [
        {"ps": {"0": "h:1", "1": "h:2"}, "worker": {"0": "w:300"}},
        "ps",
        1,
        3,
        200,
        "grpc",
    ]
    task.event("ready")
    wait_until(lambda: "through tf.distribute.Server" in task.output, "its line")


def test_server_that_dies(run: Run) -> None:
    """A server that is killed from outside is reported as killed."""
    task = run.task().start()
    child = task.event("started")["pid"]
    task.event("ready")
    os.kill(child, 9)
    assert task.wait()["cause"] == "Killed"


def test_without_a_cluster() -> None:
    """Without a valid TF_CONFIG, the server reports the problem."""
    for value in ("", '{"cluster": {"ps": ["h:1"]}, "task": {"type": "ps", "index": 1}}'):
        done = subprocess.run(
            [sys.executable, str(RUNTIME), "tf_server"],
            env={**os.environ, "TF_CONFIG": value},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "TF_CONFIG does not describe a task" in done.stdout
