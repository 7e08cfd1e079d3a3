"""Real TensorFlow servers of the runtime for tests. They listen on loopback and end with the block
of `servers`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

from support.task_process import RUNTIME
from tfcluster_magic.client.readiness import addresses_by_task, wait_until_open
from tfcluster_magic.spec.task_file import guard_path


class Servers:
    """The servers of one cluster, with their `pids` and `addresses`."""

    def __init__(self, counts: dict[str, int], *, kind: str = "native") -> None:
        self.kind = kind
        self._reserved: list[socket.socket] = []
        self.addresses = {job: [self._reserve() for _ in range(n)] for job, n in counts.items()}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def _reserve(self) -> str:
        reserved = socket.socket()
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        self._reserved.append(reserved)
        return f"127.0.0.1:{reserved.getsockname()[1]}"

    def start(self, task: str) -> None:
        """Start one task's server."""
        job, index = task.rsplit("-", 1)
        environment = dict(
            os.environ,
            TF_CONFIG=json.dumps(
                {"cluster": self.addresses, "task": {"type": job, "index": int(index)}}
            ),
            TF_GRPC_REUSE_PORT="true",
            TF_NUM_INTEROP_THREADS="8",
            TF_GRPC_DEFAULT_OPTIONS="grpc.enable_http_proxy=0",
            LD_PRELOAD=guard_path() or "",
        )
        self._processes[task] = subprocess.Popen(
            [sys.executable, str(RUNTIME), "tf_server", "--server", self.kind],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def pids(self) -> dict[str, int]:
        """Return the process of each running task."""
        return {task: process.pid for task, process in self._processes.items()}

    def kill(self, task: str) -> None:
        """Kill one task's server, as when a machine fails."""
        process = self._processes.pop(task)
        process.kill()
        process.wait()

    def wait(self) -> Servers:
        """Wait until all servers accept connections."""
        wait_until_open(addresses_by_task(self.addresses), name="test", timeout=120)
        return self

    def close(self) -> None:
        """End the servers and release the ports."""
        for task in list(self._processes):
            self.kill(task)
        for reserved in self._reserved:
            reserved.close()


@contextlib.contextmanager
def servers(ps: int = 1, workers: int = 2, *, kind: str = "native") -> Iterator[Servers]:
    """Yield started servers, which may need a moment until they accept connections (`wait`)."""
    cluster = Servers({"ps": ps, "worker": workers}, kind=kind)
    try:
        for task in addresses_by_task(cluster.addresses):
            cluster.start(task)
        yield cluster
    finally:
        cluster.close()
