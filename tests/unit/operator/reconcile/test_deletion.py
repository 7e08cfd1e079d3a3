"""Records that are being deleted, and records that a finalizer keeps during their deletion."""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_world import JOBS, PODS, RUNS, World, up
from support.polling import wait_until

pytestmark = pytest.mark.hostile
HOLD = "example.com/hold"
WHERE = f"{RUNS}/digits-1"


def delete(world: World, propagation: str = "Background", *finalizers: str) -> None:
    """Add `finalizers` to the record, then delete it; a user with the right to patch and delete the
    record can do the same.
    """
    api = world.server.api()
    api.merge(WHERE, {"metadata": {"finalizers": list(finalizers)}})
    api.delete(WHERE, propagation=propagation)


def ends(world: World) -> None:
    """End pods of suspended Jobs, as Kubernetes does."""
    wait_until(
        lambda: all(world.job(name)["spec"].get("suspend") for name in world.server.names("jobs"))
    )
    for name in world.server.names("pods"):
        world.server.remove(f"{PODS}/{name}")


@pytest.mark.parametrize("kept", [(HOLD,), (HOLD, "orphan"), ("kubernetes.io/hold",)])
def test_a_finalizer_keeps_the_record_and_no_task(world: World, kept: tuple[str, ...]) -> None:
    """When a run's record is deleted, the run's tasks end, whatever finalizer keeps the record. The
    record reports the deletion and no failure, and the run's other objects are deleted.
    """
    up(world, ps=1, workers=2)
    delete(world, "Background", *kept)
    ends(world)
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert (status["phase"], status["reason"]) == ("Stopped", "StopRequested")
    assert "deletion of its record" in status["message"]
    assert kept[0] in status["message"]
    wait_until(lambda: not world.server.names("jobs"))
    wait_until(lambda: not world.server.names("networkpolicies"))
    assert not world.server.names("configmaps")
    world.server.api().merge(WHERE, {"metadata": {"finalizers": None}})
    wait_until(lambda: WHERE not in world.server.objects)


def test_a_record_that_goes_after_its_tasks_is_stopped_with_them(world: World) -> None:
    """With `kubectl delete --cascade=foreground`, Jobs and pods are deleted before the record. The
    run counts as stopped; it is not reported that its Jobs were lost.
    """
    up(world, ps=1)
    delete(world, "Foreground")
    for name in ("digits-1-worker", "digits-1-ps"):
        if f"{JOBS}/{name}" in world.server.objects:
            world.server.remove(f"{JOBS}/{name}")
    status = world.wait("digits-1", lambda s: s.get("releasedAt"))
    assert (status["phase"], status["reason"]) == ("Stopped", "StopRequested")
    world.server.api().merge(WHERE, {"metadata": {"finalizers": None}})
    wait_until(lambda: WHERE not in world.server.objects)
    world.launch("digits-1", workers=1)  # the name is free again
    wait_until(lambda: f"{JOBS}/digits-1-worker" in world.server.objects)


def test_a_record_deleted_while_no_operator_was_there(world: World) -> None:
    """If a record is deleted while no operator runs, the next operator ends its tasks."""
    up(world, max_duration=40.0)
    world.rest()
    delete(world, "Background", HOLD)
    assert not world.job("digits-1-worker")["spec"].get("suspend")
    world.operate()
    ends(world)
    assert world.wait("digits-1", lambda s: s.get("releasedAt"))["phase"] == "Stopped"


def test_the_servers_of_a_success_go_with_its_record(world: World) -> None:
    """After a success, parameter servers stay for `reclaimAfter`; if the record is deleted, they
    end at once.
    """
    up(world, ps=1, reclaim_after=3600.0)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.phase("digits-1", "Succeeded")
    assert not world.job("digits-1-ps")["spec"].get("suspend")
    delete(world, "Background", HOLD)
    wait_until(lambda: world.job("digits-1-ps")["spec"].get("suspend"))
    world.server.remove(f"{PODS}/digits-1-ps-0-first")
    assert world.wait("digits-1", lambda s: s.get("releasedAt"))["phase"] == "Succeeded"


def test_what_waits_never_begins_once_it_is_deleted(world: World) -> None:
    """A waiting run whose record is deleted is Stopped, and gets no Job."""
    from tfcluster_magic.operator.scheduling.admission import Waiting
    from tfcluster_magic.spec import Message

    class Later:
        def decide(self, _cluster: object) -> Any:
            return Waiting(Message("Room"))

    world.admission = Later()
    world.operate()
    world.launch("digits-1")
    world.phase("digits-1", "Queued")
    delete(world, "Background", HOLD)
    assert world.wait("digits-1", lambda s: s.get("releasedAt"))["phase"] == "Stopped"
    assert not world.server.names("jobs")


def test_a_record_nobody_can_read_loses_its_tasks_too(world: World) -> None:
    """The tasks of a deleted record end even if its spec is invalid."""
    up(world)
    found = world.run("digits-1")
    found["spec"]["replicas"]["worker"]["count"] = -3
    world.rest()
    world.server.put(WHERE, found)
    delete(world, "Background", HOLD)
    world.operate()
    ends(world)
    assert world.wait("digits-1", lambda s: s.get("releasedAt"))["phase"] == "Failed"
