"""Whether a run fits in its namespace and on the nodes, and how many of its tasks would. Pure.

Promises every problem at once, with the number that fits: one that fits every quota and is placed
task by task on nodes, not only in sum. `Place.empty` answers whether it would ever fit. Limits of
nodes are checked only where the nodes are known (`nodes` is not None).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ...errors import Problem
from ...i18n import _
from ...quota.preflight import too_many, too_many_tasks
from ...spec import Model, TaskType
from ..api.amounts import PODS, Amounts, plus, times
from ..api.wording import emptiest, held_by, show, show_all
from .namespace_limits import Bounds, Demand, Quota
from .packing import Group, place, room_for

Wanted = Mapping[TaskType, tuple[int, Demand]]
"""How many tasks of each type, and what each asks for."""


class Node(Model, frozen=True):
    """`count` nodes that take task pods: each has `total`, of which `free` is not asked for."""

    total: Amounts
    free: Amounts
    count: int = 1


class Place(Model, frozen=True):
    """Where a run would run. `held` says what the namespace's own runs hold, for messages."""

    nodes: tuple[Node, ...] | None = None
    quotas: tuple[Quota, ...] = ()
    bounds: Bounds = Bounds()
    max_tasks: int = 1000
    held: dict[str, Amounts] = {}

    def empty(self) -> Place:
        """The same when no run holds anything: what does not fit there never fits."""
        nodes = self.nodes
        if nodes is not None:
            nodes = tuple(Node(total=n.total, free=n.total, count=n.count) for n in nodes)
        free = tuple(Quota(name=q.name, hard=q.hard) for q in self.quotas)
        return replace(self, nodes=nodes, quotas=free, held={})


@dataclass(frozen=True)
class Shortage:
    """More of `key` is asked for than is free, in a quota or (without one) on the nodes.

    An empty `key` means that there is enough in sum, but not on single nodes.
    """

    key: str
    asked: float = 0.0
    free: float = 0.0
    total: float = 0.0
    quota: str = ""

    def __str__(self) -> str:
        if not self.key:
            return _("there is enough in sum, but not on single nodes")
        told = {"free": show(self.key, self.free), "total": show(self.key, self.total)}
        if not self.quota:
            return _("{free} of {total} is free on the nodes").format(**told)
        return _("quota {quota} has {free} of {total} left ({key})").format(
            **told, quota=self.quota, key=self.key
        )


def problems(wanted: Wanted, there: Place) -> list[Problem]:
    """Everything that stands against these tasks there, with the number that fits."""
    total = sum(count for count, _demand in wanted.values())
    found = [too_many_tasks(total, there.max_tasks)] if total > there.max_tasks else []
    single = [p for t, (_count, demand) in wanted.items() for p in _each(t, demand, there)]
    if single:  # what is too large for one task is no question of how many
        return found + single
    return found + _together(wanted, there)


def shortages(wanted: Wanted, there: Place) -> list[Shortage]:
    """What there is too little of for these tasks together."""
    found = []
    for quota in there.quotas:
        for key in quota.hard:
            asked = sum(count * demand.counted_as(key) for count, demand in wanted.values())
            if asked > quota.free(key) + _SLACK * max(1.0, asked):
                found.append(Shortage(key, asked, quota.free(key), quota.hard[key], quota.name))
    if there.nodes is None or place(_groups(wanted), _free(there)) is not None:
        return found
    asked_of = plus(*(times(_one(d), n) for n, d in wanted.values()))
    lacking = []
    for key, asked in asked_of.items():
        free = sum(n.count * n.free.get(key, 0.0) for n in there.nodes)
        if asked > free:
            total = sum(n.count * n.total.get(key, 0.0) for n in there.nodes)
            lacking.append(Shortage(key, asked, free, total))
    return found + (lacking or [Shortage("")])


def fits(wanted: Wanted, there: Place, task_type: TaskType) -> int:
    """The most tasks of this type that fit beside all the others; 0 when none does."""
    low, high = 0, wanted[task_type][0]
    while low < high:
        middle = (low + high + 1) // 2
        changed = {**wanted, task_type: (middle, wanted[task_type][1])}
        total = sum(count for count, _demand in changed.values())
        if total <= there.max_tasks and not shortages(changed, there):
            low = middle
        else:
            high = middle - 1
    return low


_SLACK = 1e-9
"""Sums of decimal fractions of a core are not exact."""


