"""Requests and capacities as numbers, and the verdict on a launch. Pure.

The module `launch_checks` checks launches. This module has the inputs and outputs of these checks.
It also has the messages about too many tasks, because both backends use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import InvalidRequest, PreflightRefused, Problem, SetupRefused
from ..spec import Clause, Message, Model, Resources, Spec, TaskType
from ..spec.quantities import parse_memory

FLAGS = {TaskType.WORKER: "--workers", TaskType.PS: "--ps"}
"""The options that set the number of tasks, by type."""


class Limit(Model, frozen=True):
    """The total and the free amount of a resource: CPU in cores, memory in bytes, GPUs in
    devices.
    """

    total: float
    free: float


class Options(Model, frozen=True):
    """The options of a launch, and the free resources; forms are generated from them."""

    backend: str
    cpu: Limit
    memory: Limit
    gpu: Limit
    max_tasks: int = 1000
    images: tuple[str, ...] = ()
    interpreter: str | None = None
    data_dir: str = ""
    log_dir: str = ""
    notes: tuple[str, ...] = ()
    grafana_url: str = ""

    def dashboard(self, namespace: str) -> str:
        """Return the address of the dashboard of a namespace's runs; empty if there is none."""
        grafana = self.grafana_url.rstrip("/")
        return f"{grafana}/d/tfcluster-run?var-namespace={namespace}" if grafana else ""


@dataclass(frozen=True)
class Preflight:
    """The verdict on a launch: `problems` refuse it, `warnings` do not.

    `told` are notes to show before a launch. `passing` are the warnings about temporary conditions,
    such as few free resources; they are not stored in the run's record. `unsupported` are the
    problems with options that this backend does not support. `setup` are the problems that do not
    come from missing resources, so a smaller request would have these problems, too. `cautions` are
    the warnings that concern one option, each as a problem whose `allowed` is the text of the
    warning.
    """

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    unsupported: tuple[Problem, ...] = ()
    setup: tuple[Problem, ...] = ()
    passing: tuple[str, ...] = ()
    cautions: tuple[Problem, ...] = ()

    def check(self) -> None:
        """Raise an error if there are problems.

        Raises:
            InvalidRequest: the launch has options that this backend does not support.
            SetupRefused: something that the launch needs is missing or not allowed here.
            PreflightRefused: the launch does not fit.
        """
        if self.unsupported:
            raise InvalidRequest(self.unsupported)
        if self.setup:
            raise SetupRefused(self.problems)
        if self.problems:
            raise PreflightRefused(self.problems)


@dataclass(frozen=True)
class AvailableResources:
    """The capacity of a machine.

    `held` is the memory that each run uses (bytes, by run), for messages. `obstacles` are problems
    of the machine itself, such as no TensorFlow, or a folder that is not writable.
    """

    cpu: Limit
    memory: Limit
    gpu: Limit
    max_tasks: int
    held: Mapping[str, float] = field(default_factory=dict)
    obstacles: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def memory_of(resources: Resources) -> float:
    """Return the memory limit of one task in bytes; 0 without a limit."""
    return float(parse_memory(resources.memory)) if resources.memory else 0.0


def gpu_of(resources: Resources) -> float:
    """Return the number of GPU devices that one task gets."""
    return float(resources.gpu)


def cpu_of(resources: Resources) -> float:
    """Return the cores that one task requests; 0 without a request."""
    return resources.cpu or 0.0


def too_many_tasks(counts: Mapping[TaskType, int], most: int) -> Problem:
    """Return the problem that a run has too many tasks; it asks for fewer tasks of the largest
    type.
    """
    count = sum(counts.values())
    task_type = max(FLAGS, key=lambda t: counts.get(t, 0))
    fits = counts.get(task_type, 0) - (count - most)
    rule = Message("TooManyTasks", {"most": most})
    if fits >= 1:
        rule = Message("TooManyTasksUse", {"most": most, "flag": FLAGS[task_type], "fits": fits})
    return Problem("replicas", Message("Tasks", {"count": count}), rule)


def too_many_replicas(
    task_type: TaskType, fits: int, count: int, each: str, less: Clause, free: Clause
) -> Problem:
    """Return the problem that there are too many workers or parameter servers. Of `count` requested
    tasks, only `fits` (at least one) fit. `each` is a text with the request of one task, and `free`
    is a text with the free amounts. `less` is a remedy other than fewer tasks.
    """
    code = "ServersFit" if task_type is TaskType.PS else "WorkersFit"
    rule = Message(
        "TooManyReplicas",
        {
            "fitting": Message(code, {"count": fits, "each": each}),
            "count": count,
            "flag": FLAGS[task_type],
            "fits": fits,
            "less": less,
            "free": free,
        },
    )
    return Problem(f"replicas.{task_type.value}.count", count, rule, fits)


def total_request(
    spec: Spec, of: Callable[[Resources], float], types: Iterable[TaskType] = TaskType
) -> float:
    """Return the sum of a resource over all tasks of these types; `of` returns its amount for one
    task.
    """
    counts = spec.replicas.counts
    return sum(counts.get(t, 0) * of(spec.replicas.of(t).resources) for t in types)
