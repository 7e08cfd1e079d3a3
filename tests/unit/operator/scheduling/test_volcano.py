"""Runs whose tasks Volcano binds to nodes together; until then, the runs are Queued with Volcano's
message.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from support.kube_server import Object, Refusal
from support.operator_world import JOBS, PODS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.kube.status.pod_problems import PodContext, unschedulable_problem
from tfcluster_magic.operator.scheduling.admission import LeftToGangScheduler, Verdict
from tfcluster_magic.operator.scheduling.volcano import queue_refusal

GROUPS = path("podgroups", "a")
WORDS = "2/3 tasks in gang unschedulable: 0/41 nodes are available: 3 Insufficient cpu."


class SubmitAll:
    """An admission that accepts everything, so that Volcano decides."""

    def decide(self, cluster: object) -> Verdict:
        return LeftToGangScheduler()


@pytest.fixture
def volcano(world: World) -> World:
    """An operator on a cluster that has PodGroups."""
    world.server.lacks.clear()
    world.admission = SubmitAll()
    world.operate()
    return world


def group(world: World, name: str = "digits-1") -> Object:
    return copy.deepcopy(world.server.objects[f"{GROUPS}/{name}"])


def say(world: World, words: str, name: str = "digits-1") -> None:
    """Write Volcano's message `words` about missing resources."""
    told = {"type": "Unschedulable", "status": "True", "message": words, "reason": "NotEnough"}
    status = {"phase": "Inqueue", "conditions": [told]}
    world.server.put(f"{GROUPS}/{name}", {**group(world, name), "status": status})


def waiting(world: World, job: str, index: int = 0) -> str:
    """Put a pod of `job` that Volcano has not bound; return its name."""
    name = world.pod(job, "unschedulable", index)
    found = copy.deepcopy(world.server.objects[f"{PODS}/{name}"])
    found["spec"]["schedulerName"] = "volcano"
    found["status"]["conditions"] = []
    world.server.put(f"{PODS}/{name}", found)
    return name


def launched(world: World, **more: Any) -> None:
    """Launch a run of two workers and a parameter server, whose pods all wait."""
    world.launch("digits-1", workers=2, ps=1, **more)
    wait_until(lambda: f"{JOBS}/digits-1-ps" in world.server.objects)
    for job, count in (("digits-1-worker", 2), ("digits-1-ps", 1)):
        for index in range(count):
            waiting(world, job, index)


def bind(world: World) -> None:
    """Let Volcano bind all pods, which then run."""
    for name in world.server.names("pods"):
        pod = world.server.objects[f"{PODS}/{name}"]["metadata"]
        job = pod["labels"]["tfcluster.dev/task-type"]
        index = int(pod["annotations"]["batch.kubernetes.io/job-completion-index"])
        world.pod(f"digits-1-{job}", "running", index, name)


def test_a_gang_is_queued_with_the_schedulers_words_until_it_is_bound(volcano: World) -> None:
    """The objects of a gang are created while the run is Queued, with Volcano's reason;
    `startTimeout` counts from the binding of the pods.
    """
    launched(volcano, start_timeout=1.0)
    assert group(volcano)["spec"] == {
        "queue": "default",
        "minMember": 3,
        "minResources": {"cpu": "1500m", "memory": str(3 * 2**30)},
    }
    template = volcano.job("digits-1-ps")["spec"]["template"]
    assert template["spec"]["schedulerName"] == "volcano"
    say(volcano, WORDS)
    status = volcano.wait("digits-1", lambda s: "Insufficient cpu" in s.get("message", ""))
    assert status["message"] == (
        "Waiting for room for all 3 tasks at once in Volcano's queue default, which says: "
        "2/3 tasks in gang unschedulable: 0/41 nodes are available: 3 Insufficient cpu."
    )
    assert status["phase"] == "Queued"
    assert "startedAt" not in status
    made = volcano.made()
    begun = time.time()
    wait_until(lambda: time.time() > begun + 1.5)  # longer than startTimeout
    assert volcano.status("digits-1")["phase"] == "Queued"
    bind(volcano)
    status = volcano.phase("digits-1", "Running")
    assert float(status["startedAt"]) > begun + 1.0
    assert volcano.made() == made


def test_its_pod_group_has_the_priority_class_of_its_tasks(world: World) -> None:
    """The PodGroup has the tasks' priority class, because Volcano reads priority only there."""
    world.server.lacks.clear()
    world.admission, world.policy = SubmitAll(), Policy(priority_class="urgent")
    world.operate()
    launched(world)
    assert group(world)["spec"]["priorityClassName"] == "urgent"
    template = world.job("digits-1-worker")["spec"]["template"]
    assert template["spec"]["priorityClassName"] == "urgent"


