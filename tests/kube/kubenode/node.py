"""A node: a sandbox with an address, and the servers that were started in it.

Its state is kept in files of the cluster's state folder, so that any later process can use it.
cluster.py decides what a node runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import cgroups, paths, sandbox
from .commands import LAST_LINES, SYSTEM_PATH, run, succeeds, wait_until
from .errors import NodeError
from .processes import alive, children, note, running

NETWORK = "10.89.0"
ENVIRONMENT = {"PATH": SYSTEM_PATH, "HOME": "/root"}


class Node:
    """A node of the cluster called `cluster`; number 1 has the control plane."""

    def __init__(self, cluster: str, number: int) -> None:
        """Refer to a node; `begin` starts it."""
        self.cluster = cluster
        self.number = number
        self.name = f"node-{number}"
        self.ip = f"{NETWORK}.{number}"
        self.pods = f"10.244.{number}.0/24"  # address range of its pods
        self.state = paths.state(cluster)
        self.folder = self.state / self.name
        self.file = self.folder / "first"  # process 1
        self.cgroup = f"{cgroups.of(cluster)}/{self.name}"

    def begin(self) -> None:
        """Start the sandbox."""
        keep = paths.cache() / "nodes" / self.cluster / self.name
        binds = {
            self.state: str(self.state),
            paths.cache(): str(paths.cache()),
            # containerd needs overlayfs, which does not work inside the node's root, itself an
            # overlayfs. This folder of the cache also keeps the node's images when the node ends.
            keep / "containerd": "/var/lib/containerd",
        }
        first = sandbox.begin(self.folder, self.name, self.cgroup, binds)
        note(self.file, first)
        hosts = f"127.0.0.1 localhost\n{NETWORK}.1 registry\n" + "".join(
            f"{NETWORK}.{number} node-{number}\n" for number in (1, 2)
        )
        self.write("/etc/hosts", hosts)

    @property
    def pid(self) -> int:
        """The process id, on this machine, of the node's process 1.

        Raises:
            NodeError: the node is not running.
        """
        pid = running(self.file)
        if not pid:
            raise NodeError(
                f"{self.name} of the cluster {self.cluster} does not run. Do: make kube-up"
            )
        return pid

    def inside(self, arguments: Sequence[str | os.PathLike[str]]) -> list[str]:
        """Return the command that runs `arguments` inside all namespaces of the node."""
        enter = [
            "nsenter",
            f"--target={self.pid}",
            "--mount",
            "--net",
            "--pid",
            "--ipc",
            "--uts",
            "--",
        ]
        return [*enter, *(os.fspath(word) for word in arguments)]

    def run(
        self,
        arguments: Sequence[str | os.PathLike[str]],
        *,
        stdin: str = "",
        timeout: float | None = None,
    ) -> str:
        """Run a command in the node to its end and return its stdout.

        Raises:
            NodeError: the command failed.
        """
        return run(self.inside(arguments), stdin=stdin, timeout=timeout, env=ENVIRONMENT)

    def write(self, path: str, text: str) -> None:
        """Write a file on the node's root."""
        self.run(["sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1"', "sh", path], stdin=text)

    def start(
        self,
        server: str,
        arguments: Sequence[str | os.PathLike[str]],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a server in the node; its output goes to `log(server)`.

        Raises:
            NodeError: the server ended at once; the message has its last lines.
        """
        words = [os.fspath(word) for word in arguments]
        command = self._command(server)
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(json.dumps({"arguments": words, "env": {**(env or {})}}))
        self.log(server).parent.mkdir(parents=True, exist_ok=True)
        with self.log(server).open("a") as output:
            entering = subprocess.Popen(
                self.inside(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, env={**ENVIRONMENT, **(env or {})},
            )  # fmt: skip
        wait_until(
            lambda: children(entering.pid) or entering.poll() is not None,
            server,
            seconds=90,
            every=0.005,
        )
        found = children(entering.pid)
        if not found:
            raise NodeError(f"{server} ended at once:\n{self.last_lines(server)}")
        entering.kill()  # the server stays, because process 1 of the machine adopts it
        entering.wait()
        note(self._note(server), found[0])

    def start_again(self, server: str) -> None:
        """Start a server again with the same command.

        Raises:
            NodeError: the server ended at once, or `start` never started it.
        """
        try:
            command = json.loads(self._command(server).read_text())
        except OSError as error:
            raise NodeError(f"{server} on {self.name} cannot be started again") from error
        self.start(server, command["arguments"], command["env"])

    def forget(self, server: str) -> None:
        """Remove a stopped server from the list of ended servers."""
        self._note(server).unlink()

    def _note(self, server: str) -> Path:
        return self.folder / "servers" / server

    def _command(self, server: str) -> Path:
        return self.folder / "commands" / server

    def stop(self, server: str, by: str = "TERM", seconds: float = 10) -> None:
        """Send a server a signal and wait for its end; kill it after `seconds`."""
        pid = running(self._note(server))
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, f"SIG{by}"))
        try:
            wait_until(lambda: not alive(pid), f"the end of {server}", seconds=seconds, every=0.02)
        except NodeError:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not alive(pid), f"the end of {server}", seconds=seconds)

    def pid_of(self, server: str) -> int:
        """Return the process id on this machine of a server started here; 0 if it does not run."""
        return running(self._note(server))

    def alive(self, server: str) -> bool:
        """Return whether a server started here still runs."""
        return self.pid_of(server) != 0

    def ready(
        self,
        server: str,
        question: Sequence[str | os.PathLike[str]],
        *,
        seconds: float = 120,
        needs: Sequence[str] = (),
    ) -> None:
        """Wait until a command in the node succeeds, which shows that `server` answers.

        Raises:
            NodeError: the server or one of `needs` ended, or the server did not answer in time. The
                message has the last lines of that server's log.
        """

        def ended() -> str:
            return next((each for each in (*needs, server) if not self.alive(each)), "")

        def answers() -> bool:
            if ended():
                return True
            return succeeds(self.inside(question), seconds=20, env=ENVIRONMENT)

        try:
            wait_until(answers, f"{server} on {self.name}", seconds=seconds)
        except NodeError as error:
            raise NodeError(f"{error}\n{self.last_lines(server)}") from error
        if guilty := ended():
            raise NodeError(
                f"{guilty} ended. Its last lines ({self.log(guilty)}):\n{self.last_lines(guilty)}"
            )

    def log(self, server: str) -> Path:
        """Return the file of a server's output."""
        return self.state / "logs" / f"{server}{'' if self.number == 1 else f'-{self.number}'}.log"

    def last_lines(self, server: str) -> str:
        """Return a server's last lines of output."""
        try:
            return "\n".join(
                self.log(server).read_text(errors="replace").splitlines()[-LAST_LINES:]
            )
        except OSError:
            return "(no log)"

    def servers(self) -> list[str]:
        """Return the servers that were started here and are still running."""
        return sorted(file.name for file in (self.folder / "servers").glob("*") if running(file))

    def ended(self) -> list[str]:
        """Return the servers that were started here and have ended, on their own or by `stop`."""
        files = sorted((self.folder / "servers").glob("*"))
        return [file.name for file in files if not running(file)]

    def end(self) -> None:
        """Kill the node with everything in it, and remove its cgroups."""
        with contextlib.suppress(NodeError):
            sandbox.end(self.pid)
        cgroups.kill(self.cgroup)  # this also kills a sandbox whose process 1 was not recorded
        cgroups.remove(self.cgroup)
        wait_until(lambda: not self.servers(), f"the end of the doors of {self.name}", seconds=90)
        self.file.unlink(missing_ok=True)
        for folder in ("servers", "commands"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
