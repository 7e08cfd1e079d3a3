"""Whether a cluster fits: what is asked against what there is. Pure: numbers in, problems and warnings out.

Promises that memory and GPUs beyond what is free are refused with the number that would fit, and that CPU
beyond the machine is only a warning, since it is shared. It never looks at a machine or a cluster itself.
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

    `obstacles` are sentences about the place itself, by field: no TensorFlow, a folder that cannot be written.
    """

    cpu: Limit
    memory: Limit
    gpu: Limit
    max_tasks: int
    held: Mapping[str, float] = field(default_factory=dict)
    obstacles: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def check(spec: Spec, room: Room) -> Preflight:
    """Everything that stands against `spec` in `room`."""
    problems = list(room.obstacles)
    if spec.replicas.total > room.max_tasks:
        problems.append(
            Problem(
                "replicas",
                f"{spec.replicas.total} tasks",
                f"at most {room.max_tasks} tasks run here: use fewer",
            )
        )
    problems += _scarce(spec, "memory", room.memory, memory_of, format_bytes, room.held)
    problems += _scarce(spec, "gpu", room.gpu, gpu_of, lambda n: f"{n:g} GPU", {})
    return Preflight(tuple(problems), (*room.warnings, *_warnings(spec, room)))


def memory_of(resources: Resources) -> float:
    """Bytes that one such task may use; 0 without a limit."""
    return float(parse_memory(resources.memory)) if resources.memory else 0.0


def gpu_of(resources: Resources) -> float:
    """Devices that one such task gets."""
    return float(resources.gpu)


def asked(
    spec: Spec, of: Callable[[Resources], float], types: Iterable[TaskType] = TaskType
) -> float:
    """The sum of one resource over all tasks of these types."""
    counts = spec.replicas.counts
    return sum(counts.get(t, 0) * of(spec.replicas.of(t).resources) for t in types)


def _scarce(
    spec: Spec,
    what: str,
    limit: Limit,
    of: Callable[[Resources], float],
    show: Callable[[float], str],
    held: Mapping[str, float],
) -> list[Problem]:
    """The problem of a resource that is not shared, or nothing."""
    total = asked(spec, of)
    if total <= limit.free:
        return []
    counts = spec.replicas.counts
    largest = max(counts, key=lambda t: counts[t] * of(spec.replicas.of(t).resources))
    each, count = of(spec.replicas.of(largest).resources), counts[largest]
    fits = int((limit.free - (total - each * count)) // each)
    name = largest.value
    there = f"{show(limit.free)} of {show(limit.total)} is free"
    if holders := ", ".join(f"{run} {show(amount)}" for run, amount in held.items() if amount):
        there += f" (held: {holders})"
    less = f"less {'memory' if what == 'memory' else 'GPU'} for each"
    if fits >= 1 and largest in _FLAGS:
        text = (
            f"{_plural(largest, fits)} of {show(each)} {'fits' if fits == 1 else 'fit'}, {count} were asked: "
            f"use {_FLAGS[largest]} {fits}, or {less}; {there}"
        )
        return [Problem(f"replicas.{name}.count", count, text)]
    text = f"{there}, and {show(total)} are asked in all: ask for {less}, use fewer tasks, or stop another run"
    if what == "gpu" and not limit.total:
        text = "this machine has no GPU that TensorFlow could use (nvidia-smi lists none): ask for none"
    return [Problem(f"replicas.{name}.resources.{what}", show(each), text)]


def _plural(task_type: TaskType, count: int) -> str:
    return f"1 {task_type.value}" if count == 1 else f"{count} {_PLURALS[task_type]}"


def _warnings(spec: Spec, room: Room) -> list[str]:
    found = []
    cpu = asked(spec, lambda r: r.cpu or 0.0)
    if cpu > room.cpu.free:
        taken = room.cpu.total - room.cpu.free
        others = f", of which other runs asked for {taken:g}" if taken > 0 else ""
        found.append(
            f"{cpu:g} CPU cores are asked for and this machine has {room.cpu.total:g}{others}: "
            "the tasks share them and run slower"
        )
    unlimited = sum(
        n for t, n in spec.replicas.counts.items() if not spec.replicas.of(t).resources.memory
    )
    need = unlimited * _TYPICAL[spec.mode]
    if need > room.memory.free:
        found.append(
            f"{unlimited} tasks without a memory limit need about {format_bytes(need)} for TensorFlow alone, and "
            f"{format_bytes(room.memory.free)} is free: use fewer tasks"
        )
    return found


_TYPICAL = {Mode.BETWEEN_GRAPH: 400 * 2**20, Mode.IN_GRAPH: 180 * 2**20}
"""Bytes of memory (PSS) of an idle TensorFlow 2.21 task on CPU, as measured."""
