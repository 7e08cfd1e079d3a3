"""The resources that nodes have for tasks, computed from nodes and pods as Kubernetes writes
them.
"""

from __future__ import annotations

from typing import Any

from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch_checks.capacity_check import (
    BoundPod,
    EqualTasks,
    NodeCapacity,
    free_after,
    node_capacities,
    node_kinds,
    read_task_node,
    room_taken_by_pod,
)
from tfcluster_magic.spec import TaskType


def node(name: str = "node-1", ready: str = "True", **spec: Any) -> dict[str, Any]:
    """Return a node of 4 cores and 8 GiB."""
    return {
        "metadata": {"name": name, "labels": {"pool": "tasks"}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def capacities(
    found: list[dict[str, Any]], pods: list[BoundPod], policy: Policy
) -> tuple[NodeCapacity, ...]:
    """Return the free resources of nodes, as the operator computes them."""
    nodes = [read_task_node(each, policy) for each in found]
    return node_capacities([each for each in nodes if each is not None], pods)


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    """Return a taint, as a node has it."""
    return {"key": key, "value": value, "effect": effect}


def pod(cpu: str, phase: str = "Running", owner: str = "Job", name: str = "node-1") -> Any:
    """Return a pod that was bound to a node."""
    return {
        "metadata": {"ownerReferences": [{"kind": owner}]},
        "spec": {"nodeName": name, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }


def test_what_pods_ask_for_is_not_free() -> None:
    """Bound pods use their requests until they end; requests of a DaemonSet's pods are used
    permanently.
    """
    found = [
        pod("1"),
        pod("500m", owner="DaemonSet"),
        pod("2", phase="Succeeded"),
        pod("9", name=""),
    ]
    taken = [each for each in map(room_taken_by_pod, found) if each is not None]
    (only,) = capacities([node()], taken, Policy())
    assert (only.total["cpu"], only.free["cpu"]) == (3.5, 2.5)
    assert (only.total["pods"], only.free["pods"]) == (109, 108)


def test_nodes_that_are_away() -> None:
    """A node that is not ready, or cordoned, counts as full for now."""
    away = taint("node.kubernetes.io/unreachable", "NoExecute")
    for found in (node(ready="Unknown"), node(unschedulable=True), node(taints=[away])):
        (only,) = capacities([found], [], Policy())
        assert (only.total["cpu"], only.free) == (4.0, {})


def test_nodes_that_are_for_others() -> None:
    """A node does not count if its taints are not tolerated or if it lacks the policy's labels."""
    control = node(taints=[taint("node-role.kubernetes.io/control-plane")])
    gpus = node(taints=[taint("gpu", value="yes"), taint("rather-not", "PreferNoSchedule")])
    tolerant = Policy(tolerations=({"key": "gpu", "value": "yes"},))
    careless = Policy(tolerations=({"operator": "Exists"},))
    assert [len(capacities([control, gpus], [], p)) for p in (Policy(), tolerant, careless)] == [
        0,
        1,
        2,
    ]
    for effect, count in (("NoSchedule", 1), ("NoExecute", 0)):
        tolerations = ({"key": "gpu", "operator": "Exists", "effect": effect},)
        assert len(capacities([gpus], [], Policy(tolerations=tolerations))) == count
    for label, count in (("tasks", 1), ("hub", 0)):
        assert len(capacities([node()], [], Policy(node_selector={"pool": label}))) == count


def test_what_is_promised_is_not_free() -> None:
    """Waiting tasks reserve resources where they fit; a task that fits nowhere reserves none."""
    free = [{"cpu": 4.0, "pods": 10.0}, {"cpu": 2.0, "pods": 10.0}]
    groups = [EqualTasks(TaskType.WORKER, 3, {"cpu": 2.0, "pods": 1.0})]
    assert [n["cpu"] for n in free_after(groups, free)] == [0.0, 0.0]
    too_large = [EqualTasks(TaskType.WORKER, 3, {"cpu": 8.0})]
    assert free_after(too_large, free) == free


def test_equal_nodes_are_one_kind() -> None:
    """Nodes that offer the same resources when nothing runs are published as one kind, with their
    number.
    """
    taken = room_taken_by_pod(pod("1"))
    assert taken is not None
    there = capacities([node(), node("node-2"), node("node-3", pool="x")], [taken], Policy())
    small = NodeCapacity(total={"cpu": 1.0}, free={}, count=2)
    kinds = node_kinds([*there, small])
    assert [(kind.total["cpu"], kind.free["cpu"], kind.count) for kind in kinds] == [
        (1.0, 1.0, 2),
        (4.0, 4.0, 3),
    ]
