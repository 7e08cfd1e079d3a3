"""Advice from the usage of earlier runs for the next runs of a schedule (`--advised`). Pure.

`judge` examines a run that has ended, and writes the changes that its usage advises into the
schedule's status. `in_force` returns the changes that a launch may use. The figures may be wrong or
forged, because a task's program can write them. Therefore advice changes only the number of tasks
and their resources. A changed value differs by at most the factor `FACTOR` from the value that the
schedule itself sets. The launch checks whether the result is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..launch.options import BY_KEY, Kind, Option
from ..schedules import MOST_ADVISED, ScheduleStatus
from ..spec import AdvisedOption, Message, Phase, Reason, Spec, TFCluster, conversion
from ..spec.names import parse_task
from ..spec.quantities import parse_memory
from .advice import Finding, findings, mean_step_rates, more_memory
from .samples import Attempt

FACTOR = 2.0
"""Maximum factor by which a value that advice sets differs from the schedule's own value."""
_AFTER_FAILURE = ("AdviceMemoryNearlyOut", "OutOfMemory")
"""Codes of the only advice that counts if the run did not succeed. The failure may have caused the
figures of any other advice.
"""


def judge(
    status: ScheduleStatus,
    run: str,
    found: TFCluster | None,
    samples: Mapping[str, Sequence[Attempt]],
    cores: float | None = None,
) -> ScheduleStatus:
    """Return the status of the schedule, updated with the advice from the usage of `run`: the
    options that later runs should change, and their values.

    Args:
        status: the schedule's status.
        run: the name of the run, which has ended.
        found: the run's record; None if the record is gone, so that there is no advice.
        samples: the samples of its tasks.
        cores: the number of cores of the machine, if all tasks run on one machine.
    """
    status = replace(status, judged=run)
    if found is None or found.metadata.scheduled is None:
        return status
    known = {each.option: each for each in status.advised}
    owned = {each.option: each.own for each in found.metadata.scheduled.advised or ()}
    seen = set[str]()
    for finding in _that_count(found, samples, cores):
        for key, value in finding.options.items():
            own = owned.get(key) or _text(found.spec, BY_KEY[key])
            new = _within_bounds(BY_KEY[key], own, value)
            if new is None or key in seen:
                continue  # not settable, or set by a more important finding
            seen.add(key)
            if new == own:
                known.pop(key, None)
            elif key not in known or (known[key].own, known[key].value) != (own, new):
                why = Message(finding.code, finding.params)
                known[key] = AdvisedOption(option=key, own=own, value=new, run=run, why=why)
    return replace(status, advised=tuple(known.values())[:MOST_ADVISED])


def _that_count(
    found: TFCluster, samples: Mapping[str, Sequence[Attempt]], cores: float | None
) -> list[Finding]:
    """Return the advice on a run that counts for its schedule, the most important first. The run is
    not compared with other runs, because those may have been launched by hand.
    """
    if found.status.phase is Phase.SUCCEEDED:
        counts = {
            task: max(each.step for attempt in attempts for each in attempt.intervals)
            for task, attempts in samples.items()
        }
        steps = mean_step_rates(found, samples, {task: n for task, n in counts.items() if n})
        return findings(found, samples, steps, (), cores)[0]
    made = [*_out_of_memory(found)]
    made += findings(found, samples, {}, (), cores)[0]
    return [each for each in made if each.code in _AFTER_FAILURE]


def _out_of_memory(found: TFCluster) -> Iterable[Finding]:
    culprit = found.status.culprit
    if found.status.reason is Reason.OOM_KILLED and culprit:
        task_type = parse_task(culprit)[0]
        limit = found.spec.replicas.of(task_type).resources.memory
        if limit:
            params = {"task": culprit, "limit": limit, "more": ""}
            options = {f"{task_type.value}_memory": more_memory(parse_memory(limit))}
            yield Finding(culprit, "OutOfMemory", params, options)


def in_force(own: Spec, advised: Iterable[AdvisedOption]) -> tuple[AdvisedOption, ...]:
    """Return the advice that a launch of the schedule's spec `own` uses. If the schedule's own
    value of an option has changed since the advice was given, the advice on this option is ignored.
    """
    found = []
    for each in advised:
        option = BY_KEY.get(each.option)
        if option is None or option.path[0] != "replicas" or each.own != _text(own, option):
            continue
        if _within_bounds(option, each.own, each.value) == each.value != each.own:
            found.append(each)
    return tuple(found)


def with_advice(own: Spec, advised: Iterable[AdvisedOption]) -> Spec:
    """Return the spec `own` with the changes of `advised`, which `in_force` has returned."""
    content = msgspec.to_builtins(own.replicas)
    for each in advised:
        option, node = BY_KEY[each.option], content
        for part in option.path[1:-1]:
            node = node.setdefault(part, {})
        node[option.path[-1]] = each.value if option.kind is Kind.MEMORY else _read(option, each)
    return replace(own, replicas=conversion.convert(content, type(own.replicas)))


def changes(advised: Iterable[AdvisedOption]) -> Message:
    """Return a message that lists the changes that advice made to the options of a run, and the
    earlier runs on which the advice is based.
    """
    every = [*advised]
    told = [each.change for each in every]
    runs = list(dict.fromkeys(each.run for each in every))
    return Message("ScheduleAdvised", {"changes": told, "runs": runs})


def refusal(advised: Iterable[AdvisedOption], why: Message | str) -> Message:
    """Return a message that says that a run was launched without the advice, and why."""
    told = [each.change for each in advised]
    return Message("ScheduleAdviceRefused", {"changes": told, "why": why})


# ---- values of options ----


def _read(option: Option, each: AdvisedOption) -> float:
    return int(each.value) if option.kind is Kind.WHOLE else float(each.value)


def _text(spec: Spec, option: Option) -> str:
    """Return the value of an option as a user types it; empty if the option is not set."""
    replicas = getattr(spec.replicas, option.path[1])
    if option.path[2] == "count":
        return str(replicas.count)
    value = getattr(replicas.resources, option.path[3])
    return "" if value is None else value if isinstance(value, str) else f"{value:g}"


def _within_bounds(option: Option, own: str, value: object) -> str | None:
    """Return `value`, limited to between `own` / `FACTOR` and `own` * `FACTOR`, as a user types it.
    `own` is the schedule's own value. Return None if `own` is empty or 0, or if one of the two
    values cannot be parsed.
    """
    try:
        if option.kind is Kind.MEMORY:
            return _memory_within(parse_memory(own), str(value))
        base, new = float(own), float(str(value))
    except ValueError:
        return None
    if not (base > 0 and math.isfinite(base) and math.isfinite(new)):
        return None
    new = min(max(new, base / FACTOR), base * FACTOR)
    return str(math.ceil(new)) if option.kind is Kind.WHOLE else f"{new:g}"


_MIB, _GIB = 1 << 20, 1 << 30


def _memory_within(base: int, value: str) -> str:
    low, high, new = math.ceil(base / FACTOR), int(base * FACTOR), parse_memory(value)
    if new > high:
        return _memory_text(high)
    return _memory_text(low + _MIB - 1) if new < low else value


def _memory_text(count: int) -> str:
    """Return an amount of memory as text. It is rounded down to whole MiB; an amount below 1 MiB is
    returned in bytes.
    """
    if count < _MIB:
        return str(count)
    whole = count // _MIB * _MIB
    return f"{whole // _GIB}Gi" if whole % _GIB == 0 else f"{whole // _MIB}Mi"
