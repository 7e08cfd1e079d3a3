"""The operator's answers to the kubelet's probes about its threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.kube_server import KubeServer
from support.operator_world import RUNS, spec
from support.polling import wait_until

from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator.reconcile.controller import Controller

DIES = "ignore::pytest.PytestUnhandledThreadExceptionWarning"


class Operator:
    """An operator that does not lead; if a thread asks whether it leads, that thread dies."""

    def __init__(self) -> None:
        self.server, self.breaks = KubeServer(), False
        self.controller = Controller(self.server.api(), "", "a", self.leads, Policy(), lambda: 0.0)

    def leads(self) -> bool:
        if self.breaks:
            raise RuntimeError("this thread dies")
        return False

    def end(self) -> None:
        self.controller.end()
        self.server.close()


@pytest.fixture
def operator() -> Iterator[Operator]:
    made = Operator()
    made.controller.follow()
    wait_until(lambda: made.controller.caches.synced)
    yield made
    made.end()


@pytest.mark.filterwarnings(DIES)
def test_an_operator_whose_turns_died_is_not_alive(operator: Operator) -> None:
    """If a thread that handles turns dies, the operator is unhealthy."""
    assert operator.controller.alive
    operator.controller.scheduler.begin = lambda: None  # type: ignore[method-assign]
    operator.controller.begin()
    assert operator.controller.alive
    operator.breaks = True
    operator.server.put(f"{RUNS}/digits-1", custom_resource.write("digits", 1, spec()))
    wait_until(lambda: not operator.controller.alive)


@pytest.mark.filterwarnings(DIES)
def test_an_operator_that_publishes_no_more_is_not_alive(operator: Operator) -> None:
    """A dead thread for published options or the NetworkPolicy check makes the operator unhealthy,
    too.
    """
    operator.controller.begin()
    assert operator.controller.alive
    operator.breaks = True
    wait_until(lambda: not operator.controller.alive)
