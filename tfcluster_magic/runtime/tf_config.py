"""TF_CONFIG and TensorFlow's other settings of a cluster: address flags, thread and gRPC defaults.

No other module makes these settings. A task imports this module as `tf_config`. The package imports
it as `tfcluster_magic.runtime.tf_config` to show the settings before a launch. So this module
imports no other module of its folder. All functions are pure. Standard library only, Python 3.8
syntax.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypedDict

    class TaskIdentity(TypedDict):
        """The "task" part of TF_CONFIG."""

        type: str
        index: int

    class TFConfig(TypedDict):
        """The value of TF_CONFIG before it is written as JSON."""

        cluster: dict[str, list[str]]
        task: TaskIdentity


TASK_TYPES = ("chief", "worker", "ps", "evaluator")
# Nobody connects to an evaluator, so it is in no other task's "cluster".
CLUSTER_TYPES = ("chief", "worker", "ps")
# Numbers of inter-op threads that avoid deadlocks. With 2, two clients of an In-Graph server
# deadlock; with 1, the coordinator of a ParameterServerStrategy does. Other programs get only
# LEAST_INTEROP_THREADS, because more threads than cores slow them by up to a tenth.
CLIENTS_INTEROP_THREADS = 8
COORDINATOR_INTEROP_THREADS = 4
LEAST_INTEROP_THREADS = 2
# With keepalive, the silent loss of a node causes an error within seconds instead of a hang. The
# proxy is disabled, because with a proxy in the environment TensorFlow's gRPC fails even to
# 127.0.0.1.
GRPC_OPTIONS = (
    "grpc.keepalive_time_ms=10000,grpc.keepalive_timeout_ms=5000,grpc.enable_http_proxy=0"
)


def tf_cluster(addresses: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return TensorFlow's cluster: host:port by task type, without evaluators and empty types."""
    return {kind: list(addresses[kind]) for kind in CLUSTER_TYPES if addresses.get(kind)}


def build(addresses: Mapping[str, Sequence[str]], task_type: str, index: int) -> TFConfig:
    """Return the TF_CONFIG of one task.

    Without parameter servers, the "cluster" of an evaluator also lists the evaluator. Programs with
    Estimators create a MultiWorkerMirroredStrategy in each task, even in the evaluator, and in its
    "cluster" the strategy counts the tasks of the evaluator's type. RunConfig ignores this entry
    (tensorflow/python/distribute/multi_worker_util.py, worker_count;
    tensorflow_estimator/python/estimator/run_config.py).
    """
    cluster = tf_cluster(addresses)
    if task_type == "evaluator" and cluster and "ps" not in cluster and addresses.get(task_type):
        cluster[task_type] = list(addresses[task_type])
    return {"cluster": cluster, "task": {"type": task_type, "index": index}}


def check(
    counts: Mapping[str, int],
    addresses: Mapping[str, Sequence[str]],
    task_type: str,
    index: int,
) -> None:
    """Raise ValueError if the cluster lacks the task, or has another number of addresses than of
    tasks.
    """
    if task_type not in TASK_TYPES:
        raise ValueError(f"{task_type!r} is none of the task types {', '.join(TASK_TYPES)}")
    if not 0 <= index < counts.get(task_type, 0):
        raise ValueError(
            f"there is no {task_type}-{index} among {counts.get(task_type, 0)} {task_type} tasks"
        )
    for kind in CLUSTER_TYPES:
        given = len(addresses.get(kind, ()))
        if given != counts.get(kind, 0):
            raise ValueError(f"{counts.get(kind, 0)} {kind} tasks have {given} addresses")


def flags(
    wanted: Sequence[str],
    addresses: Mapping[str, Sequence[str]],
    task_type: str,
    index: int,
    *,
    data_dir: str,
    output_dir: str,
) -> list[str]:
    """Return the flags for a program, as `--name=value`.

    Args:
        wanted: the names of the flags as the program spells them, `ps-hosts` or `ps_hosts`. A flag
            that is neither about addresses nor about data gets the output folder.
        addresses: host:port by task type.
        task_type: the task's type.
        index: the task's index.
        data_dir: the run's data folder.
        output_dir: the run's output folder.
    """
    values = {
        "ps_hosts": ",".join(addresses.get("ps", ())),
        "worker_hosts": ",".join(addresses.get("worker", ())),
        "job_name": task_type,
        "task_index": str(index),
        "data_dir": data_dir,
    }
    return [f"--{name}={values.get(name.replace('-', '_'), output_dir)}" for name in wanted]


def environment_defaults(
    threads: int | None, cpus: int, counts: Mapping[str, int], *, in_graph: bool
) -> dict[str, str]:
    """Return default environment variables of a task. They set TensorFlow's numbers of threads and
    its gRPC options, and enable Python's fault handler.

    Args:
        threads: the task's CPU limit rounded up; `None` if it has no limit. TensorFlow itself sizes
            its pools by the machine's cores, not by the limit.
        cpus: the number of cores that the task may use.
        counts: the number of tasks by type. With parameter servers, a chief is a coordinator.
        in_graph: whether the task is a server for clients outside of the cluster.
    """
    found = {"TF_GRPC_DEFAULT_OPTIONS": GRPC_OPTIONS, "PYTHONFAULTHANDLER": "1"}
    least = LEAST_INTEROP_THREADS
    if in_graph:
        least = CLIENTS_INTEROP_THREADS
    elif counts.get("chief") and counts.get("ps"):
        least = COORDINATOR_INTEROP_THREADS
    if threads:
        found["TF_NUM_INTRAOP_THREADS"] = str(threads)
    if threads or least > cpus:  # else TensorFlow's default, one thread for each core, is enough
        found["TF_NUM_INTEROP_THREADS"] = str(max(least, threads or cpus))
    return found
