"""Limits of one user on this machine, as the hub sets them. Pure.

The hub writes a JSON file for each user and names it in TFCLUSTER_LIMITS; every check of a launch
reads `Limits` from this file. The limits are no security boundary, because a user's account can
start any process anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import field
from msgspec.structs import replace

from ..errors import Problem
from ..i18n import _, ngettext
from ..spec import Model, Resources, Spec, TaskType
from ..spec.quantities import format_bytes, format_gpus, parse_memory
from .ledger import DEFAULT_CORES

LIMITS_VARIABLE = "TFCLUSTER_LIMITS"
DEFAULT_MEMORY = "1Gi"
"""The memory that counts for a task without a request, the same as in the operator's policy."""


class Quota(Model, frozen=True):
    """The limits of all tasks of a user at the same time; None means no limit."""

    cpu: float | None = None
    memory: str | None = None
    gpu: int | None = None
    pods: int | None = None


class OverrideTerm(Model, frozen=True):
    """The end of an administrator's exception, and its reason."""

    until: float
    reason: str


class Limits(Model, frozen=True):
    """The content of a user's file of limits (TFCLUSTER_LIMITS). `group` is the group whose limits
    apply to the user; "" if the limits for everybody apply.
    """

    group: str = ""
    quota: Quota = Quota()
    budget: dict[str, Any] = field(default_factory=dict)
    storage: dict[str, Any] = field(default_factory=dict)
    notifications: dict[str, Any] | None = None
    override: OverrideTerm | None = None


@dataclass(frozen=True)
class ResourceTotals:
    """The resources that a run uses, or that a launch requests."""

    run: str
    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0
    pods: float = 0.0


def resource_totals(run: str, spec: Spec, types: Iterable[TaskType] = TaskType) -> ResourceTotals:
    """Return the total for the tasks of these types. Default amounts count for tasks without a CPU
    or memory request.
    """
    counts, every = spec.replicas.counts, list(types)

    def total(of: Any) -> float:
        each = ((counts.get(t, 0), spec.replicas.of(t).resources) for t in every)
        return float(sum(count * of(resources) for count, resources in each))

    return ResourceTotals(
        run=run,
        cpu=total(lambda r: DEFAULT_CORES if r.cpu is None else r.cpu),
        memory=total(_memory_of),
        gpu=total(lambda r: r.gpu),
        pods=total(lambda _r: 1),
    )


def workers_that_fit(spec: Spec, others: Iterable[ResourceTotals], limits: Limits) -> int:
    """Return the maximum number of workers, below the requested number, that a launch may have; 0
    if no number of workers fits.
    """
    running, worker = list(others), spec.replicas.worker
    low, high = 0, max(0, worker.count - 1)
    while low < high:
        middle = (low + high + 1) // 2
        replicas = replace(spec.replicas, worker=replace(worker, count=middle))
        fewer = resource_totals("", replace(spec, replicas=replicas))
        if problems(fewer, running, limits):
            high = middle - 1
        else:
            low = middle
    return low


def problems(
    wanted: ResourceTotals, others: Iterable[ResourceTotals], limits: Limits, fits: int = 0
) -> list[Problem]:
    """Return a problem for each limit of the user that a launch, together with the active runs,
    exceeds. Each problem has a remedy: `fits`, the number of workers that would be allowed, or a
    request for less if `fits` is 0.
    """
    running, found, quota = list(others), [], limits.quota
    less = _("use --workers {fits}").format(fits=fits) if fits else _("ask for less")
    memory = None if quota.memory is None else float(parse_memory(quota.memory))
    for word, most, show in (
        ("cpu", quota.cpu, _cores),
        ("memory", memory, format_bytes),
        ("gpu", quota.gpu, format_gpus),
        ("pods", quota.pods, _tasks),
    ):
        asked = getattr(wanted, word)
        used = sum(getattr(one, word) for one in running)
        if most is None or not asked or used + asked <= most:
            continue
        left = max(0.0, most - used)
        text = _("your limit is {most} at the same time{whose}, with {left} left")
        allowed = text.format(most=show(most), whose=_limit_origin(limits), left=show(left))
        holders = [one.run for one in running if getattr(one, word)]
        if holders:
            each = ", ".join(f"{one.run} {show(getattr(one, word))}" for one in running)
            allowed += _(" ({holders})").format(holders=each)
            way = _(": {less}, wait, or `tfcluster stop {run}`")
            allowed += way.format(less=less, run=holders[0])
        else:
            allowed += _(": {less}").format(less=less)
        allowed += _("; for more, ask an administrator of the hub")
        found.append(Problem(_FIELDS[word], show(asked), allowed))
    return found


_FIELDS = {"cpu": "quota.cpu", "memory": "quota.memory", "gpu": "quota.gpu", "pods": "quota.pods"}


def _limit_origin(limits: Limits) -> str:
    if limits.override is not None:
        text = _(" (an administrator's exception: {reason})")
        return text.format(reason=limits.override.reason)
    return _(" (group {group})").format(group=limits.group) if limits.group else ""


def _memory_of(resources: Resources) -> float:
    return float(parse_memory(resources.memory or DEFAULT_MEMORY))


def _cores(count: float) -> str:
    return ngettext("{count:g} CPU core", "{count:g} CPU cores", round(count)).format(count=count)


def _tasks(count: float) -> str:
    return ngettext("{count:g} task", "{count:g} tasks", round(count)).format(count=count)
