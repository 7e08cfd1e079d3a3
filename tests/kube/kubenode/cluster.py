"""The whole cluster, which `kube-up` starts in the right order and `kube-down` removes.

A repeated start is safe: running servers are not touched, and leftovers of a crash are removed
first. After the removal, no process, mount, loop device or cgroup may be left.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import (
    build,
    cgroups,
    control_plane,
    description,
    dns,
    gluster,
    images,
    ingress,
    kubelet,
    kwok,
    leftovers,
    metrics,
    network,
    paths,
    policy,
    prepare,
    registry,
    sandbox,
    storage,
    volcano,
)
from .commands import locked, run, say, wait_until
from .door import open_door
from .errors import NodeError
from .node import Node
from .pki import Pki

# These are built and started only on request.
OPTIONS = {"kwok": kwok, "metrics": metrics, "volcano": volcano}
DESCRIPTION = "cluster.toml"  # written last: without this file, the start is incomplete


class Cluster:
    """The cluster called `name` on this machine."""

    def __init__(self, name: str = "") -> None:
        """Refer to a cluster; `up` starts it."""
        self.name = name or paths.default_name()
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", self.name):
            raise NodeError(
                f"A cluster cannot be called {self.name!r}: small letters, digits and hyphens."
            )
        self.state = paths.state(self.name)
        self.kubeconfig = self.state / "kubeconfig"
        self.first = Node(self.name, 1)
        self.second = Node(self.name, 2)

    def nodes(self) -> list[Node]:
        """Return the running nodes."""
        return [node for node in (self.first, self.second) if node.file.exists() and node.servers()]

    def up(self, port: int = 0, *, second: bool = False, options: Sequence[str] = ()) -> None:
        """Start the cluster, or its missing parts.

        Args:
            port: port of the API server on 127.0.0.1; 0 takes a free one.
            second: whether to start a second node.
            options: optional servers to start, as keys of OPTIONS.

        Raises:
            NodeError: the machine cannot run a node, a build failed, or a server did not start.
        """
        sandbox.check_machine()
        with locked(self.state.with_suffix(".lock"), waiting_for=f"the cluster {self.name}"):
            prepare.everything(options)
            began = time.monotonic()
            if self._is_whole():
                say(f"The cluster {self.name} runs already: KUBECONFIG={self.kubeconfig}")
                self._push(description.FOR_PODS)
                self._add(second=second, options=options)
                self._describe()
                return
            self._remove()
            try:
                self._begin(port, second=second, options=options)
            except BaseException:
                self._remove(keep_logs=True)
                raise
            say(f"all runs after {time.monotonic() - began:.1f} s: KUBECONFIG={self.kubeconfig}")

    def _is_whole(self) -> bool:
        """Return whether the cluster was started completely and every server that ended could be
        restarted.
        """
        if not (self.state / DESCRIPTION).exists():
            return False
        try:
            self._revive()
        except NodeError as error:
            say(f"The cluster {self.name} starts anew: {error}")
            return False
        return bool(self.first.servers())

    def revive(self) -> None:
        """Restart servers that ended by themselves, as a service manager would.

        For example, a scheduler ends when it binds a pod twice after an outage of the API server.

        Raises:
            NodeError: a server ends at once, or a node has ended.
        """
        if any(node.ended() for node in (self.first, self.second)):
            with locked(self.state.with_suffix(".lock"), waiting_for=f"the cluster {self.name}"):
                self._revive()

    def _revive(self) -> None:
        for node in (self.first, self.second):
            for server in sorted(node.ended(), key=lambda name: name not in control_plane.FIRST):
                say(f"{server} on {node.name} had ended, and is started again")
                node.start_again(server)
                if server == control_plane.FIRST[-1]:
                    control_plane.ready(node)

    def _begin(self, port: int, *, second: bool, options: Sequence[str]) -> None:
        self.state.mkdir(parents=True, mode=0o700)
        (self.state / "logs").mkdir()
        node, pki = self.first, Pki(self.first)
        began = time.monotonic()
        node.begin()
        network.make_bridge(node)
        pki.begin()
        self._open(pki, port)
        registry.start(node)
        side_by_side(
            lambda: control_plane.start(node),
            lambda: self._push(["pause"]),
            lambda: gluster.start(node),
        )
        side_by_side(
            lambda: self._take_pods(node, began),
            lambda: dns.start(node),
            lambda: storage.start(node),
            lambda: self._let_in(node),
            lambda: self._add(second=second, options=options),
        )
        # The images for tests come last: building them for the first time uses both cores for a
        # minute.
        self._push(description.FOR_PODS)
        self._describe()

    def _add(self, *, second: bool, options: Sequence[str]) -> None:
        """Start the requested optional servers and, if requested, the second node, unless they are
        running.
        """
        if second and not self.second.servers():
            began = time.monotonic()
            self.second.begin()
            network.plug_in(self.second, self.first)
            gluster.mount(self.second, self.first)
            self._take_pods(self.second, began)
        for option in options:
            if not self.first.alive(OPTIONS[option].SERVER):
                OPTIONS[option].start(self.first)

    def _push(self, names: Sequence[str]) -> None:
        """Push images to the registry, built from the current code."""
        for name in names:
            registry.push(images.build(name), self.first)

    def _let_in(self, node: Node) -> None:
        """Start the ingress controller, and make it reachable at a port of this machine."""
        ingress.start(node)
        door = open_door(node, "ingress", ingress.PORT)
        (self.state / "ingress").write_text(f"http://127.0.0.1:{door}")

    def _describe(self) -> None:
        """Write the cluster's current features to DESCRIPTION."""
        more = [option for option in OPTIONS if self.first.alive(OPTIONS[option].SERVER)]
        more += ["two-nodes"] if self.second.servers() else []
        url = (self.state / "ingress").read_text()
        description.write(self.state / DESCRIPTION, ingress=url, more=more)

    def _take_pods(self, node: Node, began: float) -> None:
        """Prepare a node for pods; its network must be ready."""
        Pki(self.first).kubelet(node)
        registry.configure(node)
        kubelet.start(node, images.build("pause").reference)
        registry.forget_older(node)
        policy.start(node, self.first)
        ready = ["wait", "--for=condition=Ready", f"node/{node.name}", "--timeout=60s"]
        wait_until(lambda: self.kubectl(*ready), f"{node.name} is Ready", seconds=180)
        say(f"{node.name} is Ready after {time.monotonic() - began:.1f} s")

    def lose(self, name: str) -> None:
        """End a node as a power cut does; `up(second=True)` brings it back with its disk.

        Raises:
            NodeError: this node must not be ended, or it is not running.
        """
        if name != self.second.name:
            raise NodeError(f"Only {self.second.name} may be lost; node-1 has the control plane.")
        with locked(self.state.with_suffix(".lock"), waiting_for=f"the cluster {self.name}"):
            if not self.second.servers():
                raise NodeError(f"{name} does not run. Do: python3 -m kubenode up --second-node")
            self.second.end()

    def regain(self) -> None:
        """Bring back the second node with its disk, even if servers of the first are down.

        Raises:
            NodeError: the node does not start. All of its processes are then ended, so that the
                call can be repeated.
        """
        with locked(self.state.with_suffix(".lock"), waiting_for=f"the cluster {self.name}"):
            try:
                self._add(second=True, options=())
            except NodeError:
                self.second.end()
                raise

    def _open(self, pki: Pki, port: int) -> None:
        server = f"https://127.0.0.1:{open_door(self.first, 'api', 6443, port)}"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(pki.kubeconfig(server, "admin"), indent=1))

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run kubectl as the cluster's admin.

        Raises:
            NodeError: kubectl failed; the message has its output.
        """
        return run(
            [build.binary("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments], stdin=stdin
        )

    def down(self) -> None:
        """End the cluster and remove everything but the cache.

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
        cgroups.remove(cgroups.of(self.name))
        logs = self.state / "logs"
        if keep_logs and logs.exists():
            kept = self.state.with_name(f"{self.name}-failed-logs")
            shutil.rmtree(kept, ignore_errors=True)
            logs.rename(kept)
            say(f"the logs of the servers are kept in {kept}")
        shutil.rmtree(self.state, ignore_errors=True)

    def leftovers(self) -> list[str]:
        """Return the cluster's remains on this machine, one line for each."""
        return leftovers.found(self.state, cgroups.of(self.name))


def side_by_side(*steps: Callable[[], None]) -> None:
    """Run steps in parallel; raise the first failure once all have ended."""
    with ThreadPoolExecutor(len(steps)) as pool:
        for done in [pool.submit(step) for step in steps]:
            done.result()
