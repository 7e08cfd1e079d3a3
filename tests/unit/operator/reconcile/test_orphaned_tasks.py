"""Tasks that remain when their record is deleted by `kubectl delete tfc --cascade=orphan`."""

from __future__ import annotations

import copy

import pytest
from support.operator_world import JOBS, RUNS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.api.labels import TASK_TYPE, UID


def orphan(world: World, name: str = "digits-1") -> None:
    """Delete the record and orphan its objects. As by the garbage collector, the objects' owner
    references are removed first.
    """
    uid = world.run(name)["metadata"]["uid"]
    for where, found in list(world.server.objects.items()):
        owners = found["metadata"].get("ownerReferences") or []
        if any(owner["uid"] == uid for owner in owners):
            left = copy.deepcopy(found)
            left["metadata"]["ownerReferences"] = []
            world.server.put(where, left)
    world.server.remove(f"{RUNS}/{name}")


def left(world: World) -> list[str]:
    kinds = ("jobs", "pods", "services", "configmaps", "networkpolicies")
    return [name for kind in kinds for name in world.server.names(kind) if "digits-1" in name]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_has_lost_its_record_ends(world: World, restarted: bool) -> None:
    """If a run is deleted without its tasks, the tasks end, also if no operator ran at that
    time.
    """
    up(world, ps=1)
    if restarted:
        world.rest()
    orphan(world)
    if restarted:
        world.operate()
    wait_until(lambda: left(world) == [])


def test_the_next_run_of_the_name_begins_when_they_have_ended(world: World) -> None:
    """A run does not wait forever for orphaned tasks of an earlier run with its name."""
    up(world)
    world.rest()
    orphan(world)
    world.launch("digits-1")
    world.operate()
    world.phase("digits-1", "Starting")
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])
    uid = world.run("digits-1")["metadata"]["uid"]
    wait_until(lambda: world.job("digits-1-worker")["metadata"]["labels"][UID] == uid)


def test_what_is_not_an_orphan_of_ours_is_left_alone(world: World) -> None:
    """A Job that lacks the label with the uid of a run or the label with the task type, or that
    another object owns, is never stopped as an orphan.
    """
    up(world)
    mine = copy.deepcopy(world.job("digits-1-worker"))
    for key in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences"):
        mine["metadata"].pop(key)
    no_uid, no_type, owned = (copy.deepcopy(mine) for _each in range(3))
    for number, job in enumerate((no_uid, no_type, owned), 7):
        job["metadata"]["labels"] |= {"tfcluster.dev/name": f"x-{number}", UID: f"gone-{number}"}
    del no_uid["metadata"]["labels"][UID]
    del no_type["metadata"]["labels"][TASK_TYPE]
    owned["metadata"]["ownerReferences"] = [{"uid": "somebody's"}]
    for number, job in enumerate((no_uid, no_type, owned), 7):
        world.server.put(f"{JOBS}/x-{number}-worker", job)
    orphan(world)
    wait_until(lambda: left(world) == [])
    assert world.server.names("jobs") == ["x-7-worker", "x-8-worker", "x-9-worker"]
    assert not [c for c in world.server.calls if c[0] == "DELETE" and "/x-" in c[1]]
