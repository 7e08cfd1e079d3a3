"""The tasks that fit in a namespace and on nodes, computed from objects as Kubernetes writes
them.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_magic.kube.api.resource_amounts import parse_quantity, pod_resources
from tfcluster_magic.launch_checks.capacity_check import (
    DemandByType,
    EqualTasks,
    NamespaceCapacity,
    NodeCapacity,
    fit_problems,
    place_tasks,
    shortages,
)
from tfcluster_magic.launch_checks.quota_objects import (
    ContainerBounds,
    NamespaceQuota,
    TaskDemand,
    container_bounds,
    namespace_quotas,
)
from tfcluster_magic.spec import TaskType

GIB = 2.0**30
WORKER, PS = TaskType.WORKER, TaskType.PS


def demand(cpu: float = 1, gib: float = 1, **more: float) -> TaskDemand:
    """Return the resources of a task; the memory limit equals the request, as in TFCluster's
    pods.
    """
    requests = {"cpu": cpu, "memory": gib * GIB, **more}
    return TaskDemand(requests=requests, limits={"memory": gib * GIB, **more})


def node(cpu: float, gib: float = 64, used: float = 0, **more: float) -> NodeCapacity:
    """Return a node with this number of cores, of which `used` are requested."""
    total = {"cpu": cpu, "memory": gib * GIB, "pods": 110.0, **more}
    return NodeCapacity(total=total, free={**total, "cpu": cpu - used})


def told(wanted: DemandByType, there: NamespaceCapacity) -> list[str]:
    """Return the problems as a user reads them."""
    return [str(problem) for problem in fit_problems(wanted, there)]


@pytest.mark.parametrize(
    ("said", "number"),
    [("250m", 0.25), ("2", 2), (4, 4), ("1Gi", GIB), ("1k", 1000), ("1e3", 1000), ("5E", 5e18)],
)
def test_quantities(said: object, number: float) -> None:
    """A quantity is read as Kubernetes reads it."""
    assert parse_quantity(said) == number


@pytest.mark.parametrize("said", ["", "1ki", "1 Gi", "many", "1.2.3"])
def test_what_is_no_quantity(said: str) -> None:
    """A quantity that Kubernetes cannot read is an error."""
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(said)


def test_what_a_pod_asks_for() -> None:
    """A pod requests its containers and sidecars together, or its largest init container, whichever
    is more.
    """

    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("4")],
        "containers": [container("2"), container("500m")],
        "overhead": {"cpu": "100m"},
    }
    assert pod_resources(spec) == {"cpu": pytest.approx(5.1)}
    assert pod_resources({"containers": [container("2")]}) == {"cpu": 2}


def test_tasks_are_placed_on_nodes_and_not_only_summed() -> None:
    """Four workers of 3 CPU do not fit on two nodes of 4 CPU, but two workers do."""
    there = NamespaceCapacity(nodes=(node(4), node(4)))
    (text,) = told({WORKER: (4, demand(3))}, there)
    fitting = "2 workers of 3 CPU, 1Gi fit, but 4 were requested"
    assert f"{fitting}: use --workers 2, or less for each" in text
    assert told({WORKER: (2, demand(4))}, there) == []
    (text,) = told({WORKER: (2, demand(3)), PS: (1, demand(2))}, there)
    assert "there is enough in total, but not on any single node" in text


def test_a_task_larger_than_every_node() -> None:
    """A task larger than every node is refused with the size of the largest node."""
    (text,) = told({WORKER: (2, demand(8))}, NamespaceCapacity(nodes=(node(4), node(6))))
    assert "replicas.worker.resources.cpu: got '8 CPU'" in text
    assert "the largest has 6 CPU, 64Gi" in text
    gpu = demand(1, 1, **{"nvidia.com/gpu": 1.0})
    (text,) = told({WORKER: (1, gpu)}, NamespaceCapacity(nodes=(node(4),)))
    assert "no node has nvidia.com/gpu" in text
    assert "no node takes tasks" in told({WORKER: (1, demand())}, NamespaceCapacity(nodes=()))[0]


def test_nodes_with_devices_are_left_to_those_who_need_them() -> None:
    """Tasks without a GPU use other nodes if possible, so that tasks with a GPU fit."""
    gpus = {"nvidia.com/gpu": 1.0}
    there = NamespaceCapacity(nodes=(node(4, **gpus), node(4)))
    wanted = {WORKER: (1, demand(4, 1, **gpus)), PS: (4, demand(1))}
    assert fit_problems(wanted, there) == []


def test_quota() -> None:
    """A request above a quota is refused with the number that fits, the remaining amount, and the
    pods that use the rest.
    """
    hard = {"requests.memory": 8 * GIB, "pods": 20.0}
    there = NamespaceCapacity(
        quotas=(NamespaceQuota(name="tasks", hard=hard, used={"requests.memory": 3 * GIB}),),
        held={"digits-1": {"cpu": 1.0, "memory": 3 * GIB}},
    )
    (text,) = told({WORKER: (6, demand(1, 2)), PS: (1, demand(1, 1))}, there)
    assert "2 workers of 1 CPU, 2Gi fit, but 6 were requested: use --workers 2" in text
    assert "quota tasks has 5Gi of 8Gi left (requests.memory)" in text
    assert "used by digits-1 (1 CPU, 3Gi)" in text
    assert "5 workers" not in told({WORKER: (6, demand(1, 1))}, there.empty())


def test_every_problem_is_told_at_once() -> None:
    """Too many tasks, a quota and a LimitRange are reported together, each with what is allowed."""
    there = NamespaceCapacity(
        quotas=(NamespaceQuota(name="q", hard={"limits.cpu": 4.0}),),
        bounds=ContainerBounds(name="sizes", most={"memory": 4 * GIB}, least={"memory": GIB / 2}),
        max_tasks=5,
    )
    found = told({WORKER: (6, demand(1, 8)), PS: (1, demand(1, 0.25))}, there)
    assert len(found) == 5
    assert "at most 5 tasks run here" in found[0]
    assert "replicas.worker.resources.memory: got '8Gi'; a task may use at most 4Gi" in found[1]
    assert "(LimitRange sizes)" in found[1]
    assert "quota q requires limits.cpu for every task" in found[2]
    assert (
        "replicas.ps.resources.memory: got '256Mi'; a task must request at least 512Mi" in found[3]
    )


def test_scopes_of_quotas() -> None:
    """Only quotas with scopes that match a task's pod are counted."""

    def quota(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"hard": {"pods": "1"}, **spec}}

    def by_class(operator: str, *values: str) -> dict[str, Any]:
        scope = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
        return {"scopeSelector": {"matchExpressions": [scope]}}

    found = [
        quota("all"),
        quota("ending", scopes=["Terminating"]),
        quota("lasting", scopes=["NotTerminating", "NotBestEffort"]),
        quota("idle", scopes=["BestEffort"]),
        quota("tasks", **by_class("In", "tfcluster-task")),
        quota("others", **by_class("NotIn", "tfcluster-task")),
        quota("classless", **by_class("DoesNotExist")),
    ]
    assert [q.name for q in namespace_quotas(found, "tfcluster-task")] == [
        "all",
        "lasting",
        "tasks",
    ]
    assert [q.name for q in namespace_quotas(found)] == ["all", "lasting", "others", "classless"]


