"""Volcano queues that close; and runs that Volcano or Kubernetes' scheduler preempts in favor of
runs with a higher priority.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubenode.commands import wait_until
from kubenode.config import filled
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
from support.kube.kubectl import Object
from support.kube.operator import Tenant
from support.kube.under_test import UnderTest

__all__ = ["left_clean", "program", "there"]  # fixtures used by the tests below

CONFIG = "volcano-scheduler.conf"
PREEMPTING = """\
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins:
  - {name: drf, enablePreemptable: false}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""
"""Volcano's default configuration with preemption, which administrators must enable."""
LOW, HIGH = "tests-low", "tests-high"
PUSHED_OUT = "was evicted (a pod of higher priority took its place: "


@pytest.fixture
def queue(cluster: UnderTest, there: Tenant) -> Iterator[str]:
    """A Volcano queue for the runs of the namespace."""
    name = f"{there.name}-closing"
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    cluster.kubectl.apply({**kind, "metadata": {"name": name}, "spec": {"weight": 1}})
    annotate(cluster, there, f"tfcluster.dev/queue={name}")
    wait_until(lambda: state(cluster, name) == "Open", f"{name} is open", seconds=90)
    yield name
    annotate(cluster, there, "tfcluster.dev/queue-")
    turn(cluster, name, "CloseQueue")
    cluster.kubectl("delete", "queue", name, "--wait=false")


def state(cluster: UnderTest, queue: str) -> str:
    """Return the state of a queue as Volcano reports it."""
    return str((cluster.kubectl.get("queue", queue).get("status") or {}).get("state", ""))


def turn(cluster: UnderTest, queue: str, action: str) -> None:
    """Open or close a queue as Volcano's own command line does."""
    head = cluster.kubectl.get("queue", queue)["metadata"]
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "controller": True}
    target |= {"name": queue, "uid": head["uid"]}
    made = {"generateName": f"{queue}-", "namespace": "default", "ownerReferences": [target]}
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": made}
    cluster.kubectl(
        "create", "-f-", stdin=json.dumps(command | {"action": action, "target": target})
    )


def faces(tenant: Tenant, name: str, folder: Path) -> dict[str, str]:
    """Return what `tfcluster` and kubectl show for a run."""
    home = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TFCLUSTER_LANGUAGE": "en"}
    config = json.loads(Path(tenant.kubectl.kubeconfig).read_text())
    config["contexts"][0]["context"]["namespace"] = tenant.name
    (folder / "config").write_text(json.dumps(config))
    home |= {"KUBECONFIG": str(folder / "config"), "TFCLUSTER_BACKEND": "kubernetes"}
    tfcluster = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]

    def said(*words: str) -> str:
        done = subprocess.run(
            [*tfcluster, *words], env=home, cwd=folder, capture_output=True, text=True, check=True
        )
        return " ".join(done.stdout.split())

    return {
        "status": said("status", name),
        "list": said("list", "-o", "json"),
        "kubectl": " ".join(tenant.kubectl("get", "tfcluster", name, "-o", "wide").split()),
    }


@pytest.mark.needs(*VOLCANO)
def test_a_run_in_a_closed_queue_says_so_and_begins_when_it_opens(
    cluster: UnderTest, there: Tenant, program: Path, queue: str, tmp_path: Path
) -> None:
    """A run in a closed queue is Queued with Volcano's reason in every view, and takes no
    resources. It starts by itself when the queue opens.
    """
    operate(cluster, there, gang="auto")
    turn(cluster, queue, "CloseQueue")
    wait_until(lambda: state(cluster, queue) == "Closed", f"{queue} is closed", seconds=90)
    there.launch("closed-1", wish(program, workers=2, ps=1, cpu=1))
    why = f"Volcano's queue {queue}, which accepts no jobs now (Closed)"
    told = there.wait("closed-1", lambda s: why in s.get("message", ""), "it says so", seconds=90)
    assert (told["phase"], there.pods("closed-1")) == ("Queued", [])
    for face, said in faces(there, "closed-1", tmp_path).items():
        print(f"{face}: {said}")
        assert why in said, face
    turn(cluster, queue, "OpenQueue")
    there.phase("closed-1", "Running", seconds=120)
    assert len(hosts(there, "closed-1")) == 3
    stop(there, "closed-1")


@pytest.mark.needs(*VOLCANO)
def test_a_waiting_run_says_that_its_queue_closed(
    cluster: UnderTest, there: Tenant, program: Path, queue: str
) -> None:
    """A run continues while its queue closes; a waiting run says that its queue is closed, and
    starts once the queue is open and has room.
    """
    operate(cluster, there, gang="auto")
    there.launch("runs-1", wish(program, workers=3, ps=1, cpu=5))
    there.phase("runs-1", "Running", seconds=120)
    there.launch("waits-1", wish(program, workers=3, ps=1, cpu=5))
    there.wait("waits-1", lambda s: "insufficient" in s.get("message", "").lower(), "it waits")
    turn(cluster, queue, "CloseQueue")
    wait_until(lambda: state(cluster, queue) == "Closing", f"{queue} closes", seconds=90)
    why = f"Volcano's queue {queue}, which accepts no jobs now (Closing)"
    told = there.wait("waits-1", lambda s: why in s.get("message", ""), "it says so", seconds=90)
    assert told["phase"] == "Queued"
    assert there.status("runs-1")["phase"] == "Running"
    stop(there, "runs-1")
    assert hosts(there, "waits-1") == []
    turn(cluster, queue, "OpenQueue")
    there.phase("waits-1", "Running", seconds=120)
    stop(there, "waits-1")


