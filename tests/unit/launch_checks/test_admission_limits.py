"""The published limits by which `kubectl apply` refuses specs that can never fit."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.project import ROOT

from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch_checks.capacity_check import NamespaceCapacity, NodeCapacity
from tfcluster_magic.launch_checks.kubernetes import (
    LaunchFacts,
    admission_limits,
    launch_problems,
)
from tfcluster_magic.launch_checks.quota_objects import ContainerBounds, NamespaceQuota
from tfcluster_magic.spec import Mode, Replicas, ReplicaSet, Resources, Spec, TaskType
from tfcluster_magic.spec.quantities import parse_memory

GPU = "nvidia.com/gpu"
GIB = 2.0**30


def node(cpu: float, gib: float, gpus: float = 0, count: int = 1) -> NodeCapacity:
    """Return `count` empty nodes of the same size."""
    total = {"cpu": cpu, "memory": gib * GIB, GPU: gpus, "pods": 110.0}
    return NodeCapacity(total=total, free=total, count=count)


FACTS = LaunchFacts(
    policy=Policy(default_cpu=0.1, max_tasks=50),
    place=NamespaceCapacity(
        nodes=(node(8, 32, 1), node(16, 16, count=2)),
        quotas=(
            NamespaceQuota("tasks", {"requests.cpu": 20.0, "limits.memory": 24 * GIB, "pods": 30}),
            NamespaceQuota("cpus", {"cpu": 12.0, "count/tfclusters.tfcluster.dev": 40}),
        ),
        bounds=ContainerBounds(name="sizes", most={"memory": 4 * GIB}),
        max_tasks=50,
    ),
)


def test_the_strictest_limit_is_told_with_who_sets_it() -> None:
    """The smallest limit counts among those of quotas, LimitRanges, nodes and the policy, and is
    named with its source.
    """
    assert admission_limits(FACTS) == {
        "default.cpu": "0.1",
        "default.memory": "1073741824",
        "run.tasks": "30",
        "run.tasks.text": "ResourceQuota tasks allows 30 pods",
        "run.cpu": "12",
        "run.cpu.text": "ResourceQuota cpus allows 12 CPU",
        "run.memory": f"{24 * GIB:.0f}",
        "run.memory.text": "ResourceQuota tasks allows 24Gi",
        "run.gpu": "1",
        "run.gpu.text": "the nodes for tasks together have 1 GPU",
        "task.cpu": "16",
        "task.cpu.text": "the largest node has 16 CPU",
        "task.memory": f"{4 * GIB:.0f}",
        "task.memory.text": "LimitRange sizes allows 4Gi",
        "task.gpu": "1",
        "task.gpu.text": "the largest node has 1 GPU",
    }


@pytest.mark.parametrize("nodes", [None, (), FACTS.place.nodes], ids=["unknown", "none", "grow"])
def test_nodes_that_come_and_go_are_no_limit(nodes: tuple[NodeCapacity, ...] | None) -> None:
    """If nodes are unknown, down or added by an autoscaler, and no quota is set, only the policy
    limits a run.
    """
    policy = Policy(nodes_are_fixed=not nodes)
    told = admission_limits(LaunchFacts(policy, NamespaceCapacity(nodes=nodes)))
    assert told.keys() == admission_limits(FACTS).keys()
    assert {key: text for key, text in told.items() if text and not key.startswith("default.")} == {
        "run.tasks": "1000",
        "run.tasks.text": "the operator's policy allows 1000 pods",
    }


def exceeds(spec: Spec, limits: dict[str, str]) -> bool:
    """Return whether admission refuses a spec; this is the rule of the policy `tfcluster-limits` in
    Python.
    """
    asked: dict[str, float] = {}
    for task_type, count in spec.replicas.counts.items():
        said = spec.replicas.of(task_type).resources
        one = {
            "cpu": said.cpu or float(limits["default.cpu"]),
            "memory": parse_memory(said.memory or limits["default.memory"]),
            "gpu": said.gpu,
            "tasks": 1,
        }
        for name, amount in one.items():
            asked[f"run.{name}"] = asked.get(f"run.{name}", 0.0) + count * amount
            asked[f"task.{name}"] = max(asked.get(f"task.{name}", 0.0), amount)
    return any(asked[key] > float(limits.get(key) or "inf") * (1 + 1e-9) for key in asked)


amounts = st.dictionaries(
    st.sampled_from(["requests.cpu", "limits.cpu", "limits.memory", "memory", "pods"]),
    st.sampled_from([2.0, 3.3, 6 * GIB, 11 * GIB]),
)
sizes = st.builds(
    Resources,
    cpu=st.sampled_from([None, 0.1, 0.7, 3.0, 12.0]),
    memory=st.sampled_from([None, "512Mi", "3Gi", "20Gi"]),
    gpu=st.sampled_from([0, 0, 1]),
)
tasks = st.builds(Replicas, count=st.integers(1, 40), resources=sizes)


@given(hard=amounts, most=amounts, defaults=amounts, worker=tasks, ps=tasks, fixed=st.booleans())
def test_admission_refuses_nothing_that_could_run(
    hard: dict[str, float],
    most: dict[str, float],
    defaults: dict[str, float],
    worker: Replicas,
    ps: Replicas,
    fixed: bool,
) -> None:
    """If a run exceeds a published limit, the operator would refuse the run, too."""

    def plain(said: dict[str, float]) -> dict[str, float]:
        return {key.partition(".")[2]: value for key, value in said.items() if "." in key}

    bounds = ContainerBounds(name="sizes", most=plain(most), default_limit=plain(defaults))
    place = NamespaceCapacity(
        nodes=FACTS.place.nodes, quotas=(NamespaceQuota("tasks", hard),), bounds=bounds
    )
    facts = LaunchFacts(Policy(nodes_are_fixed=fixed, default_cpu=0.1), place)
    spec = Spec(mode=Mode.IN_GRAPH, replicas=ReplicaSet(worker=worker, ps=ps))
    if exceeds(spec, admission_limits(facts)):
        assert launch_problems(spec, facts)


def test_the_policy_of_admission_reads_what_is_published() -> None:
    """The rules in k8s/base read exactly the entries of the ConfigMap that the operator publishes,
    for each task type.
    """
    found: list[Any] = list(yaml.safe_load_all((ROOT / "k8s/base/admission.yaml").read_text()))
    (policy,) = [
        each
        for each in found
        if each["kind"] == "ValidatingAdmissionPolicy"
        and each["metadata"]["name"] == "tfcluster-limits"
    ]
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    names = yaml.safe_load(variables["resources"])
    assert names == ["cpu", "memory", "gpu"]
    assert set(yaml.safe_load(variables["types"].partition(".filter")[0])) == {
        each.value for each in TaskType
    }
    read = {f"{scope}.{name}" for scope in ("run", "task") for name in names} | {"run.tasks"}
    assert set(re.findall(r"'((?:run|task)\.\w+)'", variables["asked"])) <= read
    published = {key.removesuffix(".text") for key in admission_limits(FACTS)}
    assert published - {"default.cpu", "default.memory"} == read
