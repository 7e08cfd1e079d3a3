"""A TensorFlow cluster started by hand, without TFCluster: one process for each task. Benchmarks
compare TFCluster with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .processes import listening, until

PROGRAMS = Path(__file__).resolve().parent / "programs"
Addresses = dict[str, list[str]]


def free_addresses(**counts: int) -> Addresses:
    """Return loopback addresses with ports that were free a moment ago: users who start tasks by
    hand choose such ports.
    """
    sockets = {job: [socket.socket() for _ in range(count)] for job, count in counts.items()}
    try:
        for job in sockets.values():
            for one in job:
                one.bind(("127.0.0.1", 0))
        return {
            job: [f"127.0.0.1:{one.getsockname()[1]}" for one in some]
            for job, some in sockets.items()
        }
    finally:
        for job in sockets.values():
            for one in job:
                one.close()


def ports_of(addresses: Addresses) -> set[int]:
    """Return the port numbers of all addresses."""
    return {int(one.rsplit(":", 1)[1]) for some in addresses.values() for one in some}


@contextmanager
def tasks(
    program: str,
    addresses: Addresses,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start `program` once for each address, with the flags of TensorFlow's tutorials."""
    hosts = [f"--{job}_hosts={','.join(some)}" for job, some in addresses.items()]
    started = [
        subprocess.Popen(
            [
                *(sys.executable, str(PROGRAMS / program), *hosts),
                *(f"--job_name={job}", f"--task_index={index}", *arguments),
            ],
            env={**os.environ, **(env or {})},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for job, some in addresses.items()
        for index in range(len(some))
    ]
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_listening(addresses: Addresses) -> None:
    """Wait until every task accepts connections."""
    wanted = ports_of(addresses)
    until("the servers started by hand", lambda: wanted <= listening())
