"""A run as YAML documents: its record, and each task's command and variables on this machine.

All functions are pure. `runtime/task.py` computes the same commands and variables; a test compares
them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import Conflict
from ..kube.objects import templates
from ..lifecycle.messages import shown
from ..paths import home_dir
from ..spec import Mode, Program, TaskType, TFCluster
from ..spec.names import parse_ref, task_name
from ..spec.task_file import RUNTIME, guard_path

if TYPE_CHECKING:
    import tf_config  # by bare name, as the runtime's modules import each other
else:  # runtime/ is a folder of scripts, not a package
    tf_config = import_module("tfcluster_magic.runtime.tf_config")

TEMPLATE = "local.yaml.j2"


@dataclass(frozen=True)
class TaskPlace:
    """The folders and programs of this machine that a task uses.

    `program_dir` is the folder of the snapshot, `guard` the library that makes TensorFlow listen
    only on the loopback address, and `cpus` the number of cores that a task without a limit may
    use.
    """

    interpreter: str
    data_dir: str
    output_dir: str
    program_dir: str
    guard: str | None
    cpus: int


def task_place(
    cluster: TFCluster, interpreter: str, data_dir: str, log_dir: str, cpus: int
) -> TaskPlace:
    """Return the folders and programs that the tasks of `cluster` use on this machine. For a plan,
    which copies no program, the program's folder is a placeholder.
    """
    paths = cluster.status.paths
    logs = paths.get("logs")
    return TaskPlace(
        interpreter=interpreter,
        data_dir=data_dir,
        output_dir=paths.get("output")
        or os.path.join(log_dir, cluster.metadata.cluster, str(cluster.metadata.run)),
        program_dir=str(Path(logs).with_name("program")) if logs else "<copy of the program>",
        guard=guard_path(),
        cpus=cpus,
    )


@dataclass(frozen=True)
class RenderedTask:
    """One task: its `command`, the `env` that is set for it, and its TF_CONFIG."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    tf_config: Mapping[str, Any]


def render_run(cluster: TFCluster, place: TaskPlace) -> str:
    """Return the record and the tasks as a stream of YAML documents."""
    template = templates.template_environment().get_template(TEMPLATE)
    return template.render(
        record=msgspec.to_builtins(cluster), tasks=rendered_tasks(cluster, place)
    )


def rendered_tasks(cluster: TFCluster, place: TaskPlace) -> list[RenderedTask]:
    """Return every task of the run as it would be started."""
    counts = cluster.spec.replicas.counts
    by_name = {task_type.value: count for task_type, count in counts.items()}
    addresses = _addresses(cluster)
    found = []
    for task_type, count in counts.items():
        for index in range(count):
            tf_config.check(by_name, addresses, task_type.value, index)
            config = tf_config.build(addresses, task_type.value, index)
            found.append(
                RenderedTask(
                    name=task_name(task_type, index),
                    command=_command(cluster, place, addresses, task_type, index),
                    env=_env(cluster, place, task_type, index, config),
                    tf_config=config,
                )
            )
    return found


def _addresses(cluster: TFCluster) -> dict[str, tuple[str, ...]]:
    """Return the addresses in the record; before the launch, addresses with placeholders for
    ports.
    """
    counts = cluster.spec.replicas.counts
    known = cluster.status.addresses
    return {
        t.value: known[t.value]
        if len(known.get(t.value, ())) == count
        else tuple(f"127.0.0.1:<port of {task_name(t, i)}>" for i in range(count))
        for t, count in counts.items()
    }


def _command(
    cluster: TFCluster,
    place: TaskPlace,
    addresses: Mapping[str, Sequence[str]],
    task_type: TaskType,
    index: int,
) -> list[str]:
    spec = cluster.spec
    if spec.mode is Mode.IN_GRAPH:
        return [place.interpreter, str(RUNTIME), "tf_server", "--server", spec.server.value]
    if spec.program is None:  # the record is damaged
        raise Conflict(shown(cluster.status))
    flags = tf_config.flags(
        spec.passed_flags,
        addresses,
        task_type.value,
        index,
        data_dir=place.data_dir,
        output_dir=place.output_dir,
    )
    if spec.program.command:
        return [*spec.program.command, *flags, *spec.program.arguments]
    script = _script(spec.program, place)
    start = ["bash"] if script.endswith(".sh") else [place.interpreter, "-u"]
    return [*start, script, *flags, *spec.program.arguments]


def _script(program: Program, place: TaskPlace) -> str:
    """Return the path of the file that is started; a placeholder for a URL."""
    if program.url:
        return f"<download of {program.url}>"
    folder = os.path.join(home_dir(), program.path) if program.path else place.program_dir
    return os.path.normpath(os.path.join(folder, program.entrypoint))


def _env(
    cluster: TFCluster,
    place: TaskPlace,
    task_type: TaskType,
    index: int,
    config: tf_config.TFConfig,
) -> dict[str, str]:
    """Return the variables that are set for the task, in addition to the launcher's environment."""
    spec = cluster.spec
    limit = spec.replicas.of(task_type).resources.cpu
    threads = math.ceil(limit) if limit else None
    counts = {kind.value: count for kind, count in spec.replicas.counts.items()}
    in_graph = spec.mode is Mode.IN_GRAPH
    env = {
        **tf_config.environment_defaults(threads, place.cpus, counts, in_graph=in_graph),
        **spec.env,
        "TF_CONFIG": json.dumps(config),
        "TFCLUSTER_CLUSTER": cluster.metadata.cluster,
        "TFCLUSTER_RUN": str(cluster.metadata.run),
        "TFCLUSTER_NAME": cluster.metadata.name,
        "TFCLUSTER_TASK": task_name(task_type, index),
        "TFCLUSTER_TASK_TYPE": task_type.value,
        "TFCLUSTER_TASK_INDEX": str(index),
        "TFCLUSTER_DATA_DIR": place.data_dir,
        "TFCLUSTER_OUTPUT_DIR": place.output_dir,
        "TFCLUSTER_ATTEMPT": "1",
        "TFCLUSTER_RESUME_FROM": _resume_from(cluster, place),
        "PYTHONUNBUFFERED": "1",
    }
    if cluster.metadata.scheduled is not None:
        env["TFCLUSTER_SCHEDULED_FOR"] = cluster.metadata.scheduled.local
    if own := config["cluster"].get(task_type.value):
        env["TFCLUSTER_PORT"] = own[index].rpartition(":")[2]
    if spec.mode is Mode.BETWEEN_GRAPH:
        env["PATH"] = _joined(os.path.dirname(place.interpreter), env.get("PATH", "$PATH"))
        env["PYTHONPATH"] = _joined(str(RUNTIME / "site"), env.get("PYTHONPATH", "$PYTHONPATH"))
    if place.guard:
        env["LD_PRELOAD"] = _joined(place.guard, env.get("LD_PRELOAD", ""))
    return env


def _joined(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first


def _resume_from(cluster: TFCluster, place: TaskPlace) -> str:
    """Return the output folder of the run to resume, `<log>/<cluster>/<n>`; '' if there is none."""
    if cluster.spec.resume_from is None:
        return ""
    name, run = parse_ref(cluster.spec.resume_from)
    return str(Path(place.output_dir).parents[1] / name / str(run))
