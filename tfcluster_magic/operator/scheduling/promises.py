"""What admitted runs still have to get, and what that leaves to others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ...kube.api.amounts import PODS, Amounts, plus, times
from ...kube.capacity.fit import Node
from ...kube.capacity.namespace_limits import Demand, Quota
from ...kube.capacity.packing import Group, without
from ...spec import TaskType
from ..caches import Key


@dataclass(frozen=True)
class Promise:
    """What a run that was admitted still has to get: tasks without a pod, pods without a node."""

    key: Key
    demands: Mapping[TaskType, Demand]
    holding: Mapping[TaskType, int]
    unmade: Mapping[TaskType, int]
    unbound: Mapping[TaskType, int]

    def counted_as(self, key: str) -> float:
        """What a quota does not count yet, and will."""
        return sum(n * self.demands[t].counted_as(key) for t, n in self.unmade.items())

    @property
    def held(self) -> Amounts:
        """What its tasks that are not over ask for."""
        return plus(*(times(self.demands[t].requests, n) for t, n in self.holding.items()))


def without_promised(
    found: tuple[Node, ...] | None, reservations: Mapping[str, Sequence[Promise]]
) -> tuple[Node, ...] | None:
    """The nodes without what runs that were admitted have not taken of them yet."""
    groups = [
        Group(t, count, {**reservation.demands[t].requests, PODS: 1.0})
        for every in reservations.values()
        for reservation in every
        for t, count in reservation.unbound.items()
        if count
    ]
    if not groups or found is None:
        return found
    free = without(groups, [node.free for node in found])
    return tuple(replace(node, free=left) for node, left in zip(found, free, strict=True))


def with_promises(quota: Quota, reservations: Sequence[Promise]) -> Quota:
    """The quota with what runs that were admitted have not taken of it yet."""
    reserved = {key: sum(p.counted_as(key) for p in reservations) for key in quota.hard}
    return replace(quota, used=plus(quota.used, reserved))
