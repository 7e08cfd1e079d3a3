"""The check whether a run fits in its namespace and on the nodes, and how many of its tasks fit.
Pure.

`fit_problems` returns every problem at once, each with the number of tasks that fits. That number
fits every quota, and each of these tasks fits on a single node. A run that does not fit in
`NamespaceCapacity.empty` will never fit. Nodes are checked only if they are known (`nodes` is not
None).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

from msgspec.structs import replace

from ..errors import Problem
from ..kube.api.resource_amounts import (
    CPU,
    MEMORY,
    PODS,
    Amounts,
    format_amount,
    format_amounts,
    holders,
    minus,
    parse_amounts,
    plus,
    pod_resources,
    times,
)
from ..kube.objects.policy import Policy
from ..quota.preflight import too_many_replicas, too_many_tasks
from ..spec import Message, Model, TaskType
from .quota_objects import ContainerBounds, NamespaceQuota, TaskDemand

MOST_ORDERS = 6
_PARTS = 1000
"""Amounts are counted in thousandths, because sums of whole numbers are exact; a thousandth of a
core is the smallest amount of CPU in Kubernetes.
"""

Whole = dict[str, int]
Placement = dict[TaskType, dict[int, int]]
"""By task type: the number of tasks on each node, by the node's index."""


@dataclass(frozen=True)
class EqualTasks:
    """A number (`count`) of tasks of one type. `each` is the request of one task: cores, bytes,
    devices and one pod.
    """

    task_type: TaskType
    count: int
    each: Amounts


def place_tasks(
    groups: Sequence[EqualTasks], free: Sequence[Mapping[str, float]]
) -> Placement | None:
    """Return a placement of every task on nodes with the free resources `free`; None if no
    placement is found.
    """
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
    for order in islice(permutations(wanted), MOST_ORDERS):
        for positions in (small_first, small_first[::-1]):
            if (found := _fill(order, nodes, positions)) is not None:
                return found
    return None