def _together(wanted: Wanted, there: Place) -> list[Problem]:
    """One problem for each type that has to give way, with every reason."""
    reasons: dict[TaskType, list[Shortage]] = {}
    for shortage in shortages(wanted, there):
        reasons.setdefault(_gives_way(wanted, shortage), []).append(shortage)
    found = []
    for task_type, short in reasons.items():
        count, demand = wanted[task_type]
        free = "; ".join(map(str, short)) + held_by(there.held)
        number = fits(wanted, there, task_type)
        if number and task_type in MAY_GIVE_WAY:
            each = show_all(_one(demand))
            found.append(too_many(task_type, number, count, each, _("less for each"), free))
        else:
            allowed = _("it does not fit in all, and {free}: use fewer tasks, or less for each")
            where = f"replicas.{task_type.value}.count"
            found.append(Problem(where, count, allowed.format(free=free)))
    return found


MAY_GIVE_WAY = (TaskType.WORKER, TaskType.PS)
"""Types of which there may be fewer; of the others there is one."""


def _gives_way(wanted: Wanted, shortage: Shortage) -> TaskType:
    """The type that asks for most of what is short."""

    def most(task_type: TaskType) -> tuple[bool, float, int]:
        count, demand = wanted[task_type]
        asked = count * demand.counted_as(shortage.key) if shortage.key else 0.0
        return (task_type in MAY_GIVE_WAY, asked, count)

    return max(wanted, key=most)


def _each(task_type: TaskType, demand: Demand, there: Place) -> list[Problem]:
    """What is wrong with a single task of this type."""
    found = _against_bounds(task_type, demand, there.bounds)
    for quota in there.quotas:
        for key in quota.hard:
            if not demand.says(key):
                allowed = _("quota {quota} makes every task say {key}: set it").format(
                    quota=quota.name, key=key
                )
                found.append(Problem(_field(task_type, key), None, allowed))
    nodes = there.nodes
    if nodes is not None and not nodes:
        return [*found, Problem("nodes", 0, _("no node takes tasks: ask an administrator"))]
    if nodes and not any(room_for(_one(demand), node.total) for node in nodes):
        one = _one(demand)
        scarce = [k for k, v in one.items() if v > max(n.total.get(k, 0.0) for n in nodes)]
        for key in scarce or list(one)[:1]:
            if "/" in key and not any(n.total.get(key) for n in nodes):
                allowed = _("no node has {resource}: ask for none").format(resource=key)
            else:
                allowed = _("no node has so much; {largest}: ask for less").format(
                    largest=emptiest([n.total for n in nodes], one)
                )
            found.append(Problem(_field(task_type, key), show(key, one[key]), allowed))
    return found


def _against_bounds(task_type: TaskType, demand: Demand, bounds: Bounds) -> list[Problem]:
    found = []

    def refuse(key: str, value: float, allowed: str) -> None:
        where = _(" (LimitRange {name})").format(name=bounds.name)
        found.append(Problem(_field(task_type, key), show(key, value), allowed + where))

    for key, most in bounds.most.items():
        value = demand.limits.get(key, demand.requests.get(key, 0.0))
        if value > most:
            refuse(key, value, _("a task may use at most {most}").format(most=show(key, most)))
        elif key not in demand.limits:
            refuse(
                key,
                0.0,
                _("a task must say its limit, at most {most}").format(most=show(key, most)),
            )
    for key, least in bounds.least.items():
        value = demand.requests.get(key, 0.0)
        if value < least:
            refuse(
                key, value, _("a task must ask for at least {least}").format(least=show(key, least))
            )
    for key, ratio in bounds.ratio.items():
        asked, limit = demand.requests.get(key, 0.0), demand.limits.get(key, 0.0)
        if limit > asked * ratio:
            refuse(
                key,
                limit,
                _("a limit may be at most {ratio:g} times the request").format(ratio=ratio),
            )
    return found


def _field(task_type: TaskType, key: str) -> str:
    name = key.partition(".")[2] if key.startswith(("requests.", "limits.")) else key
    return f"replicas.{task_type.value}.resources.{'gpu' if '/' in name else name}"


def _one(demand: Demand) -> Amounts:
    """What one task takes of a node: also a place for a pod."""
    return {**demand.requests, PODS: 1.0}


def _groups(wanted: Wanted) -> list[Group]:
    return [Group(t, count, _one(demand)) for t, (count, demand) in wanted.items()]


def _free(there: Place) -> list[Amounts]:
    return [node.free for node in there.nodes or () for _i in range(node.count)]
