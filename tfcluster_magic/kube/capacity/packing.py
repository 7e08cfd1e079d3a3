"""Whether tasks fit on nodes, one by one and not only in sum. Pure.

Promises that what it says fits does fit: it holds a place for every task. It is first-fit over a
few orders, not a search of all placements, so that 600 tasks and 500 nodes cost milliseconds; tasks
of one type, alone, are placed in the largest number that is possible. The scheduler may place
otherwise: what it then cannot place waits, and is explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

from ...spec import TaskType
from ..api.amounts import CPU, MEMORY, Amounts

ORDERS = 6
_PARTS = 1000
"""Thousandths, Kubernetes' smallest part of a core; whole numbers add up without an error."""

Whole = dict[str, int]
Placement = dict[TaskType, dict[int, int]]
"""How many tasks of a type on which node, by its position."""


@dataclass(frozen=True)
class Group:
    """`count` tasks of one type, each asking for `each` (cores, bytes, devices, one pod)."""

    task_type: TaskType
    count: int
    each: Amounts


def place(groups: Sequence[Group], free: Sequence[Mapping[str, float]]) -> Placement | None:
    """A node for every task, when there is one on nodes with so much free; else None."""
    wanted = [(g, _whole(g.each)) for g in groups if g.count]
    nodes = [_whole(node) for node in free]
    totals: Whole = {}
    for node in nodes:
        for name, value in node.items():
            totals[name] = totals.get(name, 0) + value
    if any(
        sum(g.count * each.get(name, 0) for g, each in wanted) > totals.get(name, 0)
        for name in {name for _g, each in wanted for name, value in each.items() if value}
    ):
        return None

    def share(each: Whole) -> float:
        return max((value / totals[name] for name, value in each.items() if value), default=0.0)

    wanted.sort(key=lambda pair: share(pair[1]), reverse=True)
    small_first = sorted(range(len(nodes)), key=lambda n: _size(nodes[n]))
    for order in islice(permutations(wanted), ORDERS):
        for positions in (small_first, small_first[::-1]):
            if (found := _fill(order, nodes, positions)) is not None:
                return found
    return None


def without(groups: Sequence[Group], free: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """What stays free when as many of these tasks as can be are placed."""
    left_on = [dict(node) for node in free]
    for group in groups:
        left, each = group.count, _whole(group.each)
        for node in left_on:
            here = min(left, _room_for(each, _whole(node)))
            for name, value in group.each.items():
                if here and value:
                    node[name] -= value * here
            left -= here
            if not left:
                break
    return left_on


def room_for(each: Mapping[str, float], free: Mapping[str, float]) -> int:
    """How many such tasks one node with so much free holds; a task that asks nothing: very many."""
    return _room_for(_whole(each), _whole(free))


def _fill(
    order: Sequence[tuple[Group, Whole]], nodes: Sequence[Whole], positions: Sequence[int]
) -> Placement | None:
    left_on = [dict(node) for node in nodes]
    found: Placement = {}
    for group, each in order:
        left, where = group.count, found.setdefault(group.task_type, {})
        for position in positions:
            node = left_on[position]
            if here := min(left, _room_for(each, node)):
                where[position] = here
                left -= here
                for name, value in each.items():
                    if value:
                        node[name] -= value * here
            if not left:
                break
        if left:
            return None
    return found


_MANY = 10**6


def _room_for(each: Whole, free: Whole) -> int:
    most = _MANY
    for name, value in each.items():
        if value:
            most = min(most, max(0, free.get(name, 0)) // value)
    return most


def _whole(said: Mapping[str, float]) -> Whole:
    return {name: round(value * _PARTS) for name, value in said.items()}


def _size(node: Whole) -> tuple[int, int, int]:
    """Nodes without devices first, then small ones: what is rare stays free for who needs it."""
    return (
        sum(1 for n, v in node.items() if v and "/" in n),
        node.get(CPU, 0),
        node.get(MEMORY, 0),
    )
