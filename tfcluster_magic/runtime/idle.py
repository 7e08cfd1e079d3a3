"""Idle detection of an In-Graph server, and the port by which a pod shows to Kubernetes that its
server is in use.

A server is idle while no client from outside the cluster is connected and the server uses hardly
any CPU. A connection belongs to the cluster if its other end is a socket of a process on this
machine with this run's TFCLUSTER_RUN_UID, or has the address of another task's host. The owners of
sockets are found by one search of /proc, and only if there are new connections. Standard library
only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import select
import socket
import time

import process
import sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from process import EventLoop

# The fraction of a core above which a server counts as busy.
BUSY = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


class IdleWatch:
    """An observer of one server process, which learns from samples whether the server is in use.
    `since` is the start of the current idle period; None while the server is in use.
    """

    def __init__(self, pid: int, port: int, mark: str, hosts: list[str]) -> None:
        self._pid = pid
        self._port = port
        self._mark = f"TFCLUSTER_RUN_UID={mark}".encode()
        self._hosts = hosts
        self._is_ours: dict[str, bool] = {}
        self._open: set[str] = set()
        self._cpu = self._used()
        self._at = time.monotonic()
        self._quiet_from = None if self._outsiders() else time.time()
        self.since: float | None = None

    def sample(self) -> bool:
        """Take a sample; return whether `since` has changed."""
        before, used, at = self.since, self._used(), time.monotonic()
        busy = used - self._cpu > BUSY * max(at - self._at, 0.001)
        self._cpu, self._at = used, at
        if self._outsiders():
            self._quiet_from = self.since = None
        elif busy:
            self._quiet_from, self.since = time.time(), None
        else:
            self._quiet_from = self.since = self._quiet_from or time.time()
        return self.since != before

    def _used(self) -> float:
        stat = process.read_stat(self._pid)
        return (int(stat[11]) + int(stat[12])) / TICKS if stat else 0.0

    def _outsiders(self) -> bool:
        # Reading the kernel's table of all connections takes 10 ms, listing the server's own
        # sockets 0.2 ms. While these sockets are unchanged, the connections are unchanged, too.
        opened = sockets.inodes(self._pid)
        if opened and opened == self._open:
            return not all(self._is_ours.values())
        self._open = opened
        every = [s for s in sockets.touching(self._port) if s.state == sockets.ESTABLISHED]
        # Inode 0: the connection is not accepted yet. Once it is accepted, the server has a new
        # socket, and the table is read again.
        here = {s.inode: s for s in every if s.local == self._port and s.inode != "0"}
        self._is_ours = {inode: ours for inode, ours in self._is_ours.items() if inode in here}
        new = [s for inode, s in here.items() if inode not in self._is_ours]
        if new:
            # The other end of a connection on this machine is a row with the ports swapped.
            far = {s.local: s.inode for s in every if s.remote_port == self._port}
            owned = self._run_inodes()
            for each in new:
                if each.remote_port in far:
                    self._is_ours[each.inode] = far[each.remote_port] in owned
                else:
                    self._is_ours[each.inode] = each.remote in self._peers()
        return not all(self._is_ours.values())

    def _run_inodes(self) -> set[str]:
        found: set[str] = set()
        for name in os.listdir("/proc"):
            if name.isdigit() and self._mark and self._mark in _environment(name):
                found |= sockets.inodes(int(name))
        return found

    def _peers(self) -> set[bytes]:
        found = set()
        for host in self._hosts:
            try:
                answers = socket.getaddrinfo(host, None)
            except OSError:
                # A task whose host has no address yet cannot be connected to this server.
                continue
            found |= {socket.inet_pton(answer[0], str(answer[4][0])) for answer in answers}
        return found


def _environment(pid: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        # The process has ended, or belongs to another user, so it does not belong to this run.
        return []


# ---- the beacon ----
# The beacon is a port that is open while the server is in use. A readiness probe connects to it
# periodically. The port stays open for longer than the probe's interval after the last use, so the
# probe notices even a short use.


# Seconds for which the port stays open after the last use; the probe connects every 10 seconds.
BEACON_LINGER = 15.0


class Beacon:
    """A listener on `port` that accepts and closes every connection; `show` opens the port."""

    def __init__(self, loop: EventLoop, port: int) -> None:
        self._loop = loop
        self._port = port
        self._listener: socket.socket | None = None

    def show(self, used: bool) -> None:
        """Open the port if `used`, else close it. Raises OSError if the port is taken."""
        if used and self._listener is None:
            self._listener = _listen(self._port)
            self._loop.on_fd(self._listener.fileno(), select.POLLIN, self._take)
        elif not used and self._listener is not None:
            self._loop.off_fd(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _take(self) -> None:
        # A connection that is never accepted stays in the queue, and a full queue looks like a
        # closed port.
        assert self._listener is not None
        try:
            self._listener.accept()[0].close()
        except OSError:
            # the peer has closed the connection
            pass


def _listen(port: int) -> socket.socket:
    """Listen on every address: a pod may have v4, v6 or both."""
    for family, host in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((host, port))
            listener.listen(16)
            listener.setblocking(False)
        except OSError:
            listener.close()
            if family == socket.AF_INET:
                raise
        else:
            return listener
    raise OSError("no family of addresses")
