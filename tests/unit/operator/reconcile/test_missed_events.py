"""What ended while no operator was there, and longer than Kubernetes keeps anything of it."""

from __future__ import annotations

import time

import pytest
from support.operator_world import JOBS, RUNS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.objects.run_objects import TTL_SECONDS


def began(world: World, ago: float, name: str = "digits-1") -> None:
    """The record of a run that came up so long ago."""
    then = time.time() - ago
    events = [{**event, "at": then} for event in world.status(name)["events"]]
    world.say(name, startedAt=then, runningAt=then, events=events)


def test_a_success_that_nobody_saw_is_one(world: World) -> None:
    """A run whose Jobs Kubernetes took away, as it does an hour after a success, has succeeded; it
    says that nobody saw when.
    """
    up(world, ps=1)
    world.rest()
    began(world, ago=4 * 3600)
    world.server.remove(f"{JOBS}/digits-1-worker")  # and with it the ps and all pods
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
    """A Job that went in a shorter time was deleted: the run fails, and says that nobody saw how
    its tasks ended.
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
    """Workers whose Job Kubernetes took away after their success are no loss to the chief, which
    goes on; before and after a restart of the operator.
    """
    up(world, chief=1)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.wait("digits-1", lambda s: s["counts"]["worker"].get("succeeded") == 1)
    world.server.remove(f"{JOBS}/digits-1-worker")
    for _operator in range(2):
        time.sleep(1)
        assert world.status("digits-1")["phase"] == "Running"
        world.operate()
    world.pod("digits-1-chief", "succeeded", 0, "digits-1-chief-0-first")
    assert world.phase("digits-1", "Succeeded")["counts"]["worker"]["succeeded"] == 1


def test_what_was_never_started_was_not_stopped(world: World) -> None:
    """A task that never had a pod is not counted as stopped, and gave nothing back, also for the
    operator that comes after.
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
    """A Job that somebody deletes while its tasks start and no operator is there stays away: its
    pods may still run, and a second Job would run each task twice. The run says what happened.
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
    """An operator that ends between two Jobs of a run leaves the other to the next one."""
    world.launch("digits-1", chief=1)
    wait_until(lambda: len(world.server.names("jobs")) == 2)
    world.pod("digits-1-chief", "starting", 0)
    world.wait("digits-1", lambda s: s["counts"]["chief"].get("starting") == 1)
    world.rest()
    world.server.remove(f"{JOBS}/digits-1-worker")  # as if it had never been
    world.operate()
    wait_until(lambda: len(world.server.names("jobs")) == 2)
    assert world.status("digits-1")["phase"] == "Starting"
