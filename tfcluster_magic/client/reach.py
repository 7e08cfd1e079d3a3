"""Where servers in pods reach the notebook that drives them with a strategy.

TensorFlow calls such a client `localhost` in what it tells the servers: true on one machine, and a
checkpoint that parameter servers write needs names from the client. Promises one address for a
process, on a port that the NetworkPolicy of In-Graph runs lets tasks reach; opens none itself.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from ..errors import ClientUnsupported
from ..i18n import _
from ..kube.api.labels import CLIENT_PORTS

_own: dict[str, str] = {}


def own_address(tasks: Mapping[str, str]) -> str:
    """`host:port` of this process for the servers at `tasks`; the same for every cluster.

    Raises:
        ClientUnsupported: every port is in use.
    """
    host = _host_towards(next(iter(tasks.values())))
    if host not in _own:
        _own[host] = f"{host}:{_free_port(host)}"
    return _own[host]


def _host_towards(address: str) -> str:
    """Our address on the way there; nothing is sent."""
    host, _colon, port = address.rpartition(":")
    family, kind, _protocol, _name, where = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        found: str = probe.getsockname()[0]
    return f"[{found}]" if family == socket.AF_INET6 else found


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    first, last = CLIENT_PORTS
    for port in range(first, last + 1):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host.strip("[]"), port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise ClientUnsupported(
        _(
            "{count} notebooks of this pod drive clusters by strategies already: restart a kernel "
            "that needs none any more"
        ).format(count=last - first + 1)
    )
