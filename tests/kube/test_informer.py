"""The informer on a real API server, through a relay that tests cut."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl
from support.kube.relay import Relay

from tfcluster_magic.kube.api import access, client
from tfcluster_magic.kube.api.client import Api, path
from tfcluster_magic.kube.api.informer import CacheUpdate, Informer


@pytest.fixture
def connection(kube: Kubectl, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A client of the API server with the credentials of the tests' kubectl."""
    monkeypatch.setenv("KUBECONFIG", kube.kubeconfig)
    return access.connect()[0]


@pytest.fixture
def relay(connection: Api) -> Iterator[Relay]:
    """A relay between the client `connection` and the API server."""
    server = urlsplit(connection.server)
    assert server.hostname and server.port
    running = Relay(server.hostname, server.port)
    connection.server = f"https://{server.hostname}:{running.port}"
    yield running
    running.end()


class Told:
    """An informer of a namespace's ConfigMaps, and the updates that it reported."""

    def __init__(self, connection: Api, namespace: str) -> None:
        self.words: list[str] = []
        where = path("configmaps", namespace)
        self.informer = Informer(connection, where, changed=self._note)
        self.informer.start()
        assert self.informer.synced.wait(30)

    def _note(self, update: CacheUpdate) -> None:
        kind = "gone" if update.new is None else "new" if update.old is None else "changed"
        self.words.append(f"{kind} {update.object['metadata']['name']}")

    def wait(self, word: str, seconds: float = 90) -> None:
        wait_until(
            lambda: word in self.words, f"the informer reports {word}", seconds=seconds, every=0.02
        )


@pytest.fixture
def told(connection: Api, relay: Relay, kube: Kubectl) -> Iterator[Told]:
    kube("create", "configmap", "one")
    kube("create", "configmap", "two")
    following = Told(connection, kube.namespace)
    yield following
    following.informer.stop()


def test_a_cut_watch_misses_nothing(relay: Relay, told: Told, kube: Kubectl) -> None:
    """The informer reports deletions and creations that happened while the API server was
    unreachable.
    """
    told.wait("new two")
    relay.closed.set()
    relay.cut()
    kube("delete", "configmap", "one")
    kube("create", "configmap", "three")
    wait_until(lambda: told.informer.problem, "the informer has noticed", seconds=90)
    relay.closed.clear()
    told.wait("gone one")
    told.wait("new three")
    assert told.words.count("new two") == 1


def test_a_forgotten_version_is_listed_again(relay: Relay, told: Told, kube: Kubectl) -> None:
    """After 410 Gone the informer lists all objects again, compares them with those that it knew,
    and reports the missing ones as deleted.
    """
    told.wait("new two")
    relay.closed.set()
    relay.cut()
    kube("delete", "configmap", "two")
    wait_until(lambda: told.informer.problem, "the informer has noticed", seconds=90)
    told.informer._version = "1"  # a version that is older than the server's history
    relay.closed.clear()
    told.wait("gone two")
    kube("create", "configmap", "three")
    told.wait("new three")
    assert told.words.count("new one") == 1


def test_a_watch_that_goes_silent_heals(
    connection: Api, relay: Relay, kube: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that silently loses its packets is restarted and misses nothing."""
    monkeypatch.setattr(client, "WATCH_SECONDS", 2)
    monkeypatch.setattr(client, "SILENCE", 1)
    kube("create", "configmap", "one")
    told = Told(connection, kube.namespace)
    told.wait("new one")
    relay.silent.set()
    kube("delete", "configmap", "one")
    wait_until(lambda: told.informer.problem, "the informer has noticed", seconds=90)
    relay.silent.clear()
    told.wait("gone one")
    told.informer.stop()
