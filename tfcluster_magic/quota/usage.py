"""How long tasks have held what they ask for: CPU- and GPU-hours of a run. Pure.

Promises that time is counted from a task's own start to its own end, as the world tells them, and
not from when somebody looked: an operator or a supervisor that was away counts the same. Keeps one
number for each day (UTC) and task type, and how many tasks hold something since then, so that a
reader has the sum of any moment without anybody having to write it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone

from msgspec.structs import replace

from ..spec import Spec, TaskType, Usage

DAY = 86400.0
USUAL_CORES = 0.5
"""What a task counts for that asks for no CPU on this machine, as the operator's policy has it."""
MOST_DAYS = 60
"""What is older is counted to the oldest day that is kept."""

Days = dict[str, dict[str, float]]
Span = tuple[str, float | None, float | None]
"""Task type, when a task began to hold something, and when it ended; None: not yet."""


def count(
    before: Usage | None,
    spans: Iterable[Span],
    now: float,
    cores: Mapping[str, float],
    used: float | None = None,
) -> Usage | None:
    """`before` brought up to `now`, the same object when nothing began or ended since.

    A span without a beginning holds nothing. If it has ended it may be one that was held when
    `before` was written, of which the world forgot the rest: it is counted from there, as long as
    there are fewer others than there were. `cores` are what a task of a type asks for, `used` the
    CPU seconds of what has ended: they are of all the time that is counted once nothing is held.
    """
    every, until = list(spans), before.at if before else 0.0
    known = [(kind, since, ended) for kind, since, ended in every if since is not None]
    holding = Counter(kind for kind, _since, ended in known if ended is None)
    left = Counter(before.holding if before else {})
    left.subtract(kind for kind, since, ended in known if since <= until < (ended or now))
    for kind, since, ended in every:
        if since is None and ended is not None and ended > until and left[kind] > 0:
            left[kind] -= 1
            known.append((kind, until, ended))
    news = any(since > until or (ended is not None and ended > until) for _k, since, ended in known)
    used = None if holding else used
    if before is None and not known:
        return None
    if before is not None and not news and holding == Counter(before.holding):
        return before if used is None or used == before.used else replace(before, used=used)
    days: Days = {day: dict(types) for day, types in (before.days if before else {}).items()}
    for kind, since, ended in known:
        _add(days, kind, max(since, until), now if ended is None else min(ended, now))
    return Usage(
        at=max(now, until),
        holding=dict(holding),
        days=_folded(days),
        cores=dict(cores),
        used=used,
    )


def days(usage: Usage, now: float) -> Days:
    """Seconds by day (`2026-11-22`, UTC) and task type until `now`, with what is held meanwhile."""
    found = {day: dict(types) for day, types in usage.days.items()}
    for task_type, tasks in usage.holding.items():
        _add(found, task_type, usage.at, now, tasks)
    return found


def total(usage: Usage | None, now: float) -> dict[str, float]:
    """Seconds by task type of all days until `now`."""
    found: defaultdict[str, float] = defaultdict(float)
    for types in days(usage, now).values() if usage else ():
        for task_type, seconds in types.items():
            found[task_type] += seconds
    return dict(found)


def hours(usage: Usage | None, spec: Spec, now: float) -> tuple[float, float]:
    """CPU-hours and GPU-hours that a run has held until `now`, by what its tasks ask for."""
    cpu = gpu = 0.0
    for task_type, seconds in total(usage, now).items():
        cpu += (usage.cores.get(task_type, 0.0) if usage else 0.0) * seconds / 3600
        gpu += spec.replicas.of(TaskType(task_type)).resources.gpu * seconds / 3600
    return cpu, gpu


def _add(found: Days, task_type: str, start: float, end: float, tasks: int = 1) -> None:
    for day, seconds in _by_day(start, end):
        of_day = found.setdefault(day, {})
        of_day[task_type] = of_day.get(task_type, 0.0) + seconds * tasks


def _by_day(start: float, end: float) -> Iterator[tuple[str, float]]:
    while start < end:
        midnight = (start // DAY + 1) * DAY
        day = datetime.fromtimestamp(start, timezone.utc).date().isoformat()
        yield day, min(end, midnight) - start
        start = midnight


def _folded(found: Days) -> Days:
    kept = sorted(found)[-MOST_DAYS:]
    folded = {day: found[day] for day in kept}
    for day in found.keys() - folded.keys():
        for task_type, seconds in found[day].items():
            of_day = folded[kept[0]]
            of_day[task_type] = of_day.get(task_type, 0.0) + seconds
    return folded
