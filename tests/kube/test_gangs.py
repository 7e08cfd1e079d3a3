"""Two runs on nodes whose resources suffice for only one of them, with and without Volcano."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubenode.commands import wait_until
from support.kube.gangs import (
    VOLCANO,
    annotate,
    hosts,
    left_clean,
    operate,
    program,
    stop,
    there,
    wish,
)
from support.kube.operator import Tenant
from support.kube.under_test import UnderTest

__all__ = ["left_clean", "program", "there"]  # fixtures used by the tests below


def groups(tenant: Tenant) -> dict[str, str]:
    """Return the PodGroups of the namespace with their phases."""
    found = json.loads(tenant.kubectl("get", "podgroups", "-o", "json"))["items"]
    return {g["metadata"]["name"]: (g.get("status") or {}).get("phase", "") for g in found}


def one_runs_and_one_waits(tenant: Tenant, program: Path, said: str) -> tuple[str, str]:
    """Launch two clusters of which only one fits at a time; return the one that runs and the one
    that waits.
    """
    both = ("one-1", "two-1")
    for name in both:
        tenant.launch(name, wish(program, workers=3, ps=1, cpu=5))
    wait_until(
        lambda: any(tenant.status(name).get("phase") == "Running" for name in both),
        "one of the two runs",
        seconds=120,
    )
    (runs,) = [name for name in both if tenant.status(name)["phase"] == "Running"]
    (waits,) = set(both) - {runs}
    status = tenant.wait(waits, lambda s: said in s.get("message", "").lower(), said, seconds=120)
    print(f"{runs} runs, {waits}: {status['phase']}: {status['message']}")
    assert status["phase"] == "Queued"
    assert len(hosts(tenant, runs)) == 4
    assert hosts(tenant, waits) == []
    return runs, waits


@pytest.mark.needs("kwok", "node-inside")
def test_without_a_gang_scheduler_one_run_waits_for_the_other(
    cluster: UnderTest, there: Tenant, program: Path
) -> None:
    """Two clusters that each need most of the resources do not deadlock: the operator starts one,
    and then the other after its end.
    """
    operate(cluster, there, gang=False)
    runs, waits = one_runs_and_one_waits(there, program, "more on the nodes, used by one-1")
    assert there.pods(waits) == []
    stop(there, runs)
    there.phase(waits, "Running", seconds=120)
    stop(there, waits)


@pytest.mark.needs(*VOLCANO)
def test_with_volcano_one_run_waits_for_the_other(
    cluster: UnderTest, there: Tenant, program: Path
) -> None:
    """Volcano binds all tasks of one run. The other run is Queued with Volcano's reason, and starts
    after the end of the first run, whose PodGroup is then deleted.
    """
    operate(cluster, there, gang="auto")
    runs, waits = one_runs_and_one_waits(there, program, "insufficient cpu")
    print(there.kubectl("get", "podgroups"), groups(there))
    assert groups(there).keys() == {runs, waits}
    stop(there, runs)
    there.phase(waits, "Running", seconds=120)
    wait_until(lambda: groups(there).keys() == {waits}, "only its PodGroup is left", seconds=90)
    # The replacement of a killed task is bound without the rest of its gang, even if other tasks
    # of the gang have ended and their pods are gone.
    for worker in ("0", "1"):
        index = f"batch.kubernetes.io/job-completion-index={worker}"
        (pod,) = [
            p["metadata"]["name"]
            for p in there.pods(waits, "worker")
            if p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == worker
        ]
        if worker == "0":
            there.kubectl("annotate", "pod", pod, "kwok.tfcluster/exit-code=0")
            there.wait(
                waits,
                lambda s: s["counts"]["worker"].get("succeeded") == 1,
                f"{index} is done",
                seconds=120,
            )
        there.kubectl("delete", "pod", pod, "--wait=false")
    there.wait(
        waits,
        lambda s: s.get("heals") == 1 and s["counts"]["worker"].get("running") == 2,
        "the other worker is replaced",
        seconds=120,
    )
    least = json.loads(there.kubectl("get", "podgroup", waits, "-o", "json"))["spec"]["minMember"]
    print(f"minMember of one that was healed: {least}")
    stop(there, waits)


@pytest.mark.needs(*VOLCANO)
@pytest.mark.parametrize("gang", [False, "auto"])
def test_parameter_servers_and_workers_share_a_node(
    cluster: UnderTest, there: Tenant, program: Path, gang: object
) -> None:
    """A cluster that fits on one node is placed there by every scheduler."""
    operate(cluster, there, gang=gang)
    for run in ("near-1", "near-2", "near-3"):
        there.launch(run, wish(program, workers=2, ps=1, cpu=2))
        there.phase(run, "Running", seconds=120)
        print(run, sorted(hosts(there, run)))
        assert len(set(hosts(there, run))) == 1
    stop(there, "near-1", "near-2", "near-3")


@pytest.mark.needs(*VOLCANO)
def test_a_missing_queue_or_priority_class_is_named(
    cluster: UnderTest, there: Tenant, program: Path
) -> None:
    """A run whose namespace names a missing queue or priority class is Queued with that reason, and
    starts once it exists.
    """
    operate(cluster, there, gang="auto")
    name = f"{there.name}-queue"
    annotate(cluster, there, f"tfcluster.dev/queue={name}")
    there.launch("queue-1", wish(program, workers=1, ps=1, cpu=1))
    told = there.wait("queue-1", lambda s: name in s.get("message", ""), "it says so", seconds=90)
    assert told["phase"] == "Queued"
    assert f"Volcano's queue {name}, which does not exist" in told["message"]
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    cluster.kubectl.apply({**queue, "metadata": {"name": name}, "spec": {"weight": 1}})
    there.phase("queue-1", "Running", seconds=120)
    stop(there, "queue-1")
    annotate(cluster, there, "tfcluster.dev/queue-", "tfcluster.dev/priority-class=tests-missing")
    there.launch("class-1", wish(program, workers=1, ps=1, cpu=1))
    missing = "there is no priority class tests-missing"
    told = there.wait(
        "class-1", lambda s: missing in s.get("message", ""), "it says so", seconds=120
    )
    assert told["phase"] == "Queued"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5}
    cluster.kubectl.apply({**kind, "metadata": {"name": "tests-missing"}})
    there.phase("class-1", "Running", seconds=180)
    assert {p["spec"]["priority"] for p in there.pods("class-1")} == {5}
    stop(there, "class-1")
    annotate(cluster, there, "tfcluster.dev/priority-class-")
    cluster.kubectl("delete", "priorityclass", "tests-missing")
    cluster.kubectl("delete", "queue", name)
