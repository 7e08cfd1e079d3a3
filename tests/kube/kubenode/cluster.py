"""A whole cluster: what `kube-up` starts, in which order, and what `kube-down` takes away.

Starting is safe to repeat: what runs is left alone, what a crash left is removed first. Taking away
is checked: no process, mount, loop device or cgroup may be left.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import build, cgroups, control_plane, kubelet, network, paths, sandbox
from .commands import locked, run, say
from .door import open_door
from .errors import NodeError
from .node import Node
from .pki import Pki


class Cluster:
    """The cluster called `name` on this machine."""

    def __init__(self, name: str = "") -> None:
        """Refer to a cluster; `up` starts it."""
        self.name = name or paths.default_name()
        self.state = paths.state(self.name)
        self.kubeconfig = self.state / "kubeconfig"
        self.first = Node(self.name, 1)
        self.second = Node(self.name, 2)

    def nodes(self) -> list[Node]:
        """The nodes that run."""
        return [node for node in (self.first, self.second) if node.file.exists() and node.servers()]

    def up(self, port: int = 0) -> None:
        """Start the cluster unless it runs.

        Args:
            port: where the API server is reached on 127.0.0.1; 0 takes a free one.

        Raises:
            NodeError: the machine cannot do it, a build failed, or a server did not start.
        """
        sandbox.check_machine()
        with locked(self.state.with_suffix(".lock"), waiting_for=f"the cluster {self.name}"):
            if self.kubeconfig.exists() and self.first.servers():
                say(f"The cluster {self.name} runs already: KUBECONFIG={self.kubeconfig}")
                return
            build.build()
            self._remove()
            began = time.monotonic()
            try:
                self._begin(port, began)
            except BaseException:
                self._remove(keep_logs=True)
                raise
            say(f"all runs after {time.monotonic() - began:.1f} s: KUBECONFIG={self.kubeconfig}")

    def _begin(self, port: int, began: float) -> None:
        self.state.mkdir(parents=True, mode=0o700)
        node, pki = self.first, Pki(self.first)
        node.begin()
        network.make_bridge(node)
        pki.begin()
        pki.kubelet(node)
        side_by_side(lambda: control_plane.start(node))
        self._open(pki, port)
        kubelet.start(node, "registry:5000/pause:1")
        self.kubectl("wait", "--for=condition=Ready", f"node/{node.name}", "--timeout=60s")
        say(f"{node.name} is Ready after {time.monotonic() - began:.1f} s")

    def _open(self, pki: Pki, port: int) -> None:
        server = f"https://127.0.0.1:{open_door(self.first, 'api', 6443, port)}"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(pki.kubeconfig(server, "admin"), indent=1))

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run kubectl as the cluster's admin.

        Raises:
            NodeError: it failed; the message has its words.
        """
        return run(
            [build.binary("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments], stdin=stdin
        )

    def down(self) -> None:
        """End the cluster and remove all of it; the cache stays.

        Raises:
            NodeError: something is left; the message names it.
        """
        with locked(self.state.with_suffix(".lock"), waiting_for=f"the cluster {self.name}"):
            self._remove()
            left = self.leftovers()
        if left:
            raise NodeError("Left behind, although everything was ended:\n" + "\n".join(left))

    def _remove(self, *, keep_logs: bool = False) -> None:
        for node in (self.second, self.first):
            node.end()
        cgroups.remove(f"tfcluster-kube-{self.name}")
        logs = self.state / "logs"
        if keep_logs and logs.exists():
            kept = self.state.with_name(f"{self.name}-failed-logs")
            shutil.rmtree(kept, ignore_errors=True)
            logs.rename(kept)
            say(f"the logs of the servers are kept in {kept}")
        shutil.rmtree(self.state, ignore_errors=True)

    def leftovers(self) -> list[str]:
        """What of this cluster is still there, one line for each: processes, mounts, loop devices,
        cgroups, files.
        """
        mark = f"{self.state}/"
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            if mark in words:
                found.append(f"process {entry.name}: {words[:120]}")
        found += [
            f"mount: {line}"
            for line in Path("/proc/mounts").read_text().splitlines()
            if mark in line
        ]
        for device in Path("/sys/block").glob("loop*/loop/backing_file"):
            if mark in device.read_text():
                found.append(f"loop device: {device.parent.parent.name}")
        cgroup = f"tfcluster-kube-{self.name}"
        found += [
            f"cgroup: {each / cgroup}" for each in cgroups.hierarchies() if (each / cgroup).exists()
        ]
        found += [f"folder: {self.state}"] if self.state.exists() else []
        return found


def side_by_side(*steps: Callable[[], None]) -> None:
    """Run steps at the same time; the first failure is raised once all have ended."""
    with ThreadPoolExecutor(len(steps)) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()
