"""The servers of two nodes under chaos: killed, down for some steps, started again.

At most one is down at a time. A server that ended because another was down is started again, as a
node's supervisor does. This module tracks which servers are down.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from kubenode import control_plane, gluster
from kubenode.cluster import Cluster
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from kubenode.processes import children, members, namespace_of
from support.kube.operator_modes import Process

SHAKEN, AFTERMATH = 15.0, 60.0
"""Seconds after a server's return: how long the test makes no checks, and how long clients may
still fail.
"""
LOST = gluster.BRICKS[-1]
KEPT = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("containerd", "kubelet", "coredns"),
)
SECOND = "node-2"
KEPT_THERE = ("containerd", "kubelet", "kube-proxy")


class Servers:
    """The servers of a cluster's two nodes, and the operators on this machine."""

    def __init__(
        self, cluster: Cluster, operators: list[Process], note: Callable[[str], None]
    ) -> None:
        self._cluster, self._operators, self._note = cluster, operators, note
        self.node = cluster.first
        self._kept = {each: (cluster.first, each) for each in KEPT}
        self._kept |= {f"{each}-2": (cluster.second, each) for each in KEPT_THERE}
        self._away, self._until = "", 0
        self._back = 0.0

    @property
    def shaken(self) -> bool:
        """Whether a server is down, or was down a moment ago."""
        return self._stumbles(SHAKEN)

    @property
    def stumbling(self) -> bool:
        """Whether a client may notice that a server is down."""
        return self._stumbles(AFTERMATH)

    def _stumbles(self, seconds: float) -> bool:
        return bool(self._away) or time.monotonic() < self._back + seconds

    def lose(self, server: str, until: int, which: int) -> None:
        """Kill a server, which stays down until the step `until`; `which` selects one of the
        operators.
        """
        self.restore()
        self._away, self._until = server, until
        if server == "operator":
            self._operators[which % len(self._operators)].stop(signal.SIGKILL)
        elif server == "brick":
            os.kill(self._brick(), signal.SIGKILL)
        elif server == SECOND:
            self._cluster.lose(SECOND)
        else:
            node, name = self._kept[server]
            node.stop(name, "KILL")

    def tend(self, step: int) -> None:
        """Start servers that were down for long enough, and those that ended meanwhile."""
        if self._away and step >= self._until:
            self.restore()
        self.keep()
        for operator in self._operators:
            if self._away != "operator" and not operator.alive:
                self._note(f"the operator of {operator.namespace} had ended")
                self._back = time.monotonic()
                operator.begin()

    def keep(self) -> None:
        """Restart servers that ended by themselves, which can happen long after another server was
        down. For example, a scheduler ends when it learns that a pod was already bound.
        """
        for server, (node, name) in self._kept.items():
            lost = self._away == SECOND and node.name == SECOND
            if server != self._away and not lost and not node.alive(name):
                self._note(f"{server} had ended")
                self._back = time.monotonic()
                self._start(server)

    def restore(self) -> None:
        """Start the servers that are down."""
        server, self._away = self._away, ""
        if not server:
            return
        self._back = time.monotonic()
        if server == "brick":
            gluster.volume(self.node, "start", "force")
        elif server == SECOND:
            self._regain()
        elif server != "operator":
            self._start(server)
        else:
            for operator in self._operators:
                if not operator.alive:
                    operator.begin()

    def _regain(self) -> None:
        try:
            self._cluster.regain()
        # a server that it needs was not up again yet: the next step retries
        except NodeError as error:
            self._note(f"{SECOND} does not start: {error}")
            self._away = SECOND
        self._back = time.monotonic()

    def settle(self) -> None:
        """Start every server, and wait until all work."""
        self.restore()

        def up() -> bool:
            self.tend(self._until)
            there = all(node.alive(name) for node, name in self._kept.values())
            return there and all(o.is_ready() for o in self._operators)

        gluster.revive_bricks(self.node)
        wait_until(up, "every server is up", seconds=240)
        control_plane.ready(self.node)
        wait_until(
            lambda: not any(gluster.heal_info(self.node).values()),
            "every replica has everything",
            seconds=240,
            every=1.0,
        )

    def _brick(self) -> int:
        """Return the pid of the GlusterFS server that chaos kills. Its replica is always the same
        one (`LOST`), so that the other two replicas stay complete.
        """
        name = str(gluster.brick(LOST))
        for pid in members(namespace_of(self.node.pid)):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if words[0].endswith("glusterfsd") and name in words:
                    return pid
        raise NodeError("no server of that replica runs")

    def _start(self, server: str) -> None:
        node, name = self._kept[server]
        with suppress(NodeError):  # the server ended because another is down: the next step retries
            node.start_again(name)

    # -- processes of pods -------------------------------------------------------------------------

    def shims(self) -> Iterator[tuple[int, str]]:
        """Return the shim processes of pods, and the ids of their sandboxes."""
        inside = {namespace_of(node.pid) for node in self._cluster.nodes()}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().decode().split("\0")
                is_shim = "containerd-shim" in words[0] and "-id" in words
                if is_shim and namespace_of(int(entry)) in inside:
                    yield int(entry), words[words.index("-id") + 1]

    def shim_of(self, pid: int) -> int:
        """Return the shim of this first process of a container; 0 if there is none."""
        found = (shim for shim, _id in self.shims() if pid in children(shim))
        return next(found, 0)

    def sandboxes(self, namespace: str) -> set[str]:
        """Return the ids of containerd's sandboxes for pods of a namespace."""
        asked = f'labels."io.kubernetes.pod.namespace"=={namespace}'
        words = ["ctr", "--namespace=k8s.io", "containers", "ls", "-q", asked]
        said = (node.run(words, timeout=60) for node in self._cluster.nodes())
        return {each for words in said for each in words.split()}

    def folder(self, path: Path) -> Path:
        """Return the path by which processes of this machine reach a folder of the node."""
        return Path(f"/proc/{self.node.pid}/root", re.sub("^/", "", str(path)))