def test_limit_ranges() -> None:
    """A LimitRange has defaults for containers; of several LimitRanges, the strictest counts."""
    first = {"type": "Container", "default": {"memory": "2Gi"}, "defaultRequest": {"cpu": "250m"}}
    second = {"type": "Pod", "max": {"memory": "4Gi"}}
    third = {"type": "Container", "max": {"memory": "3Gi"}, "min": {"cpu": "100m"}}
    claims = {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}}
    found = container_bounds(
        [
            {"metadata": {"name": "a"}, "spec": {"limits": [first, second]}},
            {"metadata": {"name": "b"}, "spec": {"limits": [third, claims]}},
        ]
    )
    assert (found.name, found.most, found.claim_most) == ("a, b", {"memory": 3 * GIB}, 10 * GIB)
    given = found.given(TaskDemand(requests={"memory": GIB}))
    assert given.requests == {"cpu": 0.25, "memory": GIB}
    assert given.limits == {"memory": 2 * GIB}


sizes = st.fixed_dictionaries(
    {"cpu": st.sampled_from([0.1, 0.5, 1, 1.5, 3]), "memory": st.integers(1, 6).map(float)}
)
frees = st.fixed_dictionaries(
    {"cpu": st.integers(0, 16).map(float), "memory": st.integers(0, 16).map(float)}
)
nodes = st.lists(frees.map(lambda f: {**f, "pods": 8.0}), max_size=6)
wishes = st.dictionaries(
    st.sampled_from([WORKER, PS, TaskType.CHIEF]),
    st.tuples(st.integers(1, 12), sizes.map(lambda each: TaskDemand(requests=each))),
    min_size=1,
)