def test_the_reason_of_a_queue_without_room_is_told(volcano: World) -> None:
    """If a queue does not admit a PodGroup, the event with the reason is shown, because the
    condition only counts tasks.
    """
    launched(volcano)
    counts = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"
    for number, message in enumerate((counts, "queue resource quota insufficient: cpu")):
        event = {"reason": "Unschedulable", "message": message}
        when = {"lastTimestamp": f"2026-11-22T18:00:0{1 - number}Z"}
        volcano.server.put(path("events", "a", f"said-{number}"), {**event, **when})
    told = {"type": "Unschedulable", "status": "True", "message": counts}
    status = {"phase": "Pending", "conditions": [told]}
    volcano.server.put(f"{GROUPS}/digits-1", {**group(volcano), "status": status})
    said = volcano.wait("digits-1", lambda s: "quota" in s.get("message", ""))["message"]
    assert said.endswith(f"which says: queue resource quota insufficient: cpu; {counts}.")


def test_a_queue_that_closes_before_one_that_waits_is_said(volcano: World) -> None:
    """If a queue is closed while runs wait, Volcano does not report this to them. The operator
    reads the queue itself, reports that it is closed, and drops the message once the queue is open.
    """
    launched(volcano)
    where = path("queues", "", "default")
    volcano.server.put(where, {"status": {"state": "Closing"}})
    counts = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"
    told = {"type": "Unschedulable", "status": "True", "message": counts}
    status = {"phase": "Pending", "conditions": [told]}
    volcano.server.put(f"{GROUPS}/digits-1", {**group(volcano), "status": status})
    closed = "Waiting for Volcano's queue default, which accepts no jobs now (Closing)."
    volcano.wait("digits-1", lambda s: s.get("message") == closed)
    volcano.server.put(where, {"status": {"state": "Open"}})
    volcano.wait("digits-1", lambda s: counts in s.get("message", ""))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "pod group is not ready, 4 Pending, 4 minAvailable; Pending: 4 Unschedulable",
            "there is no room for all tasks together yet",
        ),
        (
            "pod group is not ready. 0/5 nodes are unavailable: 5 Insufficient cpu.",
            "no node has cpu free",
        ),
    ],
)
def test_volcanos_words_of_a_pod_are_explained(said: str, told: str) -> None:
    """Volcano's message about a task becomes one clause that names the resources that nodes
    lack.
    """
    assert str(unschedulable_problem(said, PodContext()).text) == told


def test_one_that_never_gets_room_fails_after_its_queue_timeout(volcano: World) -> None:
    """The time in Volcano's queue counts for `queueTimeout`. After this timeout, the run's Jobs
    create no pods.
    """
    launched(volcano, queue_timeout=2.0)
    say(volcano, WORDS)
    status = volcano.phase("digits-1", "Failed")
    assert status["reason"] == "QueueTimeout"
    assert "3 Insufficient cpu" in status["message"]
    for job in ("digits-1-worker", "digits-1-ps"):
        wait_until(lambda job=job: volcano.job(job)["spec"]["suspend"])


def test_one_that_is_stopped_in_the_queue_ends_and_leaves_the_queue(volcano: World) -> None:
    """A stop suspends the Jobs of a queued gang, and deletes its PodGroup, which would reserve
    resources.
    """
    launched(volcano)
    found = copy.deepcopy(volcano.run("digits-1"))
    found["spec"]["stop"] = {"by": "tests", "reason": "enough"}
    volcano.server.put(path("tfclusters", "a", "digits-1"), found)
    wait_until(lambda: volcano.job("digits-1-worker")["spec"]["suspend"])
    for name in volcano.server.names("pods"):
        volcano.server.remove(f"{PODS}/{name}")
    volcano.phase("digits-1", "Stopped")
    wait_until(lambda: f"{GROUPS}/digits-1" not in volcano.server.objects)


