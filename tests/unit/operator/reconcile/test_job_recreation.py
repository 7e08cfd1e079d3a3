"""Group restarts that include a worker which has succeeded, and which the Job would never start
again.
"""

from __future__ import annotations

import copy

import pytest
from support.operator_world import JOBS, PODS, World, up
from support.polling import wait_until


def succeed(world: World, index: int) -> None:
    """Let a worker succeed in its pod and its Job."""
    job = copy.deepcopy(world.job("digits-1-worker"))
    job["status"] = {"completedIndexes": str(index), "startTime": "2026-11-21T20:00:00Z"}
    world.server.put(f"{JOBS}/digits-1-worker", job)
    world.pod("digits-1-worker", "succeeded", index, f"digits-1-worker-{index}-first")
    world.wait("digits-1", lambda s: s["counts"]["worker"].get("succeeded") == 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_group_restarts_with_those_that_were_done(world: World, restarted: bool) -> None:
    """Workers that train together restart together, even if one of them has succeeded. The Job
    would never start the succeeded worker again, so the Job is recreated. All workers run again,
    and the run does not report that somebody deleted its Job.
    """
    up(world, workers=3)
    succeed(world, 1)
    if restarted:
        world.operate()
    before = world.job("digits-1-worker")["metadata"]["uid"]
    world.pod("digits-1-worker", "deleted", 0, "digits-1-worker-0-first")
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend") is True)
    # not recreated yet, because worker-2 still runs
    assert world.job("digits-1-worker")["metadata"]["uid"] == before
    for index in (0, 2):
        world.server.remove(f"{PODS}/digits-1-worker-{index}-first")

    def is_anew() -> bool:
        found = world.server.objects.get(f"{JOBS}/digits-1-worker")
        return found is not None and found["metadata"]["uid"] != before

    wait_until(is_anew)
    wait_until(lambda: "annotations" in world.job("digits-1-worker")["metadata"])
    anew = world.job("digits-1-worker")
    assert anew["metadata"]["annotations"]["tfcluster.dev/attempt"] == "2"
    for index in range(3):
        world.pod("digits-1-worker", "running", index)
    status = world.wait("digits-1", lambda s: s["counts"]["worker"].get("running") == 3)
    assert (status["phase"], status["attempt"], status["heals"]) == ("Running", 2, 1)
    assert world.job("digits-1-worker")["metadata"]["uid"] == anew["metadata"]["uid"]
