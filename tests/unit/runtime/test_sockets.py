"""Which sockets listen, as a task sees it."""

from __future__ import annotations

import os
import socket

import pytest

from tfcluster_magic.runtime import sockets


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_listening_socket_is_found_by_its_port(
    family: socket.AddressFamily, address: str
) -> None:
    """The kernel's answer by netlink is the one of its tables, and names the owner's socket."""
    with socket.socket(family) as server:
        server.bind((address, 0))
        port = server.getsockname()[1]
        assert sockets.listeners(port) == set()

        server.listen()

        found = sockets.listeners(port)
        assert len(found) == 1
        assert found == {row.inode for row in sockets.touching(port)}
        assert found <= sockets.inodes(os.getpid())
