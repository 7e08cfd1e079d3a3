"""Facts about processes from the kernel's files (proc(5)), and records by which a process is found
again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


def parent(pid: int) -> int:
    """Return the parent of a process, or 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie. A process whose first thread has ended
    is no zombie while another thread runs, and that thread may still hold a port.
    """
    try:
        said = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    state, threads = said[0], int(said[17])
    return state not in "ZX" or threads > 1


def started_at(pid: int) -> int:
    """Return a process's start in clock ticks since boot (proc(5), field 22), or 0 if there is no
    such process.
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def members(namespace: str) -> Iterator[int]:
    """Yield the processes of a pid namespace, as process ids of this machine."""
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if namespace and namespace_of(pid) == namespace:
            yield pid


def namespace_of(pid: int, kind: str = "pid") -> str:
    """Return the identity of a process's namespace, such as `pid:[4026531836]`, or "" if the
    process has ended.
    """
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""


def note(file: Path, pid: int) -> None:
    """Record a process in a way that distinguishes it from a later process with the same number."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{pid} {started_at(pid)}")


def running(file: Path) -> int:
    """Return the process that `note` recorded, or 0 if it has ended."""
    try:
        pid, started = map(int, file.read_text().split())
    except (OSError, ValueError):
        return 0
    return pid if started_at(pid) == started and alive(pid) else 0
