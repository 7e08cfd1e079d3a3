"""What is asked and what there is, as numbers, and the verdict on a launch. Pure.

`launch_checks` judges: here stand the values that it takes and gives, and the words for too many
tasks, which are the same on a machine and on Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import InvalidRequest, PreflightRefused, Problem, SetupRefused
from ..spec import Clause, Message, Model, Resources, Spec, TaskType
from ..spec.quantities import parse_memory

FLAGS = {TaskType.WORKER: "--workers", TaskType.PS: "--ps"}
"""The options that count tasks, by type."""


class Limit(Model, frozen=True):
    """An amount: `total` there is, `free` now. CPU in cores, memory in bytes, gpu in devices."""

    total: float
    free: float


class Options(Model, frozen=True):
    """What can be asked for, and what fits now; forms are generated from it."""

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


@dataclass(frozen=True)
class Preflight:
    """What stands against a launch: `problems` refuse it, `warnings` are told and it goes on.

    `told` is what a person should know before a launch, and stands against nothing. `passing` are
    those of the warnings that are about this moment: no record keeps them. `unsupported`
    are those of the problems that ask for what this place never has, `setup` those that are about
    something else than room: no smaller number would help. `cautions` are those of the warnings
    that are about one option, each as a problem whose `allowed` is the sentence.
    """

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    unsupported: tuple[Problem, ...] = ()
    setup: tuple[Problem, ...] = ()
    passing: tuple[str, ...] = ()
    cautions: tuple[Problem, ...] = ()

    def check(self) -> None:
        """Raise when something stands against the launch.

        Raises:
            InvalidRequest: it asks for what this place never has.
            SetupRefused: something that it needs is missing or not allowed here.
            PreflightRefused: there is no room.
        """
        if self.unsupported:
            raise InvalidRequest(self.unsupported)
        if self.setup:
            raise SetupRefused(self.problems)
        if self.problems:
            raise PreflightRefused(self.problems)


@dataclass(frozen=True)
class AvailableResources:
    """What there is. `held` says who holds how much memory (bytes, by run), for the message.

    `obstacles` are sentences about the place itself, by field: no TensorFlow, a folder that cannot
    be written.
    """

    cpu: Limit
    memory: Limit
    gpu: Limit
    max_tasks: int
    held: Mapping[str, float] = field(default_factory=dict)
    obstacles: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def memory_of(resources: Resources) -> float:
    """Bytes that one such task may use; 0 without a limit."""
    return float(parse_memory(resources.memory)) if resources.memory else 0.0


def gpu_of(resources: Resources) -> float:
    """Devices that one such task gets."""
    return float(resources.gpu)


def cpu_of(resources: Resources) -> float:
    """Cores that one such task asks for; 0 when it says nothing."""
    return resources.cpu or 0.0


def too_many_tasks(counts: Mapping[TaskType, int], most: int) -> Problem:
    """More tasks in all than may run; the type with most of them gives way."""
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
    """`count` workers or parameter servers of `each` are asked for, and only `fits` (at least one)
    fit; `less` is the other way out, and `free` says what there is.
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
    """The sum of one resource over all tasks of these types."""
    counts = spec.replicas.counts
    return sum(counts.get(t, 0) * of(spec.replicas.of(t).resources) for t in types)
