"""The operator's writes to pods whose status lacks information."""

from __future__ import annotations

import copy

import pytest
from support.kube_server import Refusal
from support.operator_world import PODS, World, up
from support.polling import wait_until

from tfcluster_magic.kube.status.exit_status import DELETED_BY_SOMEBODY

FIRST, SECOND = (f"{PODS}/digits-1-worker-{index}-first" for index in range(2))


@pytest.fixture
def world(world: World) -> World:
    """Return a world with a run of two workers and a ps, whose workers were deleted while no
    operator ran.
    """
    up(world, workers=2, ps=1)
    world.rest()
    for index in range(2):
        world.pod("digits-1-worker", "deleting", index, f"digits-1-worker-{index}-first")
    return world


def told(world: World, pod: str) -> list[str]:
    conditions = world.server.objects[pod]["status"].get("conditions") or []
    return [each.get("reason", "") for each in conditions if each["type"] == "DisruptionTarget"]


def test_a_pod_without_conditions_is_told_of(world: World) -> None:
    """If a deleted pod has no conditions yet, the operator can still add the condition
    DisruptionTarget to its status.
    """
    pod = copy.deepcopy(world.server.objects[FIRST])
    del pod["status"]["conditions"]
    world.server.put(FIRST, pod)
    world.operate()
    wait_until(lambda: told(world, FIRST) == [DELETED_BY_SOMEBODY])


def test_a_pod_that_cannot_be_told_of_is_in_nobodys_way(world: World) -> None:
    """A pod whose status the API refuses to change does not block the other pods."""
    invalid = Refusal(422, "Invalid", "no")
    world.server.refuses = lambda method, path: (
        invalid if method == "PATCH" and path == f"{FIRST}/status" else None
    )
    world.operate()
    wait_until(lambda: told(world, SECOND) == [DELETED_BY_SOMEBODY])
    assert told(world, FIRST) == []
