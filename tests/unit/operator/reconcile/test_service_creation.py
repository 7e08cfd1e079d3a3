"""The time at which a run's Service is created, which is after the tasks have got their
addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support.kube_server import KubeServer, Object, Refusal
from support.operator_world import JOBS, RUNS, SERVICE, World, spec, up
from support.polling import wait_until

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator.reconcile.object_creation import (
    ADDRESS_PAUSE,
    ADDRESS_WAIT,
    ObjectCreator,
    ServiceCreation,
)
from tfcluster_magic.spec import TFCluster


@dataclass
class Run:
    """A run of three workers on a server, with a clock that the test moves."""

    server: KubeServer
    now: float = 100.0
    cluster: TFCluster = field(init=False)

    def __post_init__(self) -> None:
        found = self.server.put(
            f"{RUNS}/digits-1", custom_resource.write("digits", 1, spec(workers=3))
        )
        self.cluster = custom_resource.read(found)
        maker = ObjectCreator(self.server.api(), lambda _namespace: Policy())
        self.addressing = ServiceCreation(maker, lambda: self.now)

    def turn(self, addresses: int) -> float | None:
        """Let the operator decide about the run's Service while `addresses` of the three pods have
        an address.
        """
        told: list[Object] = [{"podIP": "10.0.0.1"}] * addresses + [{}] * (3 - addresses)
        pods = [{"status": each} for each in told]
        return self.addressing.update(self.cluster, self.cluster.status, pods)

    @property
    def named(self) -> bool:
        """Return whether the Service exists."""
        return SERVICE in self.server.objects


@pytest.fixture
def run() -> Iterator[Run]:
    """A run without a Service."""
    server = KubeServer()
    yield Run(server)
    server.close()


def test_names_are_given_once_every_task_has_an_address(run: Run) -> None:
    """The Service is created as soon as every task has an address, and is not created a second
    time.
    """
    assert run.turn(0) is None
    assert run.turn(1) == ADDRESS_PAUSE
    assert not run.named
    assert run.turn(3) is None
    assert run.named
    calls = len(run.server.calls)
    assert run.turn(3) is None
    assert len(run.server.calls) == calls


def test_a_task_without_room_keeps_no_name_from_the_others(run: Run) -> None:
    """A task that gets no node delays the Service only a little: the Service is created shortly
    after the last of the other tasks has got its address.
    """
    run.turn(1)
    run.now += ADDRESS_PAUSE / 2
    assert run.turn(2) == ADDRESS_PAUSE
    run.now += ADDRESS_PAUSE
    run.turn(2)
    assert run.named


def test_tasks_that_come_slowly_are_not_waited_for_any_longer(run: Run) -> None:
    """Slow tasks delay the Service only up to a limit, even if a task has just got its address."""
    run.turn(1)
    run.now += ADDRESS_WAIT
    run.turn(2)
    assert run.named


def test_it_goes_with_the_wish_to_stop(world: World) -> None:
    """When a stop is requested, the Service is deleted before the tasks end; the tasks keep their
    connections.
    """
    up(world)
    wait_until(lambda: SERVICE in world.server.objects)
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    wait_until(lambda: SERVICE not in world.server.objects)
    assert world.status("digits-1")["phase"] == "Stopping"


def test_an_operator_that_died_before_it_leaves_it_to_the_next(world: World) -> None:
    """A run without its Service gets it from the next operator, even if its other objects exist."""
    up(world)
    wait_until(lambda: SERVICE in world.server.objects)
    world.rest()
    world.server.remove(SERVICE)
    world.operate()
    wait_until(lambda: SERVICE in world.server.objects)


def test_a_full_quota_of_services_hinders_nobody_who_has_one(world: World) -> None:
    """A full quota does not affect an existing Service, although the API server checks quotas
    before it looks for an existing object.
    """
    full = "exceeded quota: objects, requested: services=1, used: services=5, limited: services=5"
    up(world)
    wait_until(lambda: SERVICE in world.server.objects)
    world.rest()
    collection = SERVICE.rpartition("/")[0]
    refusal = Refusal(403, "Forbidden", full)
    world.server.refuses = lambda *asked: refusal if asked == ("POST", collection) else None
    world.server.calls.clear()
    world.operate()
    wait_until(lambda: ("POST", collection) in world.server.calls)
    world.pod("digits-1-worker", "starting", 0, "digits-1-worker-0-first")
    status = world.wait("digits-1", lambda s: s["counts"]["worker"].get("starting") == 1)
    assert "quota" not in status["message"]
    assert world.server.calls.count(("POST", collection)) == 1


def test_a_task_that_is_refused_keeps_no_name_from_the_others(world: World) -> None:
    """If a quota forbids one of the Jobs, the tasks of the other Jobs still get the Service."""
    no = Refusal(403, "Forbidden", "exceeded quota: jobs, used: count/jobs.batch=1")
    bodies: list[str] = []

    def refuses(method: str, where: str) -> Refusal | None:
        bodies.append(where)
        return no if method == "POST" and where == JOBS and bodies.count(JOBS) > 1 else None

    world.server.refuses = refuses
    world.launch("digits-1", workers=1, chief=1)
    wait_until(lambda: len(world.server.names("jobs")) == 1)
    (job,) = world.server.names("jobs")
    world.pod(job, "running", 0)
    world.wait("digits-1", lambda s: "exceeded quota" in s.get("message", ""))
    assert SERVICE not in world.server.objects
    wait_until(lambda: SERVICE in world.server.objects)


def test_a_service_of_somebody_else_is_told_and_left_alone(world: World) -> None:
    """If, after the tasks were created, somebody else creates a Service with the run's name, that
    Service is reported and not changed.
    """
    world.launch("digits-1")
    wait_until(lambda: world.server.names("jobs") == ["digits-1-worker"])
    world.server.put(SERVICE, {"metadata": {"labels": {}}, "spec": {"mine": True}})
    world.pod("digits-1-worker", "running", 0)
    world.wait("digits-1", lambda s: "Service digits-1 of an earlier run" in s.get("message", ""))
    world.server.answer("PATCH", f"{RUNS}/digits-1", {"spec": {"stop": {"reason": "lunch"}}})
    wait_until(lambda: world.job("digits-1-worker")["spec"].get("suspend"))
    assert world.server.objects[SERVICE]["spec"] == {"mine": True}