def test_another_operator_goes_on_waiting(volcano: World) -> None:
    """An operator that starts does not ask admission again for runs with objects."""
    launched(volcano)
    say(volcano, WORDS)
    volcano.wait("digits-1", lambda s: "Insufficient cpu" in s.get("message", ""))
    volcano.admission = None  # asking admission would fail
    volcano.operate()
    say(volcano, WORDS.replace("cpu", "memory"))
    status = volcano.wait("digits-1", lambda s: "Insufficient memory" in s.get("message", ""))
    assert status["phase"] == "Queued"
    bind(volcano)
    volcano.phase("digits-1", "Running")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'unable to find queue: queue.scheduling.volcano.sh "fast" not found',
            "Waiting for Volcano's queue fast, which does not exist",
        ),
        (
            "can only submit PodGroup to queue with state `Open`, queue `fast` status is `Closed`.",
            "Volcano's queue fast, which accepts no jobs now (Closed)",
        ),
    ],
)
def test_a_queue_that_takes_nothing_is_said(volcano: World, said: str, told: str) -> None:
    """If its queue is missing or closed, a run stays Queued with this reason; its objects are
    created when the queue is open again.
    """
    denied = f'admission webhook "validatepodgroup.volcano.sh" denied the request: {said}'
    refusal = Refusal(400, "BadRequest", denied)
    volcano.server.refuses = lambda verb, where: (
        refusal if (verb, where) == ("POST", GROUPS) else None
    )
    volcano.launch("digits-1")
    status = volcano.wait("digits-1", lambda s: told in s.get("message", ""))
    assert status["phase"] == "Queued"
    assert volcano.server.names("jobs") == []
    volcano.server.refuses = lambda _verb, _where: None
    wait_until(lambda: f"{JOBS}/digits-1-worker" in volcano.server.objects)


def test_words_of_others_are_not_taken_for_a_queues() -> None:
    """A refusal by another webhook keeps its own message."""
    assert queue_refusal('admission webhook "x" denied the request: no') is None


def test_a_deleted_job_ends_a_run_that_waits(volcano: World) -> None:
    """Deleting the Job of a waiting gang ends the run, with the reason."""
    launched(volcano)
    volcano.wait("digits-1", lambda s: s.get("phase") == "Queued")
    volcano.server.remove(f"{JOBS}/digits-1-worker")
    assert "he Job digits-1-worker" in volcano.phase("digits-1", "Failed")["message"]


def test_a_pod_group_that_goes_is_made_again(volcano: World) -> None:
    """A PodGroup that was deleted while pods wait for it is created again, because without it no
    pod is bound.
    """
    launched(volcano)
    uid = group(volcano)["metadata"]["uid"]
    volcano.server.remove(f"{GROUPS}/digits-1")
    wait_until(lambda: volcano.server.objects.get(f"{GROUPS}/digits-1", {}).get("metadata"))
    assert group(volcano)["metadata"]["uid"] != uid


def test_a_healed_task_is_bound_without_those_that_are_done(volcano: World) -> None:
    """The PodGroup's minimum number of pods does not count tasks that have succeeded and whose pods
    are gone, so a restarted task can be bound without them.
    """
    up(volcano, workers=2, ps=1)
    volcano.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    job = copy.deepcopy(volcano.job("digits-1-worker"))
    job["status"] = {"completedIndexes": "0", "startTime": "2026-11-21T20:00:00Z"}
    volcano.server.put(f"{JOBS}/digits-1-worker", job)
    volcano.wait("digits-1", lambda s: s["counts"]["worker"].get("succeeded") == 1)
    assert group(volcano)["spec"]["minMember"] == 3
    volcano.server.remove(f"{PODS}/digits-1-worker-0-first")
    volcano.pod("digits-1-worker", "deleted", 1, "digits-1-worker-1-first")
    volcano.wait("digits-1", lambda s: s.get("heals") == 1)
    volcano.server.remove(f"{PODS}/digits-1-worker-1-first")
    waiting(volcano, "digits-1-worker", 1)
    wait_until(lambda: group(volcano)["spec"]["minMember"] == 2)


def test_without_pod_groups_the_cluster_is_as_it_was(world: World) -> None:
    """On a cluster without Volcano, the operator neither requests objects of Volcano nor reports
    that Volcano is missing.
    """
    world.operate()
    up(world, workers=2, ps=1)
    template = world.job("digits-1-worker")["spec"]["template"]
    assert "schedulerName" not in template["spec"]
    assert world.server.names("podgroups") == []


def test_volcano_that_comes_is_used_from_then_on(world: World) -> None:
    """If Volcano is installed while the operator runs, the operator finds and uses it; active runs
    do not change.
    """
    world.operate()
    up(world, "before-1")
    world.server.lacks.clear()
    assert world.controller is not None
    wait_until(lambda: world.controller.scheduler.pod_groups.available)
    world.launch("after-1")
    wait_until(lambda: f"{JOBS}/after-1-worker" in world.server.objects)
    assert world.server.names("podgroups") == ["after-1"]
