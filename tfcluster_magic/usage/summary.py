"""The current and average usage of a run's tasks, compared with their requests. Pure.

All attempts of a task count: their amounts are summed, and the maximum of their memory is taken.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from ..i18n import _
from ..spec import Model, TaskType, TFCluster
from ..spec.names import task_name
from ..spec.quantities import parse_memory
from .advice import Advice, Advised
from .samples import Attempt, Interval

WINDOW = 6.0
"""Length in seconds of the most recent period over which the current rates are computed."""
STALE = 30.0
"""Seconds after which the last sample of a task no longer counts as current, because the task has
ended or its volume does not answer.
"""


class Rates(Model, frozen=True, omit_defaults=False):
    """The usage of a task over `seconds`.

    `cpu` and `gpu` are busy cores and GPUs, `throttled` is the fraction of the time in which the
    CPU limit made it wait, `memory` and `gpu_memory` are in bytes, the others in bytes a second.
    """

    seconds: float
    cpu: float
    throttled: float
    memory: int
    received: float
    sent: float
    read: float
    written: float
    gpu: float
    gpu_memory: int


class TaskUsage(Model, frozen=True, omit_defaults=False):
    """The usage of one task. `current` is None if the task was not sampled lately, and `average` is
    None if the task was never sampled.

    `cpu_requested` (cores), `memory_requested` (bytes) and `gpus_requested` are the requests of the
    launch; without a request, the container's own limit is used. `steps_per_second` is the current
    speed of its program, if known.
    """

    name: str
    task_type: TaskType
    attempts: int = 0
    at: float | None = None
    current: Rates | None = None
    average: Rates | None = None
    cpu_seconds: float = 0.0
    memory_peak: int = 0
    cpu_requested: float | None = None
    memory_requested: int | None = None
    gpus_requested: int = 0
    steps_per_second: float | None = None


class TypeUsage(Model, frozen=True, omit_defaults=False):
    """The usage of one task type: the mean of the tasks' average CPU and GPU, and the largest
    memory peak with its task.
    """

    task_type: TaskType
    tasks: int
    cpu: float
    cpu_requested: float | None
    memory_peak: int
    peak_task: str
    memory_requested: int | None
    gpu: float
    gpus_requested: int


class RunUsage(Model, frozen=True, omit_defaults=False):
    """The usage of a run: its tasks in display order, its task types that have samples, and advice.

    `advice` has the most important piece first; `no_advice` says why no advice can be given.
    """

    name: str
    uid: str
    ended: bool
    tasks: tuple[TaskUsage, ...]
    types: tuple[TypeUsage, ...]
    advice: tuple[Advice, ...] = ()
    no_advice: str = ""


def run_usage(
    cluster: TFCluster,
    samples: Mapping[str, Sequence[Attempt]],
    steps: Mapping[str, float],
    now: float,
    advised: Advised | None = None,
    only: Container[str] | None = None,
) -> RunUsage:
    """Return the usage of a run from its tasks' samples and their steps a second; `only` restricts
    the result to these tasks.
    """
    ended = cluster.status.phase.is_final
    tasks: list[TaskUsage] = []
    types: list[TypeUsage] = []
    for task_type, count in cluster.spec.replicas.counts.items():
        asked = cluster.spec.replicas.of(task_type).resources
        memory = parse_memory(asked.memory) if asked.memory else None
        mine = []
        for name in (task_name(task_type, index) for index in range(count)):
            if only is not None and name not in only:
                continue
            attempts = samples.get(name, ())
            row = TaskUsage(
                name=name,
                task_type=task_type,
                cpu_requested=asked.cpu,
                memory_requested=memory,
                gpus_requested=asked.gpu,
                steps_per_second=None if ended else steps.get(name),
            )
            mine.append(_with_samples(row, attempts, None if ended else now) if attempts else row)
        tasks += mine
        types += _type_usage(task_type, mine)
    return RunUsage(
        name=cluster.metadata.name,
        uid=cluster.metadata.uid,
        ended=ended,
        tasks=tuple(tasks),
        types=tuple(types),
        advice=advised.advice if advised else (),
        no_advice=advised.no_advice if advised else "",
    )


def _with_samples(row: TaskUsage, attempts: Sequence[Attempt], now: float | None) -> TaskUsage:
    every = [interval for attempt in attempts for interval in attempt.intervals]
    last = attempts[-1]
    current = None
    if now is not None and now - every[-1].at <= STALE:
        newest = last.intervals[-1]
        recent = [each for each in last.intervals if each.at > newest.at - WINDOW]
        current = replace(_rates(recent), memory=newest.memory, gpu_memory=newest.gpu_memory)
    return TaskUsage(
        name=row.name,
        task_type=row.task_type,
        attempts=len(attempts),
        at=every[-1].at,
        current=current,
        average=_rates(every),
        cpu_seconds=round(sum(each.cpu for each in every), 2),
        memory_peak=max(max(each.memory, each.peak) for each in every),
        cpu_requested=row.cpu_requested or last.cpu_limit,
        memory_requested=row.memory_requested or last.memory_limit,
        gpus_requested=row.gpus_requested,
        steps_per_second=row.steps_per_second,
    )


def _rates(intervals: Sequence[Interval]) -> Rates:
    """Return the mean usage over these intervals of a task."""
    # If the processes ended before the last sample, the last interval has no memory.
    lived = [each for each in intervals if each.memory]
    lasted = max(sum(each.seconds for each in lived), 0.1)
    seconds = sum(each.seconds for each in intervals)

    def rate(amounts: Iterable[float]) -> float:
        return round(sum(amounts) / max(seconds, 0.1), 3)

    return Rates(
        seconds=round(seconds, 1),
        cpu=rate(each.cpu for each in intervals),
        throttled=min(1.0, rate(each.throttled for each in intervals)),
        memory=round(sum(each.memory * each.seconds for each in lived) / lasted),
        received=rate(each.received for each in intervals),
        sent=rate(each.sent for each in intervals),
        read=rate(each.read for each in intervals),
        written=rate(each.written for each in intervals),
        gpu=rate(each.gpu for each in intervals),
        gpu_memory=round(sum(each.gpu_memory * each.seconds for each in lived) / lasted),
    )


def _type_usage(task_type: TaskType, tasks: Sequence[TaskUsage]) -> list[TypeUsage]:
    # A task that ended before its first sample has no memory peak, so leave it out.
    known = [(task, task.average) for task in tasks if task.average and task.memory_peak]
    if not known:
        return []
    highest = max((task for task, _average in known), key=lambda task: task.memory_peak)
    return [
        TypeUsage(
            task_type=task_type,
            tasks=len(known),
            cpu=round(sum(average.cpu for _task, average in known) / len(known), 3),
            cpu_requested=highest.cpu_requested,
            memory_peak=highest.memory_peak,
            peak_task=highest.name,
            memory_requested=highest.memory_requested,
            gpu=round(sum(average.gpu for _task, average in known) / len(known), 3),
            gpus_requested=highest.gpus_requested,
        )
    ]


# ---- the samples of one task over time ----


class Series(Model, frozen=True, omit_defaults=False):
    """The samples of one task, oldest first, with one column for each figure of `Rates`. `at` is
    the end of an interval, and `attempt` is the number of the attempt to which the interval
    belongs.
    """

    at: tuple[float, ...]
    seconds: tuple[float, ...]
    attempt: tuple[int, ...]
    cpu: tuple[float, ...]
    throttled: tuple[float, ...]
    memory: tuple[int, ...]
    received: tuple[float, ...]
    sent: tuple[float, ...]
    read: tuple[float, ...]
    written: tuple[float, ...]
    gpu: tuple[float, ...]
    gpu_memory: tuple[int, ...]


def series(attempts: Sequence[Attempt], points: int | None = None) -> Series:
    """Return the samples of a task as columns. With `points`, samples are merged so that each
    column has about this many values.
    """
    groups = [(a.number, group) for a, group in _grouped(attempts, points)]
    every = [(number, group[-1], _rates(group)) for number, group in groups]
    return Series(
        at=tuple(round(each.at, 1) for _number, each, _rate in every),
        attempt=tuple(number for number, _each, _rate in every),
        **{
            name: tuple(getattr(rate, name) for _number, _each, rate in every)
            for name in Rates.__struct_fields__
        },
    )


def _grouped(
    attempts: Sequence[Attempt], points: int | None
) -> Iterator[tuple[Attempt, list[Interval]]]:
    """Divide the whole time into `points` equal parts. Yield the intervals of each attempt, grouped
    by the part in which they end.
    """
    begin = attempts[0].intervals[0].at
    step = (attempts[-1].intervals[-1].at - begin) / points if points else 0.0
    for attempt in attempts:
        for _part, group in itertools.groupby(
            attempt.intervals, lambda each: (each.at - begin) // step if step > 0 else each.at
        ):
            yield attempt, list(group)


# ---- sentences ----

_GIB, _MIB = 1 << 30, 1 << 20


def memory_words(used: float, asked: float | None) -> str:
    """Return used and requested memory as text: `2.1 of 8 GiB`, `300 MiB of 2 GiB`. If the request
    is not known, the text is only the used memory: `40 MiB`.
    """
    size, unit = _size_unit(used)
    if asked is None:
        return f"{_short(used / size)} {unit}"
    asked_size, asked_unit = _size_unit(asked)
    if used and unit != asked_unit:
        return _("{used} of {asked}").format(
            used=memory_words(used, None), asked=memory_words(asked, None)
        )
    return _("{used} of {asked} {unit}").format(
        used=_short(used / asked_size), asked=_short(asked / asked_size), unit=asked_unit
    )


def _size_unit(amount: float) -> tuple[int, str]:
    return (_GIB, "GiB") if amount >= _GIB else (_MIB, "MiB")


def _cores(number: float) -> str:
    """Return a number of cores as text: `1.3`; below one core, with two decimals: `0.02`."""
    return _short(number) if number >= 1 else f"{number:.2f}".rstrip("0").removesuffix(".")


def _short(number: float) -> str:
    """Return a number with at most one decimal, or without decimals if it is large."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}".removesuffix(".0")


