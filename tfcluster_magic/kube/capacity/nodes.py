"""What nodes have for task pods: allocatable less what bound pods ask for. Pure.

Promises to count a node that is only away for a while (not ready, cordoned) as one that there is
and has nothing free, and not at all one that task pods may never be placed on: its taints are not
tolerated, its labels are not those of the policy.

Ref: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...spec import Model
from ..api.amounts import PODS, Amounts, amounts, asked_by, minus, plus
from ..objects.policy import Policy
from .fit import Node

Object = Mapping[str, Any]

_STATE = "node.kubernetes.io/"
"""Taints by which Kubernetes tells a node's state; others tell whom it is for."""
_ENDED = ("Succeeded", "Failed")
_STAYS = ("DaemonSet", "Node")
"""Owners of pods that belong to their node: what they ask for is never free."""


class Bound(Model, frozen=True):
    """A pod on a node: what it asks for, itself as one pod included."""

    node: str
    asked: Amounts
    stays: bool = False


def bound(pod: Object) -> Bound | None:
    """What a pod takes of its node; None for one that has none, or has ended."""
    spec = pod["spec"]
    node = spec.get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in _ENDED:
        return None
    owners = {each.get("kind") for each in pod["metadata"].get("ownerReferences") or ()}
    asked = {**asked_by(spec), PODS: 1.0}
    return Bound(node=node, asked=asked, stays=bool(owners & {*_STAYS}))


def nodes(found: Iterable[Object], pods: Iterable[Bound], policy: Policy) -> tuple[Node, ...]:
    """The nodes that task pods may be placed on, with what is free there now."""
    taken: dict[str, list[Bound]] = {}
    for pod in pods:
        taken.setdefault(pod.node, []).append(pod)
    return tuple(
        _node(each, taken.get(each["metadata"]["name"], []))
        for each in found
        if _for_tasks(each, policy)
    )


def _node(found: Object, pods: list[Bound]) -> Node:
    allocatable = amounts(found["status"].get("allocatable"))
    total = minus(allocatable, plus(*(pod.asked for pod in pods if pod.stays)))
    if not _available(found):
        return Node(total=total, free={})
    return Node(total=total, free=minus(allocatable, plus(*(pod.asked for pod in pods))))


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
