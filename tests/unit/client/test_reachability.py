"""The address at which servers in pods reach their notebook."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tfcluster_magic.client import connection
from tfcluster_magic.errors import ClientUnsupported
from tfcluster_magic.kube.api.labels import CLIENT_PORTS

TASKS = {"worker-0": "127.0.0.1:2222"}
FIRST, LAST = CLIENT_PORTS


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Clear the address that this process has chosen for its client, and yield a stack that closes
    the ports that a test occupies.
    """
    monkeypatch.setattr(connection, "_client_addresses", {})
    with ExitStack() as stack:
        yield stack


def test_a_process_has_one_address(taken: ExitStack) -> None:
    """The client uses the local address of its route to the servers, and a port that tasks may
    reach. It keeps this address and port when it reconnects.
    """
    taken.enter_context(socket.create_server(("127.0.0.1", FIRST)))
    address = connection.client_address(TASKS)
    host, _colon, port = address.rpartition(":")
    assert host == "127.0.0.1"
    assert FIRST < int(port) <= LAST
    with socket.create_server((host, int(port))):
        assert connection.client_address(TASKS) == address


def test_no_port_is_left(taken: ExitStack) -> None:
    """When every port is taken, the error says what to do."""
    for port in range(FIRST, LAST + 1):
        taken.enter_context(socket.create_server(("127.0.0.1", port)))
    with pytest.raises(ClientUnsupported, match=r"20 notebooks of this pod .* restart a kernel"):
        connection.client_address(TASKS)