@pytest.fixture
def classes(cluster: UnderTest, there: Tenant) -> Iterator[None]:
    """Two priority classes, with the lower one as the namespace's default."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in ((LOW, 10), (HIGH, 1000)):
        cluster.kubectl.apply({**head, "metadata": {"name": name}, "value": value})
    annotate(cluster, there, f"tfcluster.dev/priority-class={LOW}")
    yield
    annotate(cluster, there, "tfcluster.dev/priority-class-")
    cluster.kubectl("delete", "priorityclass", LOW, HIGH)


@pytest.fixture
def preempting(cluster: UnderTest) -> Iterator[None]:
    """Configure Volcano to preempt tasks of a lower priority."""
    assert cluster.own
    node = cluster.own.first
    node.write(f"/etc/volcano/{CONFIG}", PREEMPTING)  # Volcano reloads this file when it changes
    yield
    node.write(f"/etc/volcano/{CONFIG}", filled(CONFIG, node))


def push_out(
    cluster: UnderTest, tenant: Tenant, program: Path, scheduler: str, *, workers: int, ps: int
) -> Object:
    """Let a run of a higher class preempt a run that uses nearly all resources. Return the
    preempted run's status once it says so.
    """
    tenant.launch("low-1", wish(program, workers=workers, ps=ps, cpu=5))
    tenant.phase("low-1", "Running", seconds=120)
    annotate(cluster, tenant, f"tfcluster.dev/priority-class={HIGH}")
    tenant.launch("high-1", wish(program, workers=2, ps=0, cpu=5))
    tenant.phase("high-1", "Running", seconds=120)
    words = f"{PUSHED_OUT}{scheduler}: preempting to accommodate a higher priority pod)"
    told = tenant.wait("low-1", lambda s: words in json.dumps(s), f"it says {words}", seconds=90)
    print(*(f"{each['reason']}: {each['message']}" for each in told["events"]), sep="\n")
    print(f"{told['phase']}: {told['reason']}: {told['message']}")
    assert (told["phase"], told.get("heals")) == ("Running", 1)
    return told


def holding(tenant: Tenant, name: str) -> int:
    """Return how many tasks of a run occupy a node; pods that have ended do not count."""
    over = ("Failed", "Succeeded")
    there = [pod for pod in tenant.pods(name) if pod["status"].get("phase") not in over]
    return len([pod for pod in there if pod["spec"].get("nodeName")])


def room_again(tenant: Tenant, *, tasks: int) -> None:
    """Stop the preempting run; wait until all tasks of the preempted run are running again, each in
    only one pod.
    """
    stop(tenant, "high-1")
    tenant.wait(
        "low-1",
        lambda s: sum(each.get("running", 0) for each in s["counts"].values()) == tasks,
        "all its tasks run again",
        seconds=120,
    )
    assert holding(tenant, "low-1") == tasks
    assert tenant.status("low-1")["phase"] == "Running"
    stop(tenant, "low-1")


@pytest.mark.needs(*VOLCANO)
def test_volcano_preempts_a_lower_class_and_the_record_says_so(
    cluster: UnderTest, there: Tenant, program: Path, classes: None, preempting: None
) -> None:
    """The record says in Volcano's words which tasks Volcano preempted. In a run with parameter
    servers the other tasks continue, and the preempted ones start again once resources are free.
    """
    operate(cluster, there, gang="auto")
    push_out(cluster, there, program, "volcano", workers=3, ps=1)
    wait_until(lambda: holding(there, "low-1") == 2, "the other tasks go on", seconds=90)
    room_again(there, tasks=4)


@pytest.mark.needs(*VOLCANO)
def test_synchronous_workers_are_preempted_together(
    cluster: UnderTest, there: Tenant, program: Path, classes: None, preempting: None
) -> None:
    """Workers without parameter servers are preempted together. No worker keeps a node while
    another waits; all start together as the next attempt.
    """
    operate(cluster, there, gang="auto")
    push_out(cluster, there, program, "volcano", workers=4, ps=0)
    wait_until(lambda: not holding(there, "low-1"), "none of its tasks has a node", seconds=90)
    assert holding(there, "high-1") == 2
    room_again(there, tasks=4)


@pytest.mark.needs("kwok", "node-inside")
def test_the_default_scheduler_preempts_a_lower_class_too(
    cluster: UnderTest, there: Tenant, program: Path, classes: None
) -> None:
    """Kubernetes' scheduler preempts too, if the operator leaves the choice of nodes to it, and the
    record says so.
    """
    operate(cluster, there, gang=False, nodesAreFixed=False)
    push_out(cluster, there, program, "default-scheduler", workers=3, ps=1)
    room_again(there, tasks=4)
