"""When the check that NetworkPolicies are enforced is made again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kube_server import KubeServer, Refusal
from operated import until

from tfcluster_magic.operator import enforcement
from tfcluster_magic.operator.enforcement import RECORD, Enforcement


@pytest.fixture
def server() -> Iterator[KubeServer]:
    running = KubeServer()
    yield running
    running.close()


def test_a_check_that_failed_is_soon_made_again(
    server: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that could not be made is tried again in a minute, not in the six hours for which a
    good answer holds, and the answer that is known goes on being believed.
    """
    monkeypatch.setattr(enforcement, "AFTER_A_FAILURE", 0.05)
    record = {"data": {"enforced": "true"}}
    server.put(f"/api/v1/namespaces/a/configmaps/{RECORD}", record)
    no = Refusal(403, "Forbidden", "exceeded quota")
    server.refuses = lambda method, _path: no if method in ("POST", "DELETE") else None
    check = Enforcement(server.api(), "a", "image", lambda: True)
    check.start()
    until(lambda: sum(method == "DELETE" for method, _path in server.calls) >= 3)
    assert check.enforced is True
    assert check.problem == "exceeded quota"
    check.stop()
