"""Memory, CPU time and ports of processes, as Linux reports them, and a function that waits until
something is true.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
LISTEN = "0A"


def until(
    what: str, look: Callable[[], T | None], timeout: float = 180.0, every: float = 0.01
) -> T:
    """Return the first result of `look` that is not None or False; raise RuntimeError on
    timeout.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        answer = look()
        if answer is not None and answer is not False:
            return answer
        time.sleep(every)  # other processes do not signal their state
    raise RuntimeError(f"waited {timeout:.0f} s in vain for {what}")


def listening() -> set[int]:
    """Return the ports on which a process listens, without connecting to them."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def carrying(variable: str) -> Iterator[int]:
    """Yield the pids of processes whose environment contains `variable`, a text `NAME=value`."""
    mark = variable.encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    yield int(entry)
            except OSError:
                continue  # the process has ended, or belongs to another user


def pss_mib(pids: Iterable[int]) -> float:
    """Return the memory of these processes in MiB (PSS). A page that several processes share is
    divided among them.
    """
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all current threads of a process, exact to nanoseconds."""
    spent = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9
