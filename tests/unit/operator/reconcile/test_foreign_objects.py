"""Objects with a run's labels that the operator did not create."""

from __future__ import annotations

import copy

import pytest
from support.operator_world import JOBS, PODS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.api.labels import TASK_TYPE, UID


@pytest.mark.parametrize("task_type", [None, "nonsense", "worker"])
def test_a_job_that_is_none_of_the_runs_is_ignored_and_told(
    world: World, task_type: str | None
) -> None:
    """A Job that has a run's labels but does not belong to the run is reported and never changed,
    and the run continues.
    """
    up(world, ps=1, reclaim_after=0.0)
    stranger = copy.deepcopy(world.job("digits-1-worker"))
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        stranger["metadata"].pop(key)
    stranger["metadata"]["labels"].pop(TASK_TYPE)
    if task_type is not None:
        stranger["metadata"]["labels"][TASK_TYPE] = task_type
    stranger["spec"] = {}
    world.server.put(f"{JOBS}/somebodys", stranger)
    status = world.wait("digits-1", lambda s: s.get("warnings"))
    assert "Job somebodys" in status["warnings"][0]
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.phase("digits-1", "Succeeded")
    wait_until(lambda: world.job("digits-1-ps")["spec"].get("suspend"))
    assert world.job("somebodys")["spec"] == {}


def test_a_pod_that_is_no_task_is_ignored(world: World) -> None:
    """A pod with a run's labels, but without an index of its Job, is never reported as failed."""
    up(world)
    (name,) = [n for n in world.server.names("pods") if n.startswith("digits-1-worker")]
    stranger = copy.deepcopy(world.server.objects[f"{PODS}/{name}"])
    for key in ("uid", "resourceVersion", "creationTimestamp", "annotations"):
        stranger["metadata"].pop(key)
    stranger["metadata"]["labels"].pop(TASK_TYPE)
    stranger["metadata"]["deletionTimestamp"] = "2026-11-21T20:00:00Z"
    world.server.put(f"{PODS}/somebodys", stranger)
    world.pod("digits-1-worker", "succeeded", 0, name)
    world.phase("digits-1", "Succeeded")
    assert world.server.objects[f"{PODS}/somebodys"]["metadata"]["labels"][UID]
    assert world.controller is not None
    assert world.controller.turns.failed == 0
