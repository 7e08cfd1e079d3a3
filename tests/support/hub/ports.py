"""Ports for servers of tests that are started again at the same address."""

from __future__ import annotations

import random
import socket

RANGE = range(10_000, 32_000)
"""Below those that Linux gives to outgoing connections (net.ipv4.ip_local_port_range): any of these
may have the port of a server that is away for a moment.
"""


def free(count: int) -> list[int]:
    """So many ports of this machine that nobody listens on."""
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
