"""Graphs of what the tasks of a run used over time: a few for each type, on one time axis. Pure.

For a type with many tasks, a graph shows the median, minimum and maximum, and a line for each task
that differs most from the others.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from ..spec import Event, Model, TFCluster
from ..spec.names import task_name
from .advice import Advice
from .samples import Attempt
from .summary import RunUsage, TypeUsage

Figure = Literal["cpu", "memory", "network", "steps"]
FIGURES: tuple[Figure, ...] = ("cpu", "memory", "network", "steps")
MOST_LINES = 6
"""Maximum number of lines in a graph for the tasks of one type. If the type has more tasks, only
outliers are drawn as lines.
"""
APART = 0.25
"""Threshold: a task is an outlier if it differs from the median of all tasks by more than this
fraction of the median, and by more than three times the median of all tasks' differences from that
median.
"""
_LEAST: dict[Figure, float] = {"cpu": 0.1, "memory": 64 << 20, "network": 64 << 10, "steps": 0.01}
"""Thresholds: with a smaller difference from the median, a task is never an outlier."""

Values = tuple[float | None, ...]


class GraphLine(Model, frozen=True, omit_defaults=False):
    """One task in a graph; a value is None where it was not sampled. `outlier` says whether it
    differs from the other tasks of its type.
    """

    task: str
    outlier: bool
    values: Values


class Graph(Model, frozen=True, omit_defaults=False):
    """One figure of all tasks of a type: `cpu` in cores, `memory` in bytes, `network` in bytes a
    second (received and sent), `steps` a second. `requested` is the amount that one task
    requests.
    """

    figure: Figure
    requested: float | None
    low: Values
    middle: Values
    high: Values
    lines: tuple[GraphLine, ...]


class TypeGraphs(Model, frozen=True, omit_defaults=False):
    """The graphs of one task type, and the sum of what its tasks used."""

    usage: TypeUsage
    graphs: tuple[Graph, ...]


class StepMark(Model, frozen=True, omit_defaults=False):
    """A step of the training and when it was reached."""

    at: float
    step: int


class RunGraphs(Model, frozen=True, omit_defaults=False):
    """The graphs of a run. `at` are the ends of equal parts of the time since `began`, in seconds
    since 1970; `restarts` are the tasks that were started again, by time. The advice is the same as
    in the usage of the run.
    """

    began: float
    at: tuple[float, ...]
    types: tuple[TypeGraphs, ...]
    steps: tuple[StepMark, ...]
    restarts: tuple[tuple[float, str], ...]
    events: tuple[Event, ...]
    advice: tuple[Advice, ...]
    no_advice: str


def run_graphs(
    cluster: TFCluster,
    samples: Mapping[str, Sequence[Attempt]],
    usage: RunUsage,
    points: int,
) -> RunGraphs:
    """Return the graphs of a run from the samples of its tasks and its `usage`, with
    at most `points` values in a line.
    """
    known = {task: told for task, told in samples.items() if told}
    axis = _axis(known.values(), points)
    types = []
    for each in usage.types:
        count = cluster.spec.replicas.counts.get(each.task_type, 0)
        names = [task_name(each.task_type, index) for index in range(count)]
        mine = {name: known[name] for name in names if name in known}
        types.append(_type_graphs(each, mine, axis))
    restarts = [
        (attempt.began, task)
        for task, attempts in known.items()
        for attempt in attempts
        if attempt.number > 1
    ]
    return RunGraphs(
        began=axis.begin,
        at=tuple(round(at, 1) for at in axis.ends),
        types=tuple(types),
        steps=_step_marks(known, axis),
        restarts=tuple(sorted(restarts)[-_MOST_MARKS:]),
        events=tuple(e for e in cluster.status.events if axis.begin <= e.at),
        advice=usage.advice,
        no_advice=usage.no_advice,
    )


_MOST_MARKS = 50


class _Axis(NamedTuple):
    begin: float
    step: float
    ends: tuple[float, ...]


def _axis(every: Iterable[Sequence[Attempt]], points: int) -> _Axis:
    """Return the time axis that the graphs of all tasks share. Each of its parts is at least as
    long as the median interval between samples.
    """
    attempts = [attempt for told in every for attempt in told]
    if not attempts:
        return _Axis(0.0, 1.0, ())
    begin = min(attempt.began for attempt in attempts)
    end = max(attempt.intervals[-1].at for attempt in attempts)
    lengths = [each.seconds for attempt in attempts for each in attempt.intervals]
    step = max((end - begin) / points, statistics.median(lengths), 0.1)
    count = min(points, max(1, -int(-(end - begin) // step)))
    return _Axis(begin, step, tuple(begin + step * number for number in range(1, count + 1)))


def _type_graphs(
    usage: TypeUsage, samples: Mapping[str, Sequence[Attempt]], axis: _Axis
) -> TypeGraphs:
    requested: dict[Figure, float | None] = {
        "cpu": usage.cpu_requested,
        "memory": usage.memory_requested,
    }
    columns: dict[Figure, dict[str, Values]] = {figure: {} for figure in FIGURES}
    for task, told in samples.items():
        for figure, values in _columns(told, axis).items():
            columns[figure][task] = values
    graphs = [_graph(f, columns[f], requested.get(f)) for f in FIGURES if columns[f]]
    return TypeGraphs(usage=usage, graphs=tuple(graphs))


def _columns(attempts: Sequence[Attempt], axis: _Axis) -> dict[Figure, Values]:
    """Return the values of one task in each part of the axis. An interval counts in each part that
    it overlaps, in proportion to the overlap.
    """
    count = len(axis.ends)
    cpu, network, lasted = [0.0] * count, [0.0] * count, [0.0] * count
    memory = [0.0] * count
    for attempt in attempts:
        for each in attempt.intervals:
            if each.seconds <= 0:
                continue
            start = each.at - each.seconds
            first = max(0, int((start - axis.begin) / axis.step))
            last = min(count - 1, int((each.at - axis.begin - 1e-6) / axis.step))
            for part in range(first, last + 1):
                begin = axis.begin + part * axis.step
                shared = min(each.at, begin + axis.step) - max(start, begin)
                if shared > 0:
                    cpu[part] += each.cpu * shared / each.seconds
                    network[part] += (each.received + each.sent) * shared / each.seconds
                    lasted[part] += shared
                    memory[part] = max(memory[part], each.memory)
    found: dict[Figure, Values] = {
        "cpu": _rates(cpu, lasted, 3),
        # When the last sample of a task is taken, its processes may have ended; then the memory is
        # 0.
        "memory": tuple(size or None for size in memory),
        "network": _rates(network, lasted, 0),
    }
    steps = _step_rates(attempts, axis)
    return {**found, "steps": steps} if any(each is not None for each in steps) else found


def _rates(amounts: Sequence[float], lasted: Sequence[float], digits: int) -> Values:
    return tuple(
        round(amount / time, digits) if time else None
        for amount, time in zip(amounts, lasted, strict=True)
    )


def _step_points(attempt: Attempt) -> list[tuple[float, int]]:
    """Return the reported steps of a task with their times; a lower step, as after a restart,
    discards the steps before it.
    """
    found: list[tuple[float, int]] = []
    for each in attempt.intervals:
        if each.step:
            if found and each.step < found[-1][1]:
                found = []
            found.append((each.at, each.step))
    return found


def _step_rates(attempts: Sequence[Attempt], axis: _Axis) -> Values:
    rates: list[float | None] = [None] * len(axis.ends)
    for attempt in attempts:
        points = _step_points(attempt)
        if len(points) < 2:
            continue
        times = [at for at, _step in points]
        until = attempt.intervals[-1].at
        for part, end in enumerate(axis.ends):
            begin = end - axis.step
            if end <= times[0] or begin >= until:
                continue
            since, now = max(begin, times[0]), min(end, until)
            done = _step_at(points, times, now) - _step_at(points, times, since)
            if now > since:
                rates[part] = round(done / (now - since), 3)
    return tuple(rates)


def _step_at(points: Sequence[tuple[float, int]], times: Sequence[float], at: float) -> float:
    """Return the step at a time, interpolated between two reported steps."""
    after = bisect.bisect_left(times, at)
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (one, low), (other, high) = points[after - 1], points[after]
    return low + (high - low) * (at - one) / (other - one) if other > one else high


def _step_marks(samples: Mapping[str, Sequence[Attempt]], axis: _Axis) -> tuple[StepMark, ...]:
    """Return the step of the furthest task at the end of each part of the axis, where a step is
    known.
    """
    found: dict[int, StepMark] = {}
    for attempts in samples.values():
        for attempt in attempts:
            for at, step in _step_points(attempt):
                part = int((at - axis.begin) / axis.step)
                if part not in found or found[part].step < step:
                    found[part] = StepMark(at=round(at, 1), step=step)
    return tuple(found[part] for part in sorted(found))


def _graph(figure: Figure, columns: Mapping[str, Values], requested: float | None) -> Graph:
    rows = [
        sorted(v for v in part if v is not None) for part in zip(*columns.values(), strict=True)
    ]
    outliers = _outliers(figure, columns)
    few = len(columns) <= MOST_LINES
    rest = [task for task in columns if task not in outliers] if few else []
    return Graph(
        figure=figure,
        requested=requested,
        low=tuple(row[0] if row else None for row in rows),
        middle=tuple(statistics.median(row) if row else None for row in rows),
        high=tuple(row[-1] if row else None for row in rows),
        lines=tuple(
            GraphLine(task=task, outlier=task in outliers, values=columns[task])
            for task in [*outliers, *rest]
        ),
    )


def _outliers(figure: Figure, columns: Mapping[str, Values]) -> list[str]:
    """Return the tasks whose mean differs much from the mean of the others, the most different
    first. With fewer than three tasks, return an empty list, because it is unclear which task is
    usual.
    """
    means = {
        task: statistics.fmean(known)
        for task, values in columns.items()
        if (known := [value for value in values if value is not None])
    }
    if len(means) < 3:
        return []
    middle = statistics.median(means.values())
    away = {task: abs(mean - middle) for task, mean in means.items()}
    usual = statistics.median(away.values())
    least = max(3 * usual, APART * abs(middle), _LEAST[figure])
    far = sorted((t for t in away if away[t] > least), key=lambda t: -away[t])
    return far[:MOST_LINES]
