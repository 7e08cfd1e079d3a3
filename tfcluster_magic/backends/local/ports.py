"""Loopback ports that belong to one run from before its tasks start until it is over.

Promises that no other launch gets one of them: each is bound (never listened on) by the supervisor
for as long as it lives, with SO_REUSEPORT, so that the task, told so by TF_GRPC_REUSE_PORT=true,
can bind it as well. The kernel never hands out a port that is bound, shared or not, when it is
asked for any (port 0).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from ...spec import TaskType

LOOPBACK = "127.0.0.1"
ENVIRONMENT = {"TF_GRPC_REUSE_PORT": "true"}


def reserve(
    counts: Mapping[TaskType, int],
) -> tuple[dict[str, tuple[str, ...]], list[socket.socket]]:
    """One address for each task, by task type, and the sockets that keep them. Raises OSError."""
    addresses: dict[str, tuple[str, ...]] = {}
    held: list[socket.socket] = []
    try:
        for task_type, count in counts.items():
            mine = [_bind() for _ in range(count)]
            held += mine
            addresses[task_type.value] = tuple(f"{LOOPBACK}:{s.getsockname()[1]}" for s in mine)
    except OSError:
        for bound in held:
            bound.close()
        raise
    return addresses, held


def _bind() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((LOOPBACK, 0))
    return bound
