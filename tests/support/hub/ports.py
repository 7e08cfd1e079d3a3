"""Ports for servers of tests that restart at the same address."""

from __future__ import annotations

import random
import socket

RANGE = range(10_000, 32_000)
"""Port numbers below Linux's range for outgoing connections (net.ipv4.ip_local_port_range), because
such a connection could take the port of a server that is down.
"""


def free(count: int) -> list[int]:
    """Return this number of free ports of this machine."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