@given(wishes, nodes)
def test_what_is_placed_fits(wanted: DemandByType, free: list[dict[str, float]]) -> None:
    """Every task has a node, and no node gets more than its capacity."""
    groups = [EqualTasks(t, n, {**d.requests, "pods": 1.0}) for t, (n, d) in wanted.items()]
    found = place_tasks(groups, free)
    if found is None:
        return
    for group in groups:
        assert sum(found[group.task_type].values()) == group.count
    for position, node_free in enumerate(free):
        for key, most in node_free.items():
            given_away = sum(found[g.task_type].get(position, 0) * g.each[key] for g in groups)
            assert given_away <= most + 1e-6


@given(st.integers(1, 60), sizes, nodes)
def test_one_type_alone_is_placed_wherever_it_can_be(
    count: int, each: dict[str, float], free: list[dict[str, float]]
) -> None:
    """Tasks of one type are placed if and only if the numbers that fit on each node add up to
    enough.
    """
    most = sum(
        min(
            int(n["cpu"] * 1000) // round(each["cpu"] * 1000), int(n["memory"] // each["memory"]), 8
        )
        for n in free
    )
    found = place_tasks([EqualTasks(WORKER, count, {**each, "pods": 1.0})], free)
    assert (found is not None) == (count <= most)


@given(wishes, nodes, st.integers(0, 40), st.integers(1, 30))
def test_the_number_that_is_named_fits(
    wanted: DemandByType, free: list[dict[str, float]], quota: int, most: int
) -> None:
    """A request for the number of tasks that a problem names causes no problem."""
    there = NamespaceCapacity(
        nodes=tuple(NodeCapacity(total=n, free=n) for n in free),
        quotas=(NamespaceQuota(name="q", hard={"requests.cpu": float(quota)}),),
        max_tasks=most,
    )
    for problem in fit_problems(wanted, there):
        if problem.fits is None:
            continue
        task_type = TaskType(str(problem.field).split(".")[1])
        smaller = {**wanted, task_type: (problem.fits, wanted[task_type][1])}
        assert fit_problems(smaller, there) == []
        assert 0 < problem.fits < wanted[task_type][0]


def test_it_is_quick() -> None:
    """600 tasks that do not fit on 500 nodes are refused quickly."""
    there = NamespaceCapacity(nodes=tuple(node(4, used=i % 4) for i in range(500)))
    wanted = {WORKER: (500, demand(3)), PS: (100, demand(2)), TaskType.CHIEF: (1, demand(3))}
    # only the CPU time of this process, about 0.1 s, so that other processes do not count
    before = time.process_time()
    assert shortages(wanted, there)
    (problem,) = fit_problems(wanted, there)
    assert problem.fits
    assert time.process_time() - before < 20.0
