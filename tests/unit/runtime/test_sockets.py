"""Listening sockets as a task sees them."""

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
    """The runtime asks the kernel by netlink which socket listens on a port. The answer is the
    socket of the listening process, and agrees with the tables in /proc.
    """
    with socket.socket(family) as server:
        server.bind((address, 0))
        port = server.getsockname()[1]
        assert sockets.listeners(port) == set()

        server.listen()

        found = sockets.listeners(port)
        assert len(found) == 1
        assert found == {row.inode for row in sockets.touching(port)}
        assert found <= sockets.inodes(os.getpid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket to another account")
def test_who_may_read_a_connection_is_known_by_account() -> None:
    """The accounts that may read a connection are known: the account of the listening socket while
    it listens, and the account of the accepted socket while it is open.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.fchown(server.fileno(), 65534, -1)
        with socket.create_connection(server.getsockname()) as client:
            assert sockets.owners(client) == {65534}
            accepted, _address = server.accept()
            os.fchown(accepted.fileno(), 1, -1)
            os.fchown(server.fileno(), 0, -1)
            with accepted:
                assert sockets.owners(client) == {0, 1}
                server.close()
                assert sockets.owners(client) == set()


def test_the_kernel_counts_the_bytes_of_a_connection() -> None:
    """The received and sent bytes of each socket are known, for IPv4 and IPv6 and for both ends."""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind((address, 0))
            server.listen()
            client.connect(server.getsockname())
            peer, _address = server.accept()
            with peer:
                client.sendall(b"x" * 5000)
                left = 5000
                while left:
                    left -= len(peer.recv(left))
                inodes = [str(os.fstat(each.fileno()).st_ino) for each in (client, peer)]
                found = sockets.traffic({*inodes})
                assert found.keys() == {*inodes}
                assert found[inodes[1]][0] == 5000
                assert abs(found[inodes[0]][1] - 5000) <= 1
