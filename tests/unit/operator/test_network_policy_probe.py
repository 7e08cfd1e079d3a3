"""The times and places at which the operator checks that NetworkPolicies are enforced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.kube_server import Answer, KubeServer, Refusal
from support.polling import wait_until

from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.operator import network_policy_probe
from tfcluster_magic.operator.network_policy_probe import RECORD, EnforcementCheck
from tfcluster_magic.operator.reconcile.controller import Controller


class Empty(KubeServer):
    """A server on which the deletion of a collection succeeds and deletes nothing."""

    def answer(self, method: str, path: str, body: Any, selector: str = "") -> Answer:
        if method == "DELETE":
            return 200, {}
        return super().answer(method, path, body, selector)


@pytest.fixture
def server() -> Iterator[KubeServer]:
    running = KubeServer()
    yield running
    running.close()


def test_a_check_that_failed_is_soon_made_again(
    server: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that could not run is repeated after a minute, not after the six hours for which a
    result is valid. Meanwhile, the last result stays valid.
    """
    monkeypatch.setattr(network_policy_probe, "AFTER_A_FAILURE", 0.05)
    record = {"data": {"enforced": "true"}}
    server.put(f"/api/v1/namespaces/a/configmaps/{RECORD}", record)
    no = Refusal(403, "Forbidden", "exceeded quota")
    server.refuses = lambda method, _path: no if method in ("POST", "DELETE") else None
    check = EnforcementCheck(server.api(), "a", "image", lambda: True)
    check.start()
    wait_until(lambda: sum(method == "DELETE" for method, _path in server.calls) >= 3)
    assert check.enforced is True
    assert check.problem == "exceeded quota"
    check.stop()


def test_a_check_whose_pod_went_with_its_node_told_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If the pods of a check disappear, this is no error of the operator: it logs this and tries
    again.
    """
    lost = "The container could not be located when the pod was terminated"
    server = Empty()
    check = EnforcementCheck(server.api(), "a", "image", lambda: True)
    check.start()
    for count, state in ((1, {"ready": True}), (2, {"state": {"terminated": {"message": lost}}})):
        wait_until(lambda count=count: len(server.names("pods")) == count)
        for where in [path for path in server.objects if "/pods/" in path]:
            status = {"podIP": "10.0.0.1", "containerStatuses": [{"state": {}, **state}]}
            server.put(where, {**server.objects[where], "status": status})
    wait_until(lambda: check.problem)
    check.stop()
    wait_until(lambda: not check.alive)
    server.close()
    assert check.problem == f"the pods of the check could not talk to each other: {lost}"
    (told,) = [each for each in caplog.records if lost in each.getMessage()]
    assert (told.levelname, told.exc_info) == ("WARNING", None)


def test_it_is_checked_where_tasks_run() -> None:
    """The check's pods run on the nodes of the policy, as tasks do. Otherwise, if all nodes repel
    other pods, no pod of a check would run, and launches would wait forever for its result.
    """
    server, pool = Empty(), {"pool": "work"}
    allowed = {"key": "pool", "operator": "Equal", "value": "work", "effect": "NoSchedule"}
    policy = Policy(node_selector=pool, tolerations=(allowed,))
    check = Controller(
        server.api(), "", "a", lambda: True, policy, lambda: 0.0
    ).scheduler.enforcement
    check.start()
    wait_until(lambda: server.names("pods"))
    (path,) = (path for path in server.objects if "/pods/" in path)
    assert server.objects[path]["spec"]["nodeSelector"] == pool
    assert server.objects[path]["spec"]["tolerations"] == [allowed]
    check.stop()
    wait_until(lambda: not check.alive)
    server.close()