def free_after(
    groups: Sequence[EqualTasks], free: Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """Return the free resources of each node after placing as many of these tasks as possible."""
    left_on = [dict(node) for node in free]
    for group in groups:
        left, each = group.count, _whole(group.each)
        for node in left_on:
            here = min(left, _tasks_on_node(each, _whole(node)))
            for name, value in group.each.items():
                if here and value:
                    node[name] -= value * here
            left -= here
            if not left:
                break
    return left_on


def tasks_on_node(each: Mapping[str, float], free: Mapping[str, float]) -> int:
    """Return the number of tasks with the request `each` that fit on a node with the free resources
    `free`; a very large number if `each` requests nothing.
    """
    return _tasks_on_node(_whole(each), _whole(free))


def _fill(
    order: Sequence[tuple[EqualTasks, Whole]], nodes: Sequence[Whole], positions: Sequence[int]
) -> Placement | None:
    left_on = [dict(node) for node in nodes]
    found: Placement = {}
    for group, each in order:
        left, where = group.count, found.setdefault(group.task_type, {})
        for position in positions:
            node = left_on[position]
            if here := min(left, _tasks_on_node(each, node)):
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


def _tasks_on_node(each: Whole, free: Whole) -> int:
    most = _MANY
    for name, value in each.items():
        if value:
            most = min(most, max(0, free.get(name, 0)) // value)
    return most


def _whole(said: Mapping[str, float]) -> Whole:
    return {name: round(value * _PARTS) for name, value in said.items()}


def _size(node: Whole) -> tuple[int, int, int]:
    """Return a sort key that puts nodes without devices first and small nodes before large nodes,
    so that rare resources stay free.
    """
    return (
        sum(1 for n, v in node.items() if v and "/" in n),
        node.get(CPU, 0),
        node.get(MEMORY, 0),
    )


# The fit of a run in quotas, LimitRanges and on nodes.

DemandByType = Mapping[TaskType, tuple[int, TaskDemand]]
"""By task type: the number of tasks, and the requests of one task."""


class NodeCapacity(Model, frozen=True):
    """`count` nodes that accept task pods: each has `total`, of which `free` is not requested
    yet.
    """

    total: Amounts
    free: Amounts
    count: int = 1


class NamespaceCapacity(Model, frozen=True):
    """The resources that a run may get in a namespace; `held` has the resources that each run of
    the namespace uses, for messages.
    """

    nodes: tuple[NodeCapacity, ...] | None = None
    quotas: tuple[NamespaceQuota, ...] = ()
    bounds: ContainerBounds = ContainerBounds()
    max_tasks: int = 1000
    held: dict[str, Amounts] = {}

    def empty(self) -> NamespaceCapacity:
        """Return the capacity as if nothing ran; a run that does not fit into it never fits."""
        nodes = self.nodes
        if nodes is not None:
            nodes = tuple(NodeCapacity(total=n.total, free=n.total, count=n.count) for n in nodes)
        free = tuple(NamespaceQuota(name=q.name, hard=q.hard) for q in self.quotas)
        return replace(self, nodes=nodes, quotas=free, held={})


@dataclass(frozen=True)
class Shortage:
    """A shortage: more of the resource `key` is requested than is free in the quota `quota`, or on
    the nodes if `quota` is empty. An empty `key` means that the nodes have enough in total, but the
    tasks cannot be placed on single nodes.
    """

    key: str
    asked: float = 0.0
    free: float = 0.0
    total: float = 0.0
    quota: str = ""

    @property
    def message(self) -> Message:
        """A part of a message that says how much is free."""
        if not self.key:
            return Message("NotOnSingleNodes")
        told = {
            "free": format_amount(self.key, self.free),
            "total": format_amount(self.key, self.total),
        }
        if not self.quota:
            return Message("FreeOnNodes", told)
        return Message("LeftInQuota", told | {"quota": self.quota, "key": self.key})


def fit_problems(wanted: DemandByType, there: NamespaceCapacity) -> list[Problem]:
    """Return every problem that keeps the tasks `wanted` from running in `there`, each with the
    number of tasks that fits.
    """
    counts = {task_type: count for task_type, (count, _demand) in wanted.items()}
    too_many = sum(counts.values()) > there.max_tasks
    found = [too_many_tasks(counts, there.max_tasks)] if too_many else []
    single = [
        p for t, (_count, demand) in wanted.items() for p in _problems_of_one(t, demand, there)
    ]
    if single:  # fewer tasks do not help if a single task does not fit
        return found + single
    return found + _problems_together(wanted, there)


def shortages(wanted: DemandByType, there: NamespaceCapacity) -> list[Shortage]:
    """Return the shortages for all these tasks together."""
    found = []
    for quota in there.quotas:
        for key in quota.hard:
            asked = sum(count * demand.counted_as(key) for count, demand in wanted.values())
            if asked > quota.free(key) + _SLACK * max(1.0, asked):
                found.append(Shortage(key, asked, quota.free(key), quota.hard[key], quota.name))
    if there.nodes is None or place_tasks(_groups(wanted), _free_of_nodes(there)) is not None:
        return found
    asked_of = plus(*(times(_amounts_of_one(d), n) for n, d in wanted.values()))
    lacking = []
    for key, asked in asked_of.items():
        free = sum(n.count * n.free.get(key, 0.0) for n in there.nodes)
        if asked > free:
            total = sum(n.count * n.total.get(key, 0.0) for n in there.nodes)
            lacking.append(Shortage(key, asked, free, total))
    return found + (lacking or [Shortage("")])


def most_that_fit(wanted: DemandByType, there: NamespaceCapacity, task_type: TaskType) -> int:
    """Return the maximum number of tasks of this type that fit together with all tasks of the other
    types; 0 if not even one fits.
    """
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
"""Tolerance of comparisons, because sums of decimal fractions of a core are not exact."""


def _problems_together(wanted: DemandByType, there: NamespaceCapacity) -> list[Problem]:
    """Return a problem, with every reason, for each task type that must have fewer tasks."""
    reasons: dict[TaskType, list[Shortage]] = {}
    for shortage in shortages(wanted, there):
        reasons.setdefault(_gives_way(wanted, shortage), []).append(shortage)
    found = []
    for task_type, short in reasons.items():
        count, demand = wanted[task_type]
        taken = holders(there.held)
        by = Message("HeldBy", {"holders": list(taken)}) if taken else ""
        free = Message("FreeBut", {"parts": [each.message for each in short], "held": by})
        number = most_that_fit(wanted, there, task_type)
        if number and task_type in MAY_GIVE_WAY:
            each = format_amounts(_amounts_of_one(demand))
            less = Message("LessForEach")
            found.append(too_many_replicas(task_type, number, count, each, less, free))
        else:
            where = f"replicas.{task_type.value}.count"
            found.append(Problem(where, count, Message("NoFit", {"free": free})))
    return found


MAY_GIVE_WAY = (TaskType.WORKER, TaskType.PS)
"""Task types whose number of tasks may be reduced; the other types have at most one task."""


def _gives_way(wanted: DemandByType, shortage: Shortage) -> TaskType:
    """Return the task type that requests most of the resource that is short."""

    def most(task_type: TaskType) -> tuple[bool, float, int]:
        count, demand = wanted[task_type]
        asked = count * demand.counted_as(shortage.key) if shortage.key else 0.0
        return (task_type in MAY_GIVE_WAY, asked, count)

    return max(wanted, key=most)


def _problems_of_one(
    task_type: TaskType, demand: TaskDemand, there: NamespaceCapacity
) -> list[Problem]:
    """Return the reasons why not even a single task of this type fits, as problems."""
    found = _against_bounds(task_type, demand, there.bounds)
    for quota in there.quotas:
        for key in quota.hard:
            if not demand.says(key):
                rule = Message("QuotaMakesSay", {"quota": quota.name, "key": key})
                found.append(Problem(_field(task_type, key), None, rule))
    nodes = there.nodes
    if nodes is not None and not nodes:
        return [*found, Problem("nodes", 0, Message("NoNodeTakesTasks"))]
    if nodes and not any(tasks_on_node(_amounts_of_one(demand), node.total) for node in nodes):
        one = _amounts_of_one(demand)
        scarce = [k for k, v in one.items() if v > max(n.total.get(k, 0.0) for n in nodes)]
        for key in scarce or list(one)[:1]:
            if "/" in key and not any(n.total.get(key) for n in nodes):
                rule = Message("NoNodeHas", {"resource": key})
            else:
                largest = {k: max(n.total.get(k, 0.0) for n in nodes) for k in one}
                rule = Message("NoNodeHasSoMuch", {"amount": format_amounts(largest)})
            found.append(Problem(_field(task_type, key), format_amount(key, one[key]), rule))
    return found


def _against_bounds(
    task_type: TaskType, demand: TaskDemand, bounds: ContainerBounds
) -> list[Problem]:
    found = []

    def refuse(key: str, value: float, rule: Message) -> None:
        told = Message("InLimitRange", {"rule": rule, "name": bounds.name})
        found.append(Problem(_field(task_type, key), format_amount(key, value), told))

    for key, most in bounds.most.items():
        value = demand.limits.get(key, demand.requests.get(key, 0.0))
        if value > most:
            refuse(key, value, Message("TaskAtMost", {"most": format_amount(key, most)}))
        elif key not in demand.limits:
            refuse(key, 0.0, Message("TaskSaysLimit", {"most": format_amount(key, most)}))
    for key, least in bounds.least.items():
        value = demand.requests.get(key, 0.0)
        if value < least:
            refuse(key, value, Message("TaskAtLeast", {"least": format_amount(key, least)}))
    for key, ratio in bounds.ratio.items():
        asked, limit = demand.requests.get(key, 0.0), demand.limits.get(key, 0.0)
        if limit > asked * ratio:
            refuse(key, limit, Message("LimitAtMost", {"ratio": ratio}))
    return found


def _field(task_type: TaskType, key: str) -> str:
    name = key.partition(".")[2] if key.startswith(("requests.", "limits.")) else key
    return f"replicas.{task_type.value}.resources.{'gpu' if '/' in name else name}"


def _amounts_of_one(demand: TaskDemand) -> Amounts:
    """Return the resources of a node that one task requests. They include one pod, because a node
    has a maximum number of pods.
    """
    return {**demand.requests, PODS: 1.0}


def _groups(wanted: DemandByType) -> list[EqualTasks]:
    return [EqualTasks(t, count, _amounts_of_one(demand)) for t, (count, demand) in wanted.items()]


def _free_of_nodes(there: NamespaceCapacity) -> list[Amounts]:
    return [node.free for node in there.nodes or () for _i in range(node.count)]


# The capacity of nodes for task pods: the allocatable amount less the requests of bound pods. A
# node that is unavailable for a while (not ready, cordoned) counts as having nothing free. Nodes on
# which task pods may never be placed are left out: nodes with taints that task pods do not
# tolerate, and nodes without the labels in the policy's node selector.
# Ref: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/

Object = Mapping[str, Any]

_STATE = "node.kubernetes.io/"
"""Prefix of taints that describe a node's state; other taints restrict which pods may use the node.
"""
_ENDED = ("Succeeded", "Failed")
_STAYS = ("DaemonSet", "Node")
"""Kinds of the owners of pods that run on a node permanently; the requests of such pods never
become free.
"""


class BoundPod(Model, frozen=True):
    """The resources that a pod on a node requests (`asked`). They include one pod, because a node
    has a maximum number of pods.
    """

    node: str
    asked: Amounts
    stays: bool = False


def room_taken_by_pod(pod: Object) -> BoundPod | None:
    """Return the resources that a pod requests on its node; None if the pod has no node or has
    ended.
    """
    spec = pod["spec"]
    node = spec.get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in _ENDED:
        return None
    owners = {each.get("kind") for each in pod["metadata"].get("ownerReferences") or ()}
    asked = {**pod_resources(spec), PODS: 1.0}
    return BoundPod(node=node, asked=asked, stays=bool(owners & {*_STAYS}))


class TaskNode(Model, frozen=True):
    """A node on which task pods may be placed; `is_available` is False while it is down."""

    name: str
    allocatable: Amounts
    is_available: bool = True


def read_task_node(found: Object, policy: Policy) -> TaskNode | None:
    """Read a Node; return None if task pods may never be placed on it."""
    if not _for_tasks(found, policy):
        return None
    return TaskNode(
        name=found["metadata"]["name"],
        allocatable=parse_amounts(found["status"].get("allocatable")),
        is_available=_available(found),
    )


def node_capacities(
    nodes: Iterable[TaskNode], pods: Iterable[BoundPod]
) -> tuple[NodeCapacity, ...]:
    """Return the total and the free capacity of each node for task pods."""
    taken: dict[str, list[BoundPod]] = {}
    for pod in pods:
        taken.setdefault(pod.node, []).append(pod)
    return tuple(_node_capacity(each, taken.get(each.name, [])) for each in nodes)


def node_kinds(nodes: Iterable[NodeCapacity]) -> tuple[NodeCapacity, ...]:
    """Return the nodes as if nothing ran on them: all their resources are free. Equal nodes become
    one entry with their number.
    """
    kinds: Counter[tuple[tuple[str, float], ...]] = Counter()
    for node in nodes:
        kinds[tuple(sorted(node.total.items()))] += node.count
    return tuple(
        NodeCapacity(total=dict(total), free=dict(total), count=count)
        for total, count in sorted(kinds.items())
    )


def _node_capacity(node: TaskNode, pods: list[BoundPod]) -> NodeCapacity:
    total = minus(node.allocatable, plus(*(pod.asked for pod in pods if pod.stays)))
    if not node.is_available:
        return NodeCapacity(total=total, free={})
    free = minus(node.allocatable, plus(*(pod.asked for pod in pods)))
    return NodeCapacity(total=total, free=free)


def _available(node: Object) -> bool:
    conditions = node["status"].get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    state = any(
        taint["key"].startswith(_STATE) and taint["effect"] != "PreferNoSchedule"
        for taint in node["spec"].get("taints") or ()
    )
    return ready and not state and not node["spec"].get("unschedulable")


def _for_tasks(node: Object, policy: Policy) -> bool:
    labels = node["metadata"].get("labels") or {}
    taints = node["spec"].get("taints") or ()
    return all(labels.get(key) == value for key, value in policy.node_selector.items()) and all(
        taint["effect"] == "PreferNoSchedule"
        or taint["key"].startswith(_STATE)
        or any(_tolerates(toleration, taint) for toleration in policy.tolerations)
        for taint in taints
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(
        toleration.get("key") == taint["key"]
        and toleration.get("value", "") == taint.get("value", "")
    )
