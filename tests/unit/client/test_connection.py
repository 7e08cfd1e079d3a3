"""The In-Graph client with real TensorFlow servers; each notebook is a separate process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.project import ROOT, TESTS
from support.tf_servers import servers

import tfcluster_magic
from tfcluster_magic.client import connect, explain
from tfcluster_magic.client.strategy import merged_grpc_options
from tfcluster_magic.errors import ClientUnsupported, WaitTimeout

SCENARIOS = TESTS / "support" / "client_scenarios.py"
Answer = Callable[["subprocess.Popen[str]"], None]


def notebook(
    scenario: str,
    *,
    answers: dict[str, Answer] | None = None,
    env: dict[str, str] | None = None,
    **arguments: object,
) -> Any:
    """Run a scenario in a fresh process, and return its results. `answers` maps a line that the
    scenario prints to the action that follows.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF")}
    package = str(Path(tfcluster_magic.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "examples"), package))
    with subprocess.Popen(
        [sys.executable, str(SCENARIOS), scenario, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment | (env or {}),
    ) as process:
        assert process.stdout is not None
        last = ""
        try:
            for line in process.stdout:
                last = line.strip() or last
                if last in (answers or {}):
                    answers[last](process)
        finally:
            process.kill()
    assert last.startswith("{"), f"the scenario {scenario} broke off; its traceback is above"
    return json.loads(last)


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address on which nothing listens during the test."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{reserved.getsockname()[1]}"


@pytest.fixture
def open_port() -> Iterator[str]:
    """An address on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_gate_names_the_tasks_that_do_not_accept(open_port: str, closed_port: str) -> None:
    """No client is returned while a task accepts no connection; the error names that task."""
    with pytest.raises(WaitTimeout) as refused:
        connect(
            {"ps": [open_port], "worker": [open_port, closed_port]}, name="digits-2", timeout=0.2
        )
    message = str(refused.value)
    assert f"worker-1 ({closed_port}: connection refused)" in message
    assert "1 of 3 tasks" in message
    assert "tfcluster logs digits-2 worker-1" in message
    assert open_port not in message


def test_gate_waits_for_a_late_task() -> None:
    """The client waits for a task that opens its port late."""
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        opening = threading.Timer(0.3, late.listen)
        opening.start()
        client = connect(
            {"worker": [f"127.0.0.1:{late.getsockname()[1]}"]}, name="digits-1", timeout=120
        )
        assert client.target.startswith("grpc://127.0.0.1:")
        opening.join()


def test_gate_can_be_interrupted(closed_port: str) -> None:
    """An interrupt ends the wait for a task that never accepts connections."""
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        connect({"worker": [closed_port]}, name="digits-1", timeout=120)
    interrupt.join()


def test_unresolvable_name_is_said() -> None:
    """The error says that a name cannot be resolved, unlike the error about a refused
    connection.
    """
    with pytest.raises(WaitTimeout, match="its name does not resolve"):
        connect({"worker": ["digits-worker-0.invalid:2222"]}, name="digits-1", timeout=0)


def test_a_cluster_without_workers_has_no_client(open_port: str) -> None:
    """A client needs a worker, and the error says how to launch one."""
    with pytest.raises(ClientUnsupported, match="--workers 1"):
        connect({"ps": [open_port]}, name="digits-1")


def test_strategy_needs_a_parameter_server(open_port: str) -> None:
    """strategy() without parameter servers says what to launch, before it imports TensorFlow."""
    client = connect({"worker": [open_port]}, name="digits-1")
    with pytest.raises(ClientUnsupported, match="--ps 1"):
        client.strategy()


def test_grpc_options_of_the_user_win() -> None:
    """The client's gRPC defaults are added to the user's options, and the user's values stay."""
    merged = merged_grpc_options("grpc.keepalive_time_ms=99,grpc.max_send_message_length=7").split(
        ","
    )
    assert merged[:2] == ["grpc.keepalive_time_ms=99", "grpc.max_send_message_length=7"]
    assert merged[2:] == ["grpc.keepalive_timeout_ms=5000", "grpc.enable_http_proxy=0"]
    assert merged_grpc_options(",".join(merged)) == ",".join(merged)


def test_unknown_errors_are_not_explained() -> None:
    """An error of the program itself gets no explanation."""
    assert explain(ValueError("shapes (3,) and (4,) are incompatible")) is None


@pytest.mark.cluster
def test_a_notebook_drives_a_cluster(tmp_path: Path) -> None:
    """A notebook with two clusters can use session, strategy and coordinator, and known errors get
    an explanation.
    """
    with servers() as first, servers(workers=1, kind="python") as second:
        said = notebook(
            "drive",
            first={"addresses": first.wait().addresses},
            second={"addresses": second.wait().addresses},
            log=str(tmp_path),
            answers={"please stop the first": lambda _: first.close()},
        )
    assert said["target"] == f"grpc://{first.addresses['worker'][0]}"
    assert said["repr"].startswith("<Client of digits-1: 1 ps, 2 worker")
    assert not said["imported_by_connect"], (
        "TensorFlow is imported before a client object is asked for"
    )
    assert said["tf1_accuracy"] >= 0.95
    assert said["pss_accuracy"] >= 0.95
    assert [w for w in said["warnings"] if "TF_USE_LEGACY_KERAS=1" in w], "Keras 3 is said"
    assert said["same_strategy"]
    assert said["same_coordinator"]
    assert said["listening"] in (["127.0.0.1"], ["::ffff:127.0.0.1"])
    assert "TF_USE_LEGACY_KERAS=1" in said["fit"]
    assert "--server python" in said["native_python_function"]
    assert "cluster.strategy()" in said["native_python_function"]
    assert "feed the result" in said["python_python_function"]
    assert said["explained"] == "ClientUnsupported", "a script gets the explanation as an error"
    assert "already drives digits-1" in said["second"]
    assert "restart the kernel" in said["second"]
    assert said["after_stop"] == 2.0, "once the first cluster is gone the second may be driven"


@pytest.mark.cluster
def test_own_strategy_of_the_resolver_stays_on_loopback() -> None:
    """A strategy that the user makes from `resolver()` opens no port to the network."""
    with servers(workers=1) as cluster:
        said = notebook("resolve", cluster={"addresses": cluster.wait().addresses})
    assert said["listening"] in (["127.0.0.1"], ["::ffff:127.0.0.1"])


@pytest.mark.cluster
def test_a_notebook_loses_tasks() -> None:
    """After a parameter server was restarted, `strategy()` returns a new strategy. If the task to
    which a session connects is dead, the error names this task after a short timeout.
    """
    with servers() as cluster:

        def restart(process: subprocess.Popen[str]) -> None:
            cluster.kill("ps-0")
            cluster.start("ps-0")
            cluster.wait()
            print("restarted", file=process.stdin, flush=True)

        said = notebook(
            "lose_tasks",
            cluster={"addresses": cluster.wait().addresses},
            answers={
                "please restart ps-0": restart,
                "please kill worker-0": lambda _: cluster.kill("worker-0"),
            },
        )
    assert said["timeout"] == 3000
    assert said["log_level"] is None, "a task that inherits this environment is not silenced"
    assert "parameter server was restarted" in said["ps_restarted"]
    assert said["new_strategy"]
    assert said["after_restart"] == 5.0
    assert "DeadlineExceededError" in said["cell"], "the exception keeps its type"
    assert "digits-1 has lost worker-0" in said["cell"]
    assert "tfcluster status digits-1" in said["cell"]


@pytest.mark.cluster
def test_keras_fits_behind_a_proxy(tmp_path: Path) -> None:
    """model.fit trains with TF_USE_LEGACY_KERAS=1, without a warning, whatever http_proxy says."""
    with servers() as cluster:
        said = notebook(
            "fit",
            cluster={"addresses": cluster.wait().addresses},
            log=str(tmp_path),
            env={
                "TF_USE_LEGACY_KERAS": "1",
                "http_proxy": "http://127.0.0.1:9",
                "https_proxy": "http://127.0.0.1:9",
            },
        )
    assert said["accuracy"] >= 0.95
    assert said["warnings"] == []
    assert "grpc.enable_http_proxy=0" in said["options"]


@pytest.mark.cluster
def test_a_silent_cluster_does_not_hang_the_notebook() -> None:
    """strategy() on a cluster that accepts connections but never answers ends with a timeout, and
    the error says what to do.
    """
    said = notebook("silent")
    assert said["kind"] == "WaitTimeout"
    assert "restart this kernel" in said["message"]
