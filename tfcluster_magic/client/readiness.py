"""Readiness checks: an error names the tasks that do not accept connections.

TensorFlow waits forever for a missing peer and cannot be interrupted while it waits, so every
client object first runs this check. A check opens a connection to each port and closes it again.
This module imports only the standard library and this package.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..errors import WaitTimeout
from ..i18n import _, ngettext
from ..spec.names import task_name

_PAUSE = 0.05  # a remote port cannot signal that it opened, so we poll
# A port without an answer counts as closed after 2 s, because a single lost packet is sent again by
# TCP after 1 s.
_CONNECT_TIMEOUT = 2.0
_AT_ONCE = 32


@dataclass(frozen=True)
class ClosedPort:
    """A task that does not accept connections, and the reason."""

    task: str
    address: str
    why: str

    def __str__(self) -> str:
        return f"{self.task} ({self.address}: {self.why})"


def addresses_by_task(addresses: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return addresses by task name: `{"ps": ["a:1"]}` gives `{"ps-0": "a:1"}`."""
    return {
        task_name(kind, i): host
        for kind, hosts in addresses.items()
        for i, host in enumerate(hosts)
    }


def closed_ports(tasks: Mapping[str, str]) -> list[ClosedPort]:
    """Return the entries of `tasks` (name to `host:port`) that do not accept connections. Takes up
    to 2 s for every 32 tasks.
    """
    with ThreadPoolExecutor(min(_AT_ONCE, len(tasks) or 1)) as pool:
        return [closed for closed in pool.map(_try_port, tasks.keys(), tasks.values()) if closed]


def wait_until_open(tasks: Mapping[str, str], *, name: str, timeout: float) -> None:
    """Wait until every task accepts connections. If the user interrupts the wait, it ends within
    two seconds.

    Args:
        tasks: `host:port` by task name.
        name: the name of the run, for the error message.
        timeout: seconds.

    Raises:
        WaitTimeout: some tasks still do not accept connections; the message names them.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    waiting = dict(tasks)
    while closed := closed_ports(waiting):
        if time.monotonic() >= deadline:
            raise WaitTimeout(_message(closed, len(tasks), name, timeout))
        waiting = {port.task: port.address for port in closed}
        pause.wait(_PAUSE)


def enumerate_closed(closed: Sequence[ClosedPort]) -> str:
    """Return the first five tasks as text, and the number of others."""
    names = ", ".join(str(port) for port in closed[:5])
    if len(closed) <= 5:
        return names
    return _("{names} and {count} more").format(names=names, count=len(closed) - 5)


def _try_port(task: str, address: str) -> ClosedPort | None:
    host, _colon, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT).close()
    except socket.gaierror:
        return ClosedPort(task, address, _("its name does not resolve"))
    except TimeoutError:
        return ClosedPort(task, address, _("no answer"))
    except OSError as error:
        return ClosedPort(task, address, (error.strerror or str(error)).lower())
    return None


def _message(closed: Sequence[ClosedPort], total: int, name: str, timeout: float) -> str:
    return ngettext(
        "cannot connect to {name}: {count} of {total} tasks does not accept connections "
        "after {timeout:g} s: {tasks}. `tfcluster status {name}` says what "
        "the run waits for, `tfcluster logs {name} {task}` may say why; connect again "
        "once all of them run.",
        "cannot connect to {name}: {count} of {total} tasks do not accept connections "
        "after {timeout:g} s: {tasks}. `tfcluster status {name}` says what "
        "the run waits for, `tfcluster logs {name} {task}` may say why; connect again "
        "once all of them run.",
        len(closed),
    ).format(
        name=name,
        count=len(closed),
        total=total,
        timeout=timeout,
        tasks=enumerate_closed(closed),
        task=closed[0].task,
    )
