"""Jobs of finished runs, which must create no more pods."""

from __future__ import annotations

import copy
import time

import pytest
from support.kube_server import Refusal
from support.operator_world import JOBS, PODS, RUNS, SERVICE, World, up
from support.polling import wait_until


def stop(world: World, name: str = "digits-1") -> None:
    world.server.answer("PATCH", f"{RUNS}/{name}", {"spec": {"stop": {"reason": "lunch"}}})


def suspended(world: World, *jobs: str) -> bool:
    return all(world.job(job)["spec"].get("suspend") is True for job in jobs)


def test_a_stop_before_there_are_pods_suspends_every_job(world: World) -> None:
    """The Jobs of a run that is stopped right after their creation are suspended before any pod
    exists.
    """
    world.launch("digits-1", ps=1)
    wait_until(lambda: world.server.names("jobs") == ["digits-1-ps", "digits-1-worker"])
    stop(world)
    world.phase("digits-1", "Stopped")
    wait_until(lambda: suspended(world, "digits-1-ps", "digits-1-worker"))


def test_a_stop_waits_for_pods_that_nobody_has_seen(world: World) -> None:
    """A run has ended only when its Jobs create no more pods, and all created pods are gone."""
    world.server.notes_suspensions = False
    world.launch("digits-1")
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])
    stop(world)
    wait_until(lambda: suspended(world, "digits-1-worker"))
    status = world.phase("digits-1", "Stopping")
    assert "have not appeared yet" in status["message"]
    pod = world.pod("digits-1-worker", "running")
    noted = copy.deepcopy(world.job("digits-1-worker"))
    noted["status"] = {"terminating": 1, "conditions": [{"type": "Suspended", "status": "True"}]}
    world.server.put(f"{JOBS}/digits-1-worker", noted)
    world.wait("digits-1", lambda s: "worker-0" in s["message"])
    world.server.remove(f"{PODS}/{pod}")
    assert world.phase("digits-1", "Stopped")["releasedAt"]


def test_a_stop_right_after_a_restart_waits_for_the_next_pods(world: World) -> None:
    """If a stop comes right after a group restart, the run waits for pods of the new attempt, which
    may be in no cache yet; the end of the former pods is not enough.
    """
    up(world, workers=2)
    world.pod("digits-1-worker", "deleted", 0, "digits-1-worker-0-first")
    wait_until(lambda: suspended(world, "digits-1-worker"))
    for index in range(2):
        world.server.remove(f"{PODS}/digits-1-worker-{index}-first")
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend") is False)
    world.server.notes_suspensions = False
    stop(world)
    wait_until(lambda: suspended(world, "digits-1-worker"))
    status = world.phase("digits-1", "Stopping")
    assert "have not appeared yet" in status["message"]
    world.server.notes_suspensions = True
    world.server.put(f"{JOBS}/digits-1-worker", copy.deepcopy(world.job("digits-1-worker")))
    assert world.phase("digits-1", "Stopped")["releasedAt"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_stop_calls_tasks_back_though_their_names_stay(world: World, method: str) -> None:
    """If the API fails to delete a run's Service, the run's tasks are stopped nevertheless; the
    Service is deleted once the API answers.
    """
    up(world)
    wait_until(lambda: SERVICE in world.server.objects)
    world.rest()
    away = Refusal(503, "ServiceUnavailable", "away")
    world.server.refuses = lambda *asked: away if asked == (method, SERVICE) else None
    world.operate()
    stop(world)
    wait_until(lambda: suspended(world, "digits-1-worker"))
    assert SERVICE in world.server.objects
    world.server.refuses = lambda *_asked: None
    wait_until(lambda: SERVICE not in world.server.objects)


def test_a_stop_waits_for_jobs_that_caches_do_not_have(world: World) -> None:
    """A created Job that is in no cache yet is suspended before its run ends."""
    world.server.is_followed = False
    world.launch("digits-1")
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])
    stop(world)
    world.phase("digits-1", "Stopping")
    assert not suspended(world, "digits-1-worker")
    world.server.is_followed = True
    world.server.put(f"{JOBS}/digits-1-worker", world.job("digits-1-worker"))
    assert world.phase("digits-1", "Stopped")["releasedAt"]
    assert suspended(world, "digits-1-worker")


