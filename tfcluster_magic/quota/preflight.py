"""Whether a cluster fits: what is asked against what there is. Pure: numbers in, problems and
warnings out.

Promises that memory and GPUs beyond what is free are refused with the number that would fit, and
that CPU beyond the machine is only a warning, since it is shared. It never looks at a machine or a
cluster itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import Problem
from ..i18n import _, mark, ngettext
from ..spec import Mode, Model, Resources, Spec, TaskType
from ..spec.quantities import format_bytes, parse_memory

_FLAGS = {TaskType.WORKER: "--workers", TaskType.PS: "--ps"}


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

    `told` is what a person should know before a launch, and stands against nothing. `unsupported`
    are those of the problems that ask for what this place never has.
    """

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    unsupported: tuple[Problem, ...] = ()


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


@dataclass(frozen=True)
class _ScarceResource:
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


def _gpus(count: float) -> str:
    return ngettext("{count:g} GPU", "{count:g} GPUs", count).format(count=count)


_MEMORY = _ScarceResource("memory", memory_of, format_bytes, mark("less memory for each"))
_GPU = _ScarceResource("gpu", gpu_of, _gpus, mark("fewer GPUs for each"))


def check_fit(spec: Spec, room: AvailableResources) -> Preflight:
    """Everything that stands against `spec` in `room`."""
    problems = list(room.obstacles)
    if (total := spec.replicas.total) > room.max_tasks:
        problems.append(too_many_tasks(total, room.max_tasks))
    problems += _shortage(spec, _MEMORY, room.memory, room.held)
    problems += _shortage(spec, _GPU, room.gpu, {})
    return Preflight(tuple(problems), (*room.warnings, *_warnings(spec, room)))


def too_many_tasks(count: int, most: int) -> Problem:
    """More tasks in all than may run."""
    allowed = _("at most {most} tasks run here: use fewer").format(most=most)
    asked_for = ngettext("{count} task", "{count} tasks", count).format(count=count)
    return Problem("replicas", asked_for, allowed)


def too_many_replicas(
    task_type: TaskType, fits: int, count: int, each: str, less: str, free: str
) -> Problem:
    """`count` workers or parameter servers of `each` are asked for, and only `fits` (at least one)
    fit; `less` is the other way out, and `free` says what there is.
    """
    allowed = _("{fitting}, {count} were asked: use {flag} {fits}, or {less}; {free}").format(
        fitting=_fitting(task_type, fits, each),
        count=count,
        flag=_FLAGS[task_type],
        fits=fits,
        less=less,
        free=free,
    )
    return Problem(f"replicas.{task_type.value}.count", count, allowed, fits)


def total_request(
    spec: Spec, of: Callable[[Resources], float], types: Iterable[TaskType] = TaskType
) -> float:
    """The sum of one resource over all tasks of these types."""
    counts = spec.replicas.counts
    return sum(counts.get(t, 0) * of(spec.replicas.of(t).resources) for t in types)


def _shortage(
    spec: Spec, scarce: _ScarceResource, limit: Limit, held: Mapping[str, float]
) -> list[Problem]:
    """The problem with a scarce resource, if any: the type that asks for most gives way."""
    total = total_request(spec, scarce.of)
    if total <= limit.free:
        return []
    counts, show = spec.replicas.counts, scarce.show
    task_type = max(counts, key=lambda t: counts[t] * scarce.of(spec.replicas.of(t).resources))
    each, count = scarce.of(spec.replicas.of(task_type).resources), counts[task_type]
    fits = int((limit.free - (total - each * count)) // each)
    where = f"replicas.{task_type.value}"
    free = _("{free} of {total} is free").format(free=show(limit.free), total=show(limit.total))
    if holders := ", ".join(f"{run} {show(amount)}" for run, amount in held.items() if amount):
        free += _(" (taken by {holders})").format(holders=holders)
    if scarce is _GPU and not limit.total:
        allowed = _("this machine has no GPU (nvidia-smi lists none): ask for none")
        return [Problem(f"{where}.resources.gpu", int(each), allowed)]
    if fits >= 1 and task_type in _FLAGS:
        return [too_many_replicas(task_type, fits, count, show(each), _(scarce.less), free)]
    allowed = _("{total} are asked in all, and {free}: use fewer tasks, or {less}").format(
        total=show(total), free=free, less=_(scarce.less)
    )
    return [Problem(f"{where}.resources.{scarce.name}", show(each), allowed)]


def _fitting(task_type: TaskType, count: int, each: str) -> str:
    if task_type is TaskType.PS:
        text = ngettext(
            "{count} ps of {each} fits", "{count} parameter servers of {each} fit", count
        )
    else:
        text = ngettext("{count} worker of {each} fits", "{count} workers of {each} fit", count)
    return text.format(count=count, each=each)


def _warnings(spec: Spec, room: AvailableResources) -> list[str]:
    found = []
    cpu = total_request(spec, cpu_of)
    if cpu > room.cpu.free:
        taken = room.cpu.total - room.cpu.free
        others = _(", of which other runs asked for {cores:g}").format(cores=taken)
        found.append(
            _(
                "{cpu:g} CPU cores are asked for and this machine has {total:g}{others}: "
                "the tasks share them and run slower"
            ).format(cpu=cpu, total=room.cpu.total, others=others if taken > 0 else "")
        )
    replicas = spec.replicas
    unlimited = sum(n for t, n in replicas.counts.items() if not replicas.of(t).resources.memory)
    need = unlimited * _TYPICAL[spec.mode]
    if need > room.memory.free:
        found.append(
            _(
                "{count} tasks without a memory limit need about {need} for "
                "TensorFlow alone, and {free} is free: use fewer tasks"
            ).format(count=unlimited, need=format_bytes(need), free=format_bytes(room.memory.free))
        )
    return found


_TYPICAL = {Mode.BETWEEN_GRAPH: 400 * 2**20, Mode.IN_GRAPH: 180 * 2**20}
"""Bytes of memory (PSS) of an idle TensorFlow 2.21 task on CPU, as measured."""
