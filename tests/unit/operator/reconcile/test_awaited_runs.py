"""An operator with runs that wait for other runs, on a server that stores objects."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.operator_world import JOBS, RUNS, World, spec, up
from support.polling import wait_until

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import AwaitedOutcome, Dependency


def launch(
    world: World, name: str, *after: str, until: AwaitedOutcome = AwaitedOutcome.SUCCESS
) -> None:
    """POST a run that waits for the runs `after`."""
    awaited = tuple(Dependency(run=run, until=until) for run in after)
    cluster, _dash, number = name.rpartition("-")
    made = custom_resource.write(cluster, int(number), replace(spec(), after=awaited))
    world.server.put(f"{RUNS}/{name}", made)


def waits(world: World, name: str, words: str) -> dict[str, Any]:
    return world.wait(name, lambda s: s.get("phase") == "Queued" and words in s["message"])


def test_a_run_waits_without_objects_and_starts_at_the_success_of_another(world: World) -> None:
    """Until the awaited run has succeeded, the operator creates nothing for the waiting run and
    sends no requests about it.
    """
    launch(world, "train-1", "digits-1")
    waits(world, "train-1", "there is no run digits-1 yet")
    up(world)
    waits(world, "train-1", "Waiting for digits-1 to succeed.")
    about = [call for call in world.server.calls if "train-1" in call[1]]
    assert {method for method, _path in about} == {"PATCH"}, "it only writes what it waits for"
    assert len(about) <= 3
    world.say("digits-1", message="it trains")
    world.wait("digits-1", lambda s: "running" in s["message"])
    assert [call for call in world.server.calls if "train-1" in call[1]] == about
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    world.phase("train-1", "Starting")
    wait_until(lambda: f"{JOBS}/train-1-worker" in world.server.objects)
    assert [each["run"] for each in world.status("train-1")["awaited"]] == ["digits-1"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_deleted_run_ends_the_wait(world: World, restarted: bool) -> None:
    """A run fails if the awaited run is deleted, also while no operator runs, even if the awaited
    run is created again.
    """
    up(world)
    launch(world, "train-1", "digits-1", until=AwaitedOutcome.END)
    waits(world, "train-1", "Waiting for digits-1 to end.")
    if restarted:
        world.rest()
    world.server.remove(f"{RUNS}/digits-1")
    if restarted:
        world.launch("digits-1")
        world.operate()
    status = world.phase("train-1", "Failed")
    assert status["reason"] == "DependencyFailed"
    assert "digits-1 was deleted" in status["message"]
    assert f"{JOBS}/train-1-worker" not in world.server.objects


def test_a_done_wait_stays_done_when_the_operator_restarts(world: World) -> None:
    """The record keeps the success of one awaited run while the run still waits for another."""
    up(world)
    up(world, "other-1")
    launch(world, "train-1", "digits-1", "other-1")
    waits(world, "train-1", "digits-1 to succeed and other-1 to succeed")
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    waits(world, "train-1", "Waiting for other-1 to succeed.")
    world.rest()
    world.server.remove(f"{RUNS}/digits-1")
    world.operate()
    world.pod("other-1-worker", "succeeded", 0, "other-1-worker-0-first")
    world.phase("train-1", "Starting")


def test_runs_that_wait_for_each_other_end(world: World) -> None:
    """Three runs that wait for each other all end with a reason, and so does a run that waits for
    itself.
    """
    for name, other in (("a-1", "b-1"), ("b-1", "c-1"), ("c-1", "a-1"), ("self-1", "self-1")):
        launch(world, name, other)
    told = [world.phase(name, "Failed") for name in ("a-1", "b-1", "c-1", "self-1")]
    assert {status["reason"] for status in told} == {"DependencyFailed"}
    assert any("wait for each other" in status["message"] for status in told[:3])
    assert "self-1, self-1" in told[3]["message"]


def test_a_chain_ends_at_once_when_its_first_run_is_stopped(world: World) -> None:
    """In a long chain of runs, each of which waits for the success of the run before it, one run is
    stopped. This run is Stopped, and all runs after it fail.
    """
    up(world)
    names = [f"step-{number}" for number in range(1, 13)]
    for before, name in zip(["digits-1", *names], names, strict=False):
        launch(world, name, before)
    waits(world, names[-1], f"Waiting for {names[-2]} to succeed.")
    stop = {"reason": "", "by": "ida"}
    run = world.run(names[5])
    world.server.put(f"{RUNS}/{names[5]}", {**run, "spec": {**run["spec"], "stop": stop}})
    world.phase(names[5], "Stopped")
    for name in names[6:]:
        assert world.phase(name, "Failed")["reason"] == "DependencyFailed"
    assert world.status(names[4])["phase"] == "Queued"
    wait_until(lambda: world.controller is not None and len(world.controller.context.awaited) == 5)
