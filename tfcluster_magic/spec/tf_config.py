"""What TensorFlow is told about a cluster: TF_CONFIG, address flags, thread and gRPC defaults.

Pure functions of counts and addresses; never reads the environment. `runtime/task_config.py`
computes the same inside a task, where this package does not exist; a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from . import TaskType

# An evaluator is never in "cluster": strategies refuse it there, and nobody connects to it.
CLUSTER_TYPES = (TaskType.CHIEF, TaskType.WORKER, TaskType.PS)
# With 1 inter-op thread on a server ParameterServerStrategy deadlocks, with 2 two clients do.
MIN_INTEROP_THREADS = 8
# Keepalive turns the silent loss of a node into an error within seconds instead of a hang; a proxy
# in the environment breaks TensorFlow's gRPC even to 127.0.0.1.
GRPC_OPTIONS = (
    "grpc.keepalive_time_ms=10000,grpc.keepalive_timeout_ms=5000,grpc.enable_http_proxy=0"
)


class TaskIdentity(TypedDict):
    """The "task" part of TF_CONFIG."""

    type: str
    index: int


class TFConfig(TypedDict):
    """The value of TF_CONFIG before it is written as JSON."""

    cluster: dict[str, list[str]]
    task: TaskIdentity


def tf_cluster(addresses: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """TensorFlow's cluster: host:port by task type, without evaluators and without empty types."""
    return {t.value: list(addresses[t.value]) for t in CLUSTER_TYPES if addresses.get(t.value)}


def tf_config(
    counts: Mapping[TaskType, int],
    addresses: Mapping[str, Sequence[str]],
    task_type: TaskType | str,
    index: int,
) -> TFConfig:
    """TF_CONFIG of one task.

    Raises:
        ValueError: the cluster has no such task, or not as many addresses of a type as tasks.
    """
    kind = TaskType(task_type)
    if not 0 <= index < counts.get(kind, 0):
        raise ValueError(
            f"there is no {kind.value}-{index} among {counts.get(kind, 0)} {kind.value} tasks"
        )
    for each in CLUSTER_TYPES:
        given = len(addresses.get(each.value, ()))
        if given != counts.get(each, 0):
            raise ValueError(f"{counts.get(each, 0)} {each.value} tasks have {given} addresses")
    return {"cluster": tf_cluster(addresses), "task": {"type": kind.value, "index": index}}


def flags(
    wanted: Sequence[str],
    arguments: Sequence[str],
    addresses: Mapping[str, Sequence[str]],
    task_type: TaskType | str,
    index: int,
    *,
    data_dir: str,
    log_path: str,
) -> list[str]:
    """Address flags as `--name=value`.

    Args:
        wanted: flags that the program mentions; others are not made.
        arguments: the user's own; what they give is not given again.
        addresses: host:port by task type.
        task_type: of this task.
        index: of this task.
        data_dir: the run's data folder.
        log_path: the run's output folder.
    """
    values = {
        "ps_hosts": ",".join(addresses.get(TaskType.PS.value, ())),
        "worker_hosts": ",".join(addresses.get(TaskType.WORKER.value, ())),
        "job_name": TaskType(task_type).value,
        "task_index": str(index),
        "data_dir": data_dir,
        "log_path": log_path,
    }
    given = {a.lstrip("-").partition("=")[0] for a in arguments if a.startswith("-")}
    return [f"--{n}={value}" for n, value in values.items() if n in wanted and n not in given]


def environment_defaults(threads: int | None, cpus: int) -> dict[str, str]:
    """TensorFlow's threads and gRPC options, for variables that nobody set.

    Args:
        threads: the task's CPU limit rounded up, None without one (TensorFlow takes its pools from
            the machine's cores, not from a limit).
        cpus: cores that the task may use.
    """
    found = {"TF_GRPC_DEFAULT_OPTIONS": GRPC_OPTIONS}
    if threads:
        found["TF_NUM_INTRAOP_THREADS"] = str(threads)
    found["TF_NUM_INTEROP_THREADS"] = str(max(MIN_INTEROP_THREADS, threads or cpus))
    return found
