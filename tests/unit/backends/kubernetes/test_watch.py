"""Watches of runs on Kubernetes while the API server is down or refuses requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from support.watch_server import WatchServer

from tfcluster_magic.backends.kubernetes import backend
from tfcluster_magic.errors import BackendUnavailable
from tfcluster_magic.spec import Metadata, Spec, TFCluster

REFUSAL = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "starting"}


@pytest.fixture
def server() -> Iterator[WatchServer]:
    running = WatchServer()
    yield running
    running.close()


def read(found: dict[str, dict[str, str]]) -> TFCluster:
    """Return a run with the name of the object `found`."""
    name = found["metadata"]["name"]
    head = Metadata(name=name, cluster=name[:-2], run=1, uid=name, created_at=time.time())
    return TFCluster(metadata=head, spec=Spec())


def names(server: WatchServer, patience: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Watch all runs. Yield the name of each run that the watch reports, and "" whenever it reports
    that nothing is new.
    """
    monkeypatch.setattr(backend, "REPORT_OUTAGE_AFTER", patience)
    for told in backend.watch_all_runs(server.api(), "alice", read):
        yield told.metadata.name if isinstance(told, TFCluster) else ""


def test_a_quiet_watch_that_is_cut_is_no_silence(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage is counted from the time when the server stopped answering, not from the last event
    of the watch.
    """
    clock = SimpleNamespace(now=1000.0, time=time.time)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(backend, "time", clock)
    server.put("one-1")
    told = names(server, 3.0, monkeypatch)
    assert next(told) == "one-1"
    assert next(told) == ""
    clock.now += 3.5
    assert next(told) == ""
    asked = len(server.asked)
    server.refusal = (503, REFUSAL)
    server.cut()
    while len(server.asked) == asked:
        assert next(told) == ""
    assert next(told) == ""
    server.refusal = None
    server.put("two-1")
    assert next(name for name in told if name) == "two-1"


def test_a_server_that_stays_away_is_told(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch of all runs reports a server that does not answer."""
    server.put("one-1")
    told = names(server, 0.5, monkeypatch)
    assert next(told) == "one-1"
    server.refusal = (503, REFUSAL)
    server.cut()
    with pytest.raises(BackendUnavailable):
        list(told)