def test_a_stop_suspends_the_job_that_has_no_pods(world: World) -> None:
    """If only parameter servers have pods, a stop suspends the workers' Job at once, too."""
    world.launch("digits-1", ps=1)
    wait_until(lambda: world.server.names("jobs") == ["digits-1-ps", "digits-1-worker"])
    pod = world.pod("digits-1-ps", "running")
    world.wait("digits-1", lambda s: s.get("counts", {}).get("ps", {}).get("running") == 1)
    stop(world)
    wait_until(lambda: suspended(world, "digits-1-ps", "digits-1-worker"))
    assert world.status("digits-1")["phase"] == "Stopping"
    world.server.remove(f"{PODS}/{pod}")
    world.phase("digits-1", "Stopped")


def test_a_run_that_never_got_pods_suspends_its_jobs_at_its_timeout(world: World) -> None:
    """A run that gets no pods fails at `startTimeout`, and its Jobs are suspended, so that no pod
    can appear afterwards.
    """
    world.launch("digits-1", ps=1, start_timeout=1.0)
    world.phase("digits-1", "Failed")
    wait_until(lambda: suspended(world, "digits-1-ps", "digits-1-worker"))


def test_jobs_of_a_run_that_is_over_are_suspended_by_the_next_operator(world: World) -> None:
    """If an operator ended after it wrote the last status of a run and before it suspended the
    run's Jobs, the next operator suspends them.
    """
    up(world, ps=1)
    away = Refusal(503, "ServiceUnavailable", "away")
    for pod in ("digits-1-ps-0-first", "digits-1-worker-0-first"):
        world.server.remove(f"{PODS}/{pod}")
    world.rest()
    world.say("digits-1", phase="Stopped", finishedAt=time.time(), releasedAt=time.time())
    world.server.refuses = lambda method, path: away if (method, path) == first else None
    first = ("PATCH", f"{JOBS}/digits-1-ps")
    world.operate()
    wait_until(lambda: first in world.server.calls)
    world.server.refuses = lambda _method, _path: None
    wait_until(lambda: suspended(world, "digits-1-ps", "digits-1-worker"))


def test_success_suspends_no_job_before_its_time(world: World) -> None:
    """After a success, the parameter servers stay until they are reclaimed, and the Jobs of tasks
    that succeeded are not suspended.
    """
    up(world, ps=1, reclaim_after=2.0)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.phase("digits-1", "Succeeded")
    assert not world.job("digits-1-ps")["spec"].get("suspend")
    wait_until(lambda: suspended(world, "digits-1-ps"))
    world.server.remove(f"{PODS}/digits-1-ps-0-first")
    world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert not world.job("digits-1-worker")["spec"].get("suspend")


@pytest.mark.parametrize("away", [True, False])
def test_a_failure_counts_though_its_next_attempt_is_there(world: World, away: bool) -> None:
    """A failure counts even if the Job has already started the next attempt: the task counts as
    failed, and the new attempt is stopped.
    """
    up(world)
    if away:
        world.rest()
    following = world.pod("digits-1-worker", "running")
    world.pod("digits-1-worker", "failed", 0, "digits-1-worker-0-first")
    notes = world.server.objects[f"{PODS}/{following}"]["metadata"]["annotations"]
    notes["batch.kubernetes.io/job-index-failure-count"] = "1"
    if away:
        world.operate()
    world.phase("digits-1", "Failed")
    wait_until(lambda: suspended(world, "digits-1-worker"))
    world.server.remove(f"{PODS}/{following}")
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert status["counts"]["worker"] == {"desired": 1, "failed": 1}
    assert status["attention"][0]["exit"]["exitCode"] == 1
