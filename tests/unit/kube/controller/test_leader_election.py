"""Leader election: two operators with one Lease, and an API server that goes away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.kube_server import KubeServer, Refusal
from support.polling import wait_until

from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.controller import leader_election
from tfcluster_magic.kube.controller.leader_election import OPERATOR_LEASE, Leader

WHERE = path("leases", "a", OPERATOR_LEASE)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    """A server with a Lease that is read often, and short timeouts."""
    monkeypatch.setattr(leader_election, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(leader_election, "ANSWER_SECONDS", 0.5)
    running = KubeServer()
    yield running
    running.close()


class Candidate:
    """An operator that wants to lead; it records the time at which it gave up."""

    def __init__(self, server: KubeServer, identity: str) -> None:
        self.lost = threading.Event()
        self.looks = 0
        api = server.api()
        get = api.get

        def look(where: str, **words: Any) -> Any:
            self.looks += 1
            return get(where, **words)

        api.get = look  # type: ignore[method-assign]
        self.leader = Leader(api, "a", identity, self.lost.set)
        self.thread = threading.Thread(target=self.leader.acquire, daemon=True)
        self.thread.start()

    def looked(self) -> None:
        """Wait until the candidate has read the Lease once more, from beginning to end."""
        enough = self.looks + 2
        wait_until(lambda: self.looks >= enough)


class Clock:
    """The clock for Leases, which only the test moves, however slow the machine is."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def goes_on(self, seconds: int, *watched_by: Candidate) -> None:
        """Move the clock by `seconds`; every three seconds, all candidates in `watched_by` read the
        Lease.
        """
        for _ in range(0, seconds, 3):
            self.now += 3.0
            for each in watched_by:
                each.looked()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all candidates."""
    made = Clock()
    monkeypatch.setattr(leader_election, "time", made)
    return made


def away(_method: str, _path: str) -> Refusal:
    return Refusal(503, "ServiceUnavailable", "away")


def test_one_leads_and_the_next_waits(server: KubeServer, clock: Clock) -> None:
    """The second candidate leads once the first candidate has ended cleanly, and never before."""
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    second = Candidate(server, "two")
    clock.goes_on(leader_election.LEASE_SECONDS + 1, first, second)
    assert first.leader.leads()
    assert not second.leader.leads()
    first.leader.release()
    assert not first.leader.leads()
    wait_until(second.leader.leads)
    assert not first.lost.is_set()
    second.leader.release()


def test_who_cannot_renew_gives_up_before_the_lease_is_free(
    server: KubeServer, clock: Clock
) -> None:
    """Without an API server, a leader stops within the deadline, before another candidate may
    lead.
    """
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    server.refuses = away
    first.looked()
    clock.goes_on(leader_election.LEASE_SECONDS - 1)
    assert not first.leader.leads()
    wait_until(first.lost.is_set)
    server.refuses = lambda _method, _path: None
    second = Candidate(server, "two")
    second.looked()
    clock.goes_on(leader_election.LEASE_SECONDS + 1, second)
    wait_until(second.leader.leads)
    assert not first.leader.leads()
    second.leader.release()


def test_a_silent_api_server_ends_leading_as_well(server: KubeServer, clock: Clock) -> None:
    """If the renewal of the Lease hangs, the leader stops leading before the Lease expires."""
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    hanging, goes = threading.Event(), threading.Event()

    def hang(_method: str, _path: str) -> None:
        hanging.set()
        goes.wait(240)

    server.refuses = hang
    wait_until(hanging.is_set)
    clock.goes_on(leader_election.LEASE_SECONDS - 1)
    assert not first.leader.leads()
    goes.set()
    first.leader.release()


def test_a_restarted_container_takes_up_its_lease(server: KubeServer, clock: Clock) -> None:
    """A restarted process with the same identity leads at once."""
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    again = Candidate(server, "one")
    wait_until(again.leader.leads)  # the test's clock has not moved, so the Lease has not expired
    first.leader.release()
    again.leader.release()


def test_a_lease_that_somebody_took_is_not_taken_back(server: KubeServer) -> None:
    """A leader that finds another holder in its Lease stops leading, and does not take the Lease
    back.
    """
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    with server.changed:
        lease = server.objects[WHERE]
        lease["spec"]["holderIdentity"] = "two"
        server.put(WHERE, lease)
    wait_until(first.lost.is_set)
    assert not first.leader.leads()
    assert server.objects[WHERE]["spec"]["holderIdentity"] == "two"


def test_only_one_of_many_begins(server: KubeServer) -> None:
    """If candidates start together, one of them leads."""
    many = [Candidate(server, str(number)) for number in range(6)]

    def count() -> int:
        return sum(each.leader.leads() for each in many)

    wait_until(lambda: count() == 1)
    for each in many:
        each.looked()
    assert count() == 1
    for each in many:
        each.leader.release()


def test_a_renewal_that_is_never_answered_ends_the_process_in_time(
    server: KubeServer, clock: Clock
) -> None:
    """If the write of a renewal hangs, the process ends; it does not only stop leading."""
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    hanging, goes = threading.Event(), threading.Event()

    def hang(method: str, _path: str) -> None:
        if method == "PUT":
            hanging.set()
            goes.wait(240)

    server.refuses = hang
    wait_until(hanging.is_set)
    clock.goes_on(leader_election.LEASE_SECONDS - 1)
    wait_until(first.lost.is_set)
    goes.set()


def test_a_lease_that_nobody_can_read_is_not_renewed(server: KubeServer, clock: Clock) -> None:
    """An invalid Lease causes no error in a thread: a leader gives up, and a candidate tries
    again.
    """
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    lease = {"spec": {"holderIdentity": "one", "leaseTransitions": "many"}}
    server.put(WHERE, lease)
    assert first.leader.alive
    clock.goes_on(leader_election.LEASE_SECONDS - 1)
    wait_until(first.lost.is_set)
    second = Candidate(server, "one")
    second.looked()
    assert second.thread.is_alive()
    server.put(WHERE, {"spec": {"holderIdentity": "one"}})
    wait_until(second.leader.leads)
    second.leader.release()


def test_it_knows_how_long_nobody_led(server: KubeServer) -> None:
    """A new leader knows for how long nobody had renewed the Lease when it became the leader."""
    first = Candidate(server, "one")
    wait_until(first.leader.leads)
    assert first.leader.unwatched == 0
    first.leader.release()
    lease = server.objects[WHERE]
    old = datetime.now(timezone.utc) - timedelta(hours=2)
    lease["spec"]["renewTime"] = old.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    server.put(WHERE, lease)
    second = Candidate(server, "two")
    wait_until(second.leader.leads)
    renewed = server.objects[WHERE]["spec"]["renewTime"]
    wait_until(lambda: server.objects[WHERE]["spec"]["renewTime"] != renewed)
    assert second.leader.unwatched == pytest.approx(7200, abs=60)
    second.leader.release()
