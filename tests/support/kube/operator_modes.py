"""The two modes of the operator in tests: a process outside the cluster, or a Deployment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubenode import paths
from kubenode.commands import wait_until

if TYPE_CHECKING:
    from support.kube.kubectl import Kubectl
    from support.kube.turns import Turn


@dataclass
class Process:
    """The operator as a process outside the cluster, for one namespace."""

    namespace: str
    kubeconfig: str
    folder: Path
    program: subprocess.Popen[bytes] | None = None
    port: int = 0
    offset: int = 0
    """Position in the log at which the current process begins."""

    def start(self) -> float:
        """Start the operator; return the seconds until it was ready."""
        began = time.monotonic()
        self.begin()

        def is_ready() -> bool:
            assert self.alive, self._said()
            return self.is_ready()

        wait_until(is_ready, f"the operator for {self.namespace} is ready", seconds=120, every=0.05)
        return time.monotonic() - began

    def begin(self) -> None:
        """Start the operator without waiting."""
        log = self.folder / "operator.log"
        words = [sys.executable, "-m", "tfcluster_magic.operator", f"--namespace={self.namespace}"]
        words += [f"--policy={self.folder}/policy.yaml", "--health-port=0", "--identity=tests"]
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig, "TFCLUSTER_LANGUAGE": "en"}
        with log.open("ab") as to:
            self.offset, self.port = to.tell(), 0
            self.program = subprocess.Popen(words, stderr=to, env=environment, cwd=paths.ROOT)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.program is not None and self.program.poll() is None

    def is_ready(self) -> bool:
        """Return whether the operator is the leader and its caches are complete."""
        found = [line for line in self._said().splitlines() if "health on port" in line]
        if found:
            self.port = int(found[0].rpartition(" ")[2])
        return self.alive and bool(self.port) and answers(f"http://127.0.0.1:{self.port}/readyz")

    def _said(self) -> str:
        return (self.folder / "operator.log").read_bytes()[self.offset :].decode()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the operator, and wait until it has ended."""
        if self.program is not None and self.program.poll() is None:
            self.program.send_signal(how)
            self.program.wait(30)

    def log(self) -> str:
        """Return the operator's log so far."""
        return (self.folder / "operator.log").read_text()


@dataclass
class Installed:
    """The operator as a Deployment for all namespaces, including those of other test processes."""

    kubectl: Kubectl
    turn: Turn

    def start(self) -> float:
        """Start the operator; return the seconds until it was ready."""
        began = time.monotonic()
        self.kubectl("scale", "deployment/operator", "--replicas=1")
        self.kubectl("rollout", "status", "deployment/operator", "--timeout=120s", seconds=150)
        self.turn.share()
        return time.monotonic() - began

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the operator once no other test needs it, and wait until it has ended. SIGKILL
        leaves it no time to finish.
        """
        self.turn.alone()
        self.kubectl("scale", "deployment/operator", "--replicas=0")
        options = ["--grace-period=0", "--force"] if how is signal.SIGKILL else []
        self.kubectl("delete", "pod", "-l", "app=tfcluster-operator", *options)

    def log(self) -> str:
        """Return the operator's log so far."""
        return self.kubectl("logs", "-l", "app=tfcluster-operator", "--tail=-1")


def answers(address: str) -> bool:
    """Return whether the health endpoint at this address answers."""
    try:
        with urllib.request.urlopen(address, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