def advice_lines(usage: RunUsage) -> list[str]:
    """Return each piece of advice with its command, or the reason why there is no advice."""
    lines = []
    for each in usage.advice:
        text = _("advice: {message} `{command}`") if each.command else _("advice: {message}")
        lines.append(text.format(message=each.message, command=each.command))
    return lines + ([usage.no_advice] if usage.no_advice else [])


def usage_lines(usage: RunUsage) -> list[str]:
    """Return a sentence for each task type, with its request and its usage."""
    return type_lines(usage.types, Counter(task.task_type for task in usage.tasks))


def type_lines(types: Iterable[TypeUsage], counts: Mapping[TaskType, int]) -> list[str]:
    """Return a sentence with request and usage for each of these types; `counts` has the number of
    their tasks.
    """
    return [_type_line(each, counts.get(each.task_type, each.tasks)) for each in types]


def _type_line(each: TypeUsage, total: int) -> str:
    values = {
        "type": each.task_type.value,
        "asked": f"{each.cpu_requested or 0:g}",
        "used": _cores(each.cpu),
        "memory": memory_words(each.memory_peak, each.memory_requested),
        "task": each.peak_task,
        "gpus": each.gpus_requested,
        "busy": _short(each.gpu),
    }
    if each.cpu_requested:
        text = _("{type}: asked for {asked} CPU, used {used}; peak of memory {memory} ({task})")
    else:
        text = _("{type}: used {used} CPU; peak of memory {memory} ({task})")
    told = text.format(**values)
    if each.gpus_requested:
        told += _("; GPUs: asked for {gpus}, used {busy}").format(**values)
    if each.tasks < total:
        return _("{usage} (of {known} of {total} tasks)").format(
            usage=told, known=each.tasks, total=total
        )
    return told
