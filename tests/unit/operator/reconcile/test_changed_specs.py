"""Records that are no runs any more, because somebody changed their spec; a policy refuses none."""

from __future__ import annotations

import copy

import pytest
from support.operator_world import JOBS, PODS, RUNS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.objects.policy import Policy


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_whose_spec_became_wrong_ends(world: World, restarted: bool) -> None:
    """A run that nobody can read any more fails with its problems: its Jobs are suspended, what
    happened before is still told, and it is over when its tasks are gone.
    """
    up(world, ps=1)
    before = world.status("digits-1")
    if restarted:
        world.rest()
    run = copy.deepcopy(world.run("digits-1"))
    run["spec"]["interpreter"] = "python3"
    world.server.put(f"{RUNS}/digits-1", run)
    if restarted:
        world.operate()
    status = world.phase("digits-1", "Failed")
    assert "spec.interpreter" in status["message"]
    assert status["reason"] == "Disrupted"
    assert status["startedAt"] == before["startedAt"]
    assert status["events"][:-1] == before["events"]
    for job in ("digits-1-ps", "digits-1-worker"):
        wait_until(lambda job=job: world.job(job)["spec"].get("suspend") is True)
    assert status.get("releasedAt") is None
    for pod in ("digits-1-ps-0-first", "digits-1-worker-0-first"):
        world.server.remove(f"{PODS}/{pod}")
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert status["counts"]["worker"] == {"desired": 1, "stopped": 1}


def test_a_record_that_was_never_a_run_touches_nobodys_job(world: World) -> None:
    """What is refused while Queued is over at once, and a Job of its name is left alone."""
    other = {"metadata": {"labels": {"tfcluster.dev/name": "digits-1"}}, "spec": {}}
    other["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "tfcluster-operator"
    world.server.put(f"{JOBS}/digits-1-worker", other)
    world.server.put(f"{RUNS}/digits-1", {"spec": {"env": {"TF_CONFIG": "x"}}})
    assert world.phase("digits-1", "Failed")["releasedAt"]
    assert "suspend" not in world.job("digits-1-worker")["spec"]


def test_a_later_policy_refuses_no_run_that_has_begun(world: World) -> None:
    """An operator with a stricter policy lets a run go on that has begun, where its output is."""
    up(world, ps=1, reclaim_after=0.0)
    world.policy = Policy(images=("none/*",), default_image="none/x", max_tasks=1, log_path="/else")
    world.operate()
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    status = world.phase("digits-1", "Succeeded")
    assert status["paths"]["output"] == "/log/digits/1"
