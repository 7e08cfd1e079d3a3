"""Runs that ended while no operator was running, longer ago than Kubernetes keeps their objects."""

from __future__ import annotations

import time

import pytest
from support.operator_world import JOBS, RUNS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.objects.run_objects import TTL_SECONDS


def began(world: World, ago: float, name: str = "digits-1") -> None:
    """Write the record of a run that started `ago` seconds ago."""
    then = time.time() - ago
    events = [{**event, "at": then} for event in world.status(name)["events"]]
    world.say(name, startedAt=then, runningAt=then, events=events)


def test_a_success_that_nobody_saw_is_one(world: World) -> None:
    """Kubernetes deletes Jobs an hour after their success. If no operator saw this success, the run
    has succeeded nevertheless, and its message says that the time of its end was not observed.
    """
    up(world, ps=1)
    world.rest()
    began(world, ago=4 * 3600)
    # garbage collection also deletes the ps and all pods
    world.server.remove(f"{JOBS}/digits-1-worker")
    world.unwatched = 3 * 3600.0
    world.operate()
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert (status["phase"], status["reason"]) == ("Succeeded", "Completed")
    assert "no operator was running" in status["message"]
    assert status["finishedAt"] <= time.time() - TTL_SECONDS + 5
    assert status["counts"]["worker"]["succeeded"] == 1
    assert not [t for t in status["attention"] if "never started" in t.get("message", "")]


@pytest.mark.parametrize("away", [0.0, 600.0])
def test_a_job_that_went_unseen_is_said_to_be_gone(world: World, away: float) -> None:
    """If a Job disappeared before Kubernetes could have removed it after a success, somebody
    deleted the Job. The run fails, and its message says that the end of its tasks was not observed.
    """
    up(world, ps=1)
    world.rest()
    began(world, ago=4 * 3600)
    world.server.remove(f"{JOBS}/digits-1-worker")
    world.unwatched = away
    world.operate()
    status = world.phase("digits-1", "Failed")
    assert "Job digits-1-worker" in status["message"]
    assert "while no operator was running" in status["message"]
    assert "digits-1-ps" not in status["message"]


def test_a_job_that_is_done_may_go(world: World) -> None:
    """If Kubernetes deleted the workers' Job after their success, the chief continues, before and
    after a restart of the operator.
    """
    up(world, chief=1)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.wait("digits-1", lambda s: s["counts"]["worker"].get("succeeded") == 1)
    world.server.remove(f"{JOBS}/digits-1-worker")
    for _operator in range(2):
        # the operator gives no sign that it saw the removal, but would have reported a loss by now
        time.sleep(1)
        assert world.status("digits-1")["phase"] == "Running"
        world.operate()
    world.pod("digits-1-chief", "succeeded", 0, "digits-1-chief-0-first")
    assert world.phase("digits-1", "Succeeded")["counts"]["worker"]["succeeded"] == 1


def test_what_was_never_started_was_not_stopped(world: World) -> None:
    """If a run is stopped, a task that never had a pod is counted neither as stopped nor as
    reclaimed, also if a new operator takes over.
    """
    world.launch("digits-1", ps=1)
    wait_until(lambda: world.server.names("jobs") == ["digits-1-ps", "digits-1-worker"])
    pod = world.pod("digits-1-ps", "running")
    world.wait("digits-1", lambda s: s.get("counts", {}).get("ps", {}).get("running") == 1)
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    world.phase("digits-1", "Stopping")
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend"))
    world.operate()
    world.server.remove(f"/api/v1/namespaces/a/pods/{pod}")
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert status["counts"]["ps"] == {"desired": 1, "stopped": 1}
    assert status["counts"]["worker"] == {"desired": 1}
    assert status["reclaimed"]["tasks"] == ["ps-0"]
    told = {task["name"]: task.get("message") for task in status["attention"]}
    assert told == {"ps-0": None, "worker-0": "it was never started"}


def test_a_job_that_went_while_its_tasks_started_is_not_made_again(world: World) -> None:
    """A Job that was deleted while its tasks were starting and no operator was running is not
    created again. Its pods may still run, so a second Job could run each task twice. The run
    reports the deletion.
    """
    world.launch("digits-1", workers=2, ps=1)
    wait_until(lambda: len(world.server.names("jobs")) == 2)
    world.pod("digits-1-worker", "starting", 0)
    world.wait("digits-1", lambda s: s["counts"]["worker"].get("starting") == 1)
    world.rest()
    world.server.remove(f"{JOBS}/digits-1-worker")
    world.operate()
    status = world.phase("digits-1", "Failed")
    assert status["reason"] == "Disrupted"
    assert "Job digits-1-worker was deleted" in status["message"]
    assert "digits-1-worker" not in world.server.names("jobs")


def test_a_job_that_was_not_made_yet_is_made_by_the_next_operator(world: World) -> None:
    """If an operator ends after it created the first of two Jobs of a run, the next operator
    creates the second Job.
    """
    world.launch("digits-1", chief=1)
    wait_until(lambda: len(world.server.names("jobs")) == 2)
    world.pod("digits-1-chief", "starting", 0)
    world.wait("digits-1", lambda s: s["counts"]["chief"].get("starting") == 1)
    world.rest()
    # as if the operator had ended before it created this Job
    world.server.remove(f"{JOBS}/digits-1-worker")
    world.operate()
    wait_until(lambda: len(world.server.names("jobs")) == 2)
    assert world.status("digits-1")["phase"] == "Starting"
