"""Scenarios of a client in a notebook: `client_scenarios.py NAME JSON` prints the result as JSON.

Each scenario needs a process that has not imported TensorFlow yet; `test_connection.py` starts the
processes and checks the results.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import warnings
from typing import Any

import psutil

from tfcluster_magic.client import LegacyKerasNeeded, connect
from tfcluster_magic.client.readiness import closed_ports


def error_of(call: Any) -> BaseException:
    """Return the error that `call` raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any error is returned, and the test checks it
        return error
    raise AssertionError("it raised nothing")


def listening() -> list[str]:
    """Return the addresses on which this process listens."""
    connections = psutil.Process().net_connections()
    return sorted({c.laddr.ip for c in connections if c.status == "LISTEN"})


def wait_for_death(address: str) -> None:
    """Wait until the test has ended the server at an address."""
    while not closed_ports({"ps-0": address}):
        time.sleep(0.05)


def drive(first: dict[str, Any], second: dict[str, Any], log: str) -> dict[str, Any]:
    """Use a session, a strategy and a second cluster, and cause the common errors."""
    cluster = connect(first["addresses"], name="digits-1")
    said: dict[str, Any] = {"target": cluster.target, "repr": repr(cluster)}
    said["imported_by_connect"] = "tensorflow" in sys.modules

    import in_graph_pss
    import in_graph_tf1
    import tensorflow as tf

    said["tf1_accuracy"] = in_graph_tf1.train(cluster, 200, f"{log}/tf1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said["pss_accuracy"] = in_graph_pss.train(cluster, 500, f"{log}/pss")
        strategy = cluster.strategy()
    said["warnings"] = [str(w.message) for w in caught if w.category is LegacyKerasNeeded]
    said["same_strategy"] = strategy is cluster.strategy()
    said["same_coordinator"] = cluster.coordinator() is cluster.coordinator()
    said["listening"] = listening()

    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    data = tf.data.Dataset.from_tensors((tf.ones([4, 2]), tf.ones([4, 1]))).repeat()
    said["fit"] = cluster.explain(error_of(lambda: model.fit(data, steps_per_epoch=1, verbose=0)))

    other = connect(second["addresses"], name="other-1", server="python")

    def python_function_on(client: Any) -> None:
        with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0"):
            add_one = tf.numpy_function(lambda x: x + 1, [tf.constant(1.0)], tf.float32)
            with client.session(graph) as session:
                session.run(add_one)

    native = error_of(lambda: python_function_on(cluster))
    said["native_python_function"] = cluster.explain(native)
    said["python_python_function"] = other.explain(error_of(lambda: python_function_on(other)))

    def in_a_script() -> None:
        with cluster.explained():
            python_function_on(cluster)

    said["explained"] = type(error_of(in_a_script)).__name__

    said["second"] = str(error_of(other.strategy))
    print("please stop the first", flush=True)
    wait_for_death(first["addresses"]["ps"][0])
    for address in first["addresses"]["worker"]:
        wait_for_death(address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moved = other.strategy()
    with moved.scope():
        said["after_stop"] = float(tf.Variable(2.0).numpy())
    return said


def lose_tasks(cluster: dict[str, Any]) -> dict[str, Any]:
    """Lose tasks: a parameter server restarts, then the first worker ends for good."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    client = connect(cluster["addresses"], name="digits-1", operation_timeout=3)
    said: dict[str, Any] = {"timeout": client.session_config().operation_timeout_in_ms}
    said["log_level"] = os.environ.get("TF_CPP_MIN_LOG_LEVEL")
    import tensorflow as tf

    warnings.simplefilter("ignore")
    old = client.strategy()
    with old.scope():
        weight = tf.Variable(1.0)
    assert client.coordinator().schedule(tf.function(lambda: weight + 1.0)).fetch() == 2.0

    print("please restart ps-0", flush=True)
    wait_for_death(cluster["addresses"]["ps"][0])
    sys.stdin.readline()

    said["ps_restarted"] = client.explain(error_of(weight.numpy))
    new = client.strategy()
    said["new_strategy"] = new is not old
    with new.scope():
        weight = tf.Variable(4.0)
    add_one = tf.function(lambda: weight + 1.0)
    said["after_restart"] = float(client.coordinator().schedule(add_one).fetch())

    graph = tf.Graph()
    with graph.as_default(), tf.device("/job:worker/task:0"):
        two = tf.constant(1.0) + 1.0
    session = client.session(graph)
    assert session.run(two) == 2.0
    print("please kill worker-0", flush=True)
    wait_for_death(cluster["addresses"]["worker"][0])

    shell.user_ns.update(tf=tf, client=client, graph=graph, two=two)
    config = "config=client.session_config()"
    with capture_output() as captured:
        shell.run_cell(f"tf.compat.v1.Session(client.target, graph=graph, {config}).run(two)")
    said["cell"] = captured.stdout + captured.stderr
    return said


def fit(cluster: dict[str, Any], log: str) -> dict[str, Any]:
    """Fit with Keras 2, while the environment names a proxy that does not exist."""
    client = connect(cluster["addresses"], name="digits-1")
    import in_graph_keras

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        accuracy = in_graph_keras.train(client, 4, log)
    return {
        "accuracy": float(accuracy),
        "warnings": [str(w.message) for w in caught if w.category is LegacyKerasNeeded],
        "options": os.environ["TF_GRPC_DEFAULT_OPTIONS"],
    }


def silent() -> dict[str, Any]:
    """Connect to a cluster that accepts connections and never answers."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ps, worker = (f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners)
    client = connect({"ps": [ps], "worker": [worker]}, name="digits-1", timeout=2)
    warnings.simplefilter("ignore")
    error = error_of(client.strategy)
    return {"kind": type(error).__name__, "message": str(error)}


def resolve(cluster: dict[str, Any]) -> dict[str, Any]:
    """Make a strategy from the resolver."""
    client = connect(cluster["addresses"], name="digits-1")
    resolver = client.resolver()
    import tensorflow as tf

    tf.distribute.ParameterServerStrategy(resolver)
    return {"listening": listening()}


SCENARIOS = {
    "drive": drive,
    "lose_tasks": lose_tasks,
    "fit": fit,
    "resolve": resolve,
    "silent": silent,
}

if __name__ == "__main__":
    result = SCENARIOS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(result, default=float), flush=True)
    # TensorFlow threads that wait for a silent cluster would keep the process alive.
    os._exit(0)
