"""TFCluster as users start it, in temporary folders."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tfcluster_magic import ClusterManager
from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import TFCluster

from .processes import carrying, listening, until

COMMAND = str(Path(sys.executable).with_name("tfcluster"))


class Workbench:
    """The folders of one benchmark (a state folder and a home folder), and a manager that uses
    them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "TFCLUSTER_STATE_DIR": str(folder / "state"),
            "TFCLUSTER_HOME": str(folder / "home"),
        }
        self.manager = ClusterManager(
            state_dir=self.env["TFCLUSTER_STATE_DIR"],
            data_dir=str(folder / "home" / "data"),
            log_dir=str(folder / "home" / "log"),
        )

    def tfcluster(self, *words: str, before: Sequence[str] = ()) -> None:
        """Run the command `tfcluster` with the arguments `words` in its own process; `before` is
        put before the command. Raises CalledProcessError if it fails.
        """
        command = [*before, COMMAND, *words]
        subprocess.run(command, env=self.env, cwd=self.folder, check=True, stdout=subprocess.PIPE)

    def ports(self, name: str) -> set[int]:
        """Wait until the supervisor of a run has reserved the ports of all tasks, and return the
        ports.
        """
        cluster = until(f"the addresses of {name}", lambda: self._addressed(name))
        addresses = [one for some in cluster.status.addresses.values() for one in some]
        return {int(address.rsplit(":", 1)[1]) for address in addresses}

    def _addressed(self, name: str) -> TFCluster | None:
        cluster = self.manager.status(name)
        return cluster if cluster.status.addresses else None

    def wait_listening(self, name: str) -> None:
        """Wait until every task of the run accepts connections."""
        ports = self.ports(name)
        until(f"the ports of {name}", lambda: ports <= listening())

    def pids(self, name: str) -> list[int]:
        """Return the pids of a run: its tasks, their children, and the supervisor."""
        uid = self.manager.status(name).metadata.uid
        return [*carrying(f"TFCLUSTER_RUN_UID={uid}"), self.supervisor(name)]

    def supervisor(self, name: str) -> int:
        """Return the pid of a run's supervisor."""
        found = [
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdigit() and self._supervises(Path("/proc", entry, "cmdline"), name)
        ]
        return found[0]

    def _supervises(self, cmdline: Path, name: str) -> bool:
        run = self.manager.status(name).metadata
        folder = self.folder / "state" / "runs" / run.cluster / str(run.run)
        try:
            words = cmdline.read_bytes().split(b"\0")
        except OSError:
            return False
        return str(folder).encode() in words and any(w.endswith(b"__main__.py") for w in words)

    def end(self, name: str) -> None:
        """Stop a run and wait until all its processes have ended."""
        with suppress(TFClusterError):
            self.manager.stop(name)
            self.manager.wait(name, until=Until.RELEASED)


@contextmanager
def workbench() -> Iterator[Workbench]:
    """Yield a workbench; remove its processes and files afterwards."""
    with tempfile.TemporaryDirectory(prefix="tfcluster-bench-") as folder:
        bench = Workbench(Path(folder))
        try:
            yield bench
        finally:
            for cluster in bench.manager.list(all_runs=True):
                bench.end(cluster.metadata.name)
