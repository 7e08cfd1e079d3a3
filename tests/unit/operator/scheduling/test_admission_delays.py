"""Decisions on queued runs while a node is missing for a moment, and while the API is slow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.admission_cluster import NODES, Place
from support.kube_server import Refusal
from support.polling import wait_until

from tfcluster_magic.i18n import language
from tfcluster_magic.operator.scheduling import admission, snapshot
from tfcluster_magic.operator.scheduling.admission import Admitted, Refused, Waiting
from tfcluster_magic.spec import Pods, SecretUse


@pytest.fixture
def there() -> Iterator[Place]:
    """A cluster with a node of four cores, two users, and a run of bob that needs the whole
    node.
    """
    made = Place()
    made.node("node-1", 4)
    for name in ("alice", "bob"):
        made.tenant(name)
    made.run("bob", "digits-1", 1, 4)
    made.begin()
    yield made
    made.end()


def restart_node(there: Place, cores: int) -> None:
    there.server.remove(f"{NODES}/node-1")
    there.node("node-1", cores)
    there.seen()


def test_a_queued_run_outlasts_a_node_that_starts_again(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting run stays Queued with its reason while its resources are missing for a moment; it
    is refused if they stay missing.
    """
    there.say("bob", "digits-1", phase="Queued", message="Waiting for 1 CPU more on the nodes.")
    restart_node(there, 2)
    told = there.decide("bob", "digits-1")
    assert isinstance(told, Waiting)
    assert "no node has that much; the largest has 2 CPU" in str(told.sentence)
    with language("zh_CN"):
        assert "最大的节点有 2 CPU" in str(told.sentence)
    restart_node(there, 4)
    assert there.decide("bob", "digits-1") == Admitted()
    there.snapshotter.admitted.clear()
    restart_node(there, 2)
    assert isinstance(there.decide("bob", "digits-1"), Waiting)
    monkeypatch.setattr(admission, "PATIENCE", 0.0)
    assert isinstance(there.decide("bob", "digits-1"), Refused)


def test_a_new_run_is_refused_at_once(there: Place) -> None:
    """A new run that can never fit is refused at once, also if the operator has to read the nodes
    first.
    """
    there.run("alice", "large-1", 1, 5)
    there.seen()
    assert isinstance(there.decide("alice", "large-1"), Refused)


def test_a_new_run_is_refused_at_once_beside_others(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run that can never start is refused at once, even if the operator decides on another
    run meanwhile, with data that was read before the new run existed.
    """
    asked = ("GET", "/api/v1/namespaces/alice/secrets")
    decided = threading.Event()

    def slow(_method: str, path: str) -> Refusal | None:
        if path == asked[1]:
            there.server.changed.wait_for(decided.is_set, timeout=240)
        return None

    monkeypatch.setattr(snapshot, "MAX_AGE", 3600.0)
    there.look()
    there.run("alice", "named-1", 1, 1, pods=Pods(secrets=(SecretUse(name="s3"),)))
    wait_until(
        lambda: any(run["metadata"]["name"] == "named-1" for run in there.caches.runs.every())
    )
    there.server.refuses = slow
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(there.decide, "alice", "named-1")
        wait_until(lambda: asked in there.server.calls)
        there.decide("bob", "digits-1")
        with there.server.changed:
            decided.set()
            there.server.changed.notify_all()
        assert isinstance(late.result(timeout=90), Refused)


def test_a_question_that_takes_long_holds_up_nobody_else(there: Place) -> None:
    """While the API is slow to return the quotas or secrets of one namespace, runs of other
    namespaces start.
    """
    hanging = threading.Event()

    def slow(_method: str, path: str) -> Refusal | None:
        if "/alice/resourcequotas" in path or "/alice/secrets" in path:
            there.server.changed.wait_for(hanging.is_set, timeout=240)
        return None

    there.run("alice", "named-1", 1, 1, pods=Pods(secrets=(SecretUse(name="s3"),)))
    there.seen()
    there.run("bob", "small-2", 1, 1)
    there.seen()
    there.server.refuses = slow
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(there.decide, "alice", "named-1")
        wait_until(lambda: ("GET", "/api/v1/namespaces/alice/secrets") in there.server.calls)
        assert there.decide("bob", "digits-1") == Admitted()
        assert not late.done()
        with there.server.changed:
            hanging.set()
            there.server.changed.notify_all()
        assert isinstance(late.result(timeout=90), Refused)
