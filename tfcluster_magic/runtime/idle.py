"""Whether an In-Graph server idles: nobody outside of the cluster is connected and it uses no CPU to speak of.

A connection belongs to the cluster when its other end is (a) at the address of another task's host, or (b) on
this machine, a socket of a process that carries this run's TFCLUSTER_RUN_UID. Who owns a socket is found
by one look through /proc, and only when a connection is seen for the first time. Standard library only.
"""

from __future__ import annotations

import os
import time

import process
import sockets

BUSY = 0.02
TICKS = os.sysconf("SC_CLK_TCK")


class IdleWatch:
    """Samples one server process; `since` is the start of the present idle period, or None."""

    def __init__(self, pid: int, port: int, uid: str, hosts: list) -> None:
        self._pid = pid
        self._port = port
        self._uid = ("TFCLUSTER_RUN_UID=" + uid).encode() if uid else b""
        self._hosts = hosts
        self._peers = None  # type: ignore[var-annotated]
        self._known = {}  # type: dict
        self.since = None  # type: ignore[var-annotated]
        self._quiet_from = self._now() if not self._outside() else None
        self._cpu = self._used()
        self._at = time.monotonic()

    @staticmethod
    def _now() -> float:
        return time.time()

    def sample(self) -> bool:
        """Look once; whether `since` has changed."""
        used, at, before = self._used(), time.monotonic(), self.since
        busy = (used - self._cpu) > BUSY * max(at - self._at, 0.001)
        self._cpu, self._at = used, at
        if self._outside():
            self._quiet_from = self.since = None
        elif busy:
            self._quiet_from, self.since = self._now(), None
        else:
            self.since = self._quiet_from = self._quiet_from or self._now()
        return self.since != before

    def _used(self) -> float:
        stat = process.read_stat(self._pid)
        return (int(stat[11]) + int(stat[12])) / TICKS if stat else 0.0

    def _outside(self) -> bool:
        everything = sockets.entries()
        own = [e for e in everything if e[0] == self._port and e[3] == sockets.ESTABLISHED]
        keys = {(e[1], e[2], e[4]) for e in own}
        self._known = {key: value for key, value in self._known.items() if key in keys}
        unknown = keys - set(self._known)
        if unknown:
            self._classify(unknown, everything)
        return not all(self._known.values())

    def _classify(self, unknown: set, everything: list) -> None:
        # The other end of a connection on this machine: its local port is our remote port and the reverse.
        far = {e[0]: e[4] for e in everything if e[2] == self._port and e[3] == sockets.ESTABLISHED}
        ours = self._run_inodes() if any(key[1] in far for key in unknown) else set()
        for key in unknown:
            if key[1] in far:
                self._known[key] = far[key[1]] in ours
            else:
                self._known[key] = sockets.address(key[0]) in self._peer_addresses()

    def _run_inodes(self) -> set:
        found = set()  # type: set
        for name in os.listdir("/proc"):
            if not name.isdigit() or not self._uid:
                continue
            try:
                with open("/proc/%s/environ" % name, "rb") as file:
                    member = self._uid in file.read().split(b"\0")
            except OSError:
                continue
            if member:
                found |= sockets.inodes(int(name))
        return found

    def _peer_addresses(self) -> set:
        import socket

        found = set()
        for host in self._hosts:
            try:
                for info in socket.getaddrinfo(host, None):
                    found.add(info[4][0])
            except OSError:
                continue
        return found
