"""Reports of outages: users are told that the operator does not answer, but only while this is
true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.kube_server import KubeServer, Refusal
from support.kubernetes_backend import NAMESPACE, backend, publish
from support.polling import wait_until

from tfcluster_magic import ClusterManager, cli
from tfcluster_magic.backends.kubernetes import namespace_access
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.errors import WaitTimeout
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.controller import leader_election
from tfcluster_magic.kube.controller.leader_election import Leader
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.runs.manager import Until, wait_for_run
from tfcluster_magic.runs.watcher import RunWatcher
from tfcluster_magic.spec import Mode, Spec, Status, resource_form

LEASE = path("leases", leader_election.OPERATOR_NAMESPACE, leader_election.OPERATOR_LEASE)
RUNS = path("tfclusters", NAMESPACE)
SAID = "The operator of TFCluster has not answered since"


class Clock:
    """A clock that the test moves; `skew` is the error of the machine's time of day."""

    strftime, localtime = staticmethod(time.strftime), staticmethod(time.localtime)

    def __init__(self, skew: float = 0.0) -> None:
        self.now, self.skew = 1_900_000_000.0, skew

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.skew


@pytest.fixture
def server() -> Iterator[KubeServer]:
    running = KubeServer()
    publish(running)
    yield running
    running.close()


@pytest.fixture
def laptop(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KubernetesBackend:
    """Return a user's backend that asks the server at every call."""
    monkeypatch.setattr(namespace_access, "CHECK_INTERVAL", 0.0)
    return backend(server, tmp_path, monkeypatch)


def renew(server: KubeServer, where: str = LEASE, ago: float = 0.0) -> None:
    """Renew the Lease as an operator does, so that its last renewal was `ago` seconds ago."""
    server.clock = lambda: time.time() - ago
    server.put(where, {"spec": {"holderIdentity": "somebody"}})
    server.clock = time.time


def launched(server: KubeServer, name: str = "digits-1", **status: Any) -> None:
    """Create the object of a run, with these fields in its status."""
    cluster, _dash, run = name.rpartition("-")
    body = custom_resource.write(cluster, int(run), Spec(mode=Mode.IN_GRAPH))
    told = resource_form.write(Status, status)
    server.put(f"{RUNS}/{name}", {**body, **({"status": told} if told else {})})


STEPS = st.lists(
    st.tuples(st.floats(0.0, 9.0), st.sampled_from(["taken", "refused", "lost"])), max_size=12
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, operators=st.floats(-1e6, 1e6), servers=st.floats(-1e6, 1e6))
def test_an_operator_that_acts_is_never_said_to_be_away(
    server: KubeServer, steps: list[tuple[float, str]], operators: float, servers: float
) -> None:
    """While an operator holds the Lease and so may act, it is never reported as away, whatever the
    clocks show. An operator that has not renewed its Lease for more than 16 seconds is reported as
    away.
    """
    server.objects.pop(LEASE, None)
    clock, renewed = Clock(operators), 0.0
    server.clock = lambda: clock.now + servers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_election, "time", clock)
        api = server.api()
        lease = Leader(api, leader_election.OPERATOR_NAMESPACE, "operator", lambda: None)
        for passes, becomes in [(0.0, "taken"), *steps]:
            clock.now += passes
            server.refuses = lambda method, _path, b=becomes: (  # type: ignore[misc]
                Refusal(503, "ServiceUnavailable") if b == "refused" and method == "PUT" else None
            )
            server.loses = lambda method, _path, b=becomes: b == "lost" and method == "PUT"  # type: ignore[misc]
            with suppress(Exception):  # ignored, as in the thread of an operator
                lease._try()
            if becomes != "refused":
                renewed = clock.now
            server.loses = lambda _method, _path: False
            silent = leader_election.silence_of_holder(
                api, f"{leader_election.OPERATOR_NAMESPACE}/{leader_election.OPERATOR_LEASE}"
            )
            assert silent is not None
            if lease.leads():
                assert silent == 0.0
            if clock.now - renewed > leader_election.SILENT_AFTER + 1:
                assert abs(silent - (clock.now - renewed)) <= 1.0
        api.close()


