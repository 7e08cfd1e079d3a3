"""Whether a cluster fits: what is asked against what there is. Pure: numbers in, problems and
warnings out.

Promises that memory and GPUs beyond what is free are refused with the number that would fit, and
that CPU beyond the machine is only a warning, since it is shared. It never looks at a machine or a
cluster itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .errors import Problem
from .models import Mode, Model, Resources, Spec, TaskType
from .quantity import format_bytes, parse_memory

_FLAGS = {TaskType.WORKER: "--workers", TaskType.PS: "--ps"}
_PLURALS = {TaskType.WORKER: "workers", TaskType.PS: "parameter servers"}


class Limit(Model, frozen=True):
    """An amount: `total` there is, `free` now. CPU in cores, memory in bytes, gpu in devices."""

    total: float
    free: float


@dataclass(frozen=True)
class Preflight:
    """What stands against a launch: `problems` refuse it, `warnings` are told and it goes on."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Room:
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


@dataclass(frozen=True)
class _Scarce:
    """A resource that is given to one task only, and how to speak of it."""

    name: str
    of: Callable[[Resources], float]
    show: Callable[[float], str]
    less: str


def memory_of(resources: Resources) -> float:
    """Bytes that one such task may use; 0 without a limit."""
    return float(parse_memory(resources.memory)) if resources.memory else 0.0


def gpu_of(resources: Resources) -> float:
    """Devices that one such task gets."""
    return float(resources.gpu)


def cpu_of(resources: Resources) -> float:
    """Cores that one such task asks for; 0 when it says nothing."""
    return resources.cpu or 0.0


_MEMORY = _Scarce("memory", memory_of, format_bytes, "less memory for each")
_GPU = _Scarce(
    "gpu", gpu_of, lambda n: f"{n:g} GPU" + ("" if n == 1 else "s"), "fewer GPUs for each"
)


def check(spec: Spec, room: Room) -> Preflight:
    """Everything that stands against `spec` in `room`."""
    problems = list(room.obstacles)
    if (total := spec.replicas.total) > room.max_tasks:
        allowed = f"at most {room.max_tasks} tasks run here: use fewer"
        problems.append(Problem("replicas", f"{total} tasks", allowed))
    problems += _shortage(spec, _MEMORY, room.memory, room.held)
    problems += _shortage(spec, _GPU, room.gpu, {})
    return Preflight(tuple(problems), (*room.warnings, *_warnings(spec, room)))


def asked(
    spec: Spec, of: Callable[[Resources], float], types: Iterable[TaskType] = TaskType
) -> float:
    """The sum of one resource over all tasks of these types."""
    counts = spec.replicas.counts
    return sum(counts.get(t, 0) * of(spec.replicas.of(t).resources) for t in types)


def _shortage(
    spec: Spec, scarce: _Scarce, limit: Limit, held: Mapping[str, float]
) -> list[Problem]:
    """The problem with a scarce resource, if any: the type that asks for most gives way."""
    total = asked(spec, scarce.of)
    if total <= limit.free:
        return []
    counts, show = spec.replicas.counts, scarce.show
    task_type = max(counts, key=lambda t: counts[t] * scarce.of(spec.replicas.of(t).resources))
    each, count = scarce.of(spec.replicas.of(task_type).resources), counts[task_type]
    fits = int((limit.free - (total - each * count)) // each)
    where = f"replicas.{task_type.value}"
    free = f"{show(limit.free)} of {show(limit.total)} is free"
    if holders := ", ".join(f"{run} {show(amount)}" for run, amount in held.items() if amount):
        free += f" (taken by {holders})"
    if scarce is _GPU and not limit.total:
        allowed = "this machine has no GPU (nvidia-smi lists none): ask for none"
        return [Problem(f"{where}.resources.gpu", int(each), allowed)]
    if fits >= 1 and task_type in _FLAGS:
        fitting = (
            f"{fits} {_plural(task_type, fits)} of {show(each)} {'fits' if fits == 1 else 'fit'}"
        )
        use = f"use {_FLAGS[task_type]} {fits}, or {scarce.less}"
        return [Problem(f"{where}.count", count, f"{fitting}, {count} were asked: {use}; {free}")]
    allowed = f"{show(total)} are asked in all, and {free}: use fewer tasks, or {scarce.less}"
    return [Problem(f"{where}.resources.{scarce.name}", show(each), allowed)]


def _plural(task_type: TaskType, count: int) -> str:
    return task_type.value if count == 1 else _PLURALS[task_type]


def _warnings(spec: Spec, room: Room) -> list[str]:
    found = []
    cpu = asked(spec, cpu_of)
    if cpu > room.cpu.free:
        taken = room.cpu.total - room.cpu.free
        others = f", of which other runs asked for {taken:g}" if taken > 0 else ""
        found.append(
            f"{cpu:g} CPU cores are asked for and this machine has {room.cpu.total:g}{others}: "
            "the tasks share them and run slower"
        )
    replicas = spec.replicas
    unlimited = sum(n for t, n in replicas.counts.items() if not replicas.of(t).resources.memory)
    need = unlimited * _TYPICAL[spec.mode]
    if need > room.memory.free:
        found.append(
            f"{unlimited} tasks without a memory limit need about {format_bytes(need)} for "
            f"TensorFlow alone, and {format_bytes(room.memory.free)} is free: use fewer tasks"
        )
    return found


_TYPICAL = {Mode.BETWEEN_GRAPH: 400 * 2**20, Mode.IN_GRAPH: 180 * 2**20}
"""Bytes of memory (PSS) of an idle TensorFlow 2.21 task on CPU, as measured."""