@pytest.mark.parametrize("skew", [-86400.0, 0.0, 86400.0])
def test_the_clock_of_the_client_counts_for_nothing(
    server: KubeServer, laptop: KubernetesBackend, monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    """A client whose clock is a day wrong reports only real outages, with times of its own
    clock.
    """
    clock = Clock(skew)
    monkeypatch.setattr(namespace_access, "time", clock)
    renew(server)
    assert laptop.outage() == ""
    renew(server, ago=3600.0)
    at = time.strftime("%H:%M:", time.localtime(clock.time() - 3600.0))
    before = time.strftime("%H:%M:", time.localtime(clock.time() - 3601.0))
    assert laptop.outage().startswith((f"{SAID} {at}", f"{SAID} {before}"))


def test_nobody_is_blamed_whose_lease_cannot_be_read(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """If the Lease is missing or may not be read, or if the API server's responses have no time, no
    outage is reported. A healthy operator is not blamed for a run that ends slowly.
    """
    launched(server)
    run = laptop.get("digits-1")
    assert laptop.outage() == ""
    renew(server, ago=60.0)
    server.refuses = lambda _method, where: Refusal(403, "Forbidden") if where == LEASE else None
    assert "operator" not in laptop.why_it_lingers(run)
    del server.objects[LEASE]["metadata"]["managedFields"]
    server.refuses = lambda _method, _path: None
    laptop.__dict__.pop("_operator")
    assert laptop.outage() == ""
    renew(server)
    assert "operator" not in laptop.why_it_lingers(run)
    assert "kubectl get pods" in laptop.why_it_lingers(run)


def test_an_operator_whose_lease_is_gone_does_not_answer(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """If there is no Lease at the published place, the operator is reported as away until the Lease
    exists. A Lease that may not be read is no outage.
    """
    options = server.objects[path("configmaps", NAMESPACE, labels.OPTIONS)]
    options["data"][leader_election.LEASE_KEY] = f"labs/{leader_election.OPERATOR_LEASE}"
    where = path("leases", "labs", leader_election.OPERATOR_LEASE)
    said = laptop.outage()
    assert said.startswith(SAID)
    assert "kubectl -n labs get deployment" in said
    assert laptop.outage() == said
    renew(server, where)
    assert laptop.outage() == ""
    del server.objects[where]
    assert laptop.outage().startswith(SAID)
    server.refuses = lambda _method, asked: Refusal(403, "Forbidden") if asked == where else None
    assert laptop.outage() == ""


def test_an_outage_costs_one_question(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many readers together request the Lease once in four seconds, or once a minute if they may
    not read it. Without a waiting run, a user never requests the Lease.
    """
    asking = backend(server, tmp_path, monkeypatch)
    clock = Clock()
    monkeypatch.setattr(namespace_access, "time", clock)
    renew(server)

    def asked() -> int:
        return sum(where == LEASE for _method, where in server.calls)

    launched(server, phase="Stopped", releasedAt=1.0)
    manager = ClusterManager(backend=asking)
    assert manager.outage(manager.list()) == ""
    assert asked() == 0
    launched(server)
    for _look in range(20):
        manager.outage(manager.list())
    assert asked() == 1
    clock.now += namespace_access.CHECK_INTERVAL
    manager.outage(manager.list())
    assert asked() == 2
    server.refuses = lambda _method, where: Refusal(403, "Forbidden") if where == LEASE else None
    for _look in range(10):
        clock.now += namespace_access.CHECK_INTERVAL
        manager.outage(manager.list())
    assert asked() == 3


def test_the_operator_says_where_its_lease_is(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """The Lease is read at the place that the operator published, if the published text names a
    valid place.
    """
    options = server.objects[path("configmaps", NAMESPACE, labels.OPTIONS)]
    server.put(path("leases", "labs", leader_election.OPERATOR_LEASE), {"spec": {}})
    options["data"][leader_election.LEASE_KEY] = f"labs/{leader_election.OPERATOR_LEASE}"
    renew(server, path("leases", "labs", leader_election.OPERATOR_LEASE), ago=60.0)
    assert "kubectl -n labs get deployment" in laptop.outage()
    for wrong in ("labs", "/x", "a/b/c"):
        options["data"][leader_election.LEASE_KEY] = wrong
        laptop.__dict__.pop("_operator")
        renew(server)
        assert laptop.outage() == ""


def test_a_namespace_that_is_served_later_is_looked_at_then(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """Until an operator has served a namespace, the operator's state is unknown. The client asks
    for the place of the Lease again and again until the operator has published it.
    """
    where = path("configmaps", NAMESPACE, labels.OPTIONS)
    options = server.objects.pop(where)
    renew(server, path("leases", "labs", leader_election.OPERATOR_LEASE), ago=60.0)
    assert laptop.outage() == ""
    options["data"][leader_election.LEASE_KEY] = f"labs/{leader_election.OPERATOR_LEASE}"
    server.put(where, options)
    assert "kubectl -n labs" in laptop.outage()


@pytest.mark.parametrize("verb", ["list", "status digits-1", "launch --mode in-graph"])
def test_what_a_person_looks_at_says_that_nobody_answers(
    server: KubeServer, laptop: KubernetesBackend, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """`list`, `status` and `launch` report since when the operator has not answered and what to do;
    while it answers, they report nothing.
    """
    launched(server)
    renew(server, ago=60.0)
    words = verb.split()
    cli.run(words, Terminal(ClusterManager(backend=laptop)))
    said = capsys.readouterr()
    assert (said.out + said.err).count(SAID) == 1
    assert "`kubectl -n tfcluster-system get deployment,pod,lease`" in said.out + said.err
    renew(server)
    cli.run(words, Terminal(ClusterManager(backend=laptop)))
    said = capsys.readouterr()
    assert "operator" not in said.out + said.err


def test_who_waits_hears_of_it_and_of_its_end(
    server: KubeServer, laptop: KubernetesBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who waits for a run gets a message when the operator stops answering, when it answers
    again, and when the wait times out.
    """
    launched(server)
    renew(server)
    terminal = Terminal(ClusterManager(backend=laptop))
    said: list[str] = []
    terminal.note = said.append  # type: ignore[method-assign]
    steps = iter([lambda: renew(server, ago=60.0), lambda: renew(server), None])

    def changed(cluster: Any) -> None:
        terminal.changed(cluster)
        step = next(steps)
        if step is not None:
            step()
        else:
            launched(server, phase="Stopped", reason="StopRequested", releasedAt=1.0)

    wait_for_run(laptop, "digits-1", Until.RELEASED, None, changed)
    assert len(said) == 3
    assert said[0] == "digits-1 Queued: Checking whether there is room."
    assert said[1].startswith(SAID)
    assert said[2] == "The operator of TFCluster answers again."
    launched(server, "digits-2")
    renew(server, ago=60.0)
    with pytest.raises(WaitTimeout, match=SAID):
        wait_for_run(laptop, "digits-2", Until.READY, 0.0, None)


def test_pages_are_told_beside_each_run_that_waits(
    server: KubeServer, laptop: KubernetesBackend
) -> None:
    """Sidebar and panel show an outage at every active run, and hide it once the operator answers
    again.
    """
    launched(server)
    over = {"phase": "Stopped", "reason": "StopRequested", "releasedAt": time.time()}
    launched(server, "digits-2", **over)
    renew(server, ago=60.0)
    watcher = RunWatcher(ClusterManager(backend=laptop))
    heard: list[tuple[str, Any]] = []
    end = watcher.listen(lambda name, known: heard.append((name, known)))
    try:
        assert watcher.complete(90)
        wait_until(lambda: watcher.known()["digits-1"].notes)
        assert watcher.known()["digits-1"].notes[0].startswith(SAID)
        assert watcher.known()["digits-2"].notes == ()
        launched(server, "digits-3")
        wait_until(lambda: "digits-3" in watcher.known())
        assert watcher.known()["digits-3"].notes[0].startswith(SAID)
        renew(server)
        wait_until(lambda: not any(known.notes for known in watcher.known().values()))
        assert heard[-1][1].notes == ()
    finally:
        end()
