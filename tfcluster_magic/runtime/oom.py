"""Whether the kernel killed for memory: counters read before and after, from the own cgroup.

The own cgroup's counter (v2 memory.events, v1 memory.oom_control) counts its own processes only;
the machine's (/proc/vmstat) is taken where no cgroup can be read, and proves less. Standard library
only, Python 3.8 syntax.
"""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
VMSTAT = "/proc/vmstat"
# (controller as /proc/self/cgroup names it, where it is mounted, counters, limit); v2 has no name.
HIERARCHIES = (
    ("", (ROOT, ROOT + "/unified"), "memory.events", "memory.max"),
    ("memory", (ROOT + "/memory",), "memory.oom_control", "memory.limit_in_bytes"),
)
NO_LIMIT = 1 << 50


class OomWatch:
    """Remembers the counters at its creation."""

    def __init__(self) -> None:
        self._before = _counters()

    def own(self) -> bool:
        """Whether a process of this task was killed for memory since.

        To be asked when our children are gone: a cgroup in which others live is not ours, and what
        was killed there may have been another task.
        """
        return any(_is_ours(path) for path in self._risen())

    def around(self) -> bool:
        """Whether it happened in the cgroup, ours or not, or without one on this machine."""
        return bool(self._risen())

    def _risen(self) -> list[str]:
        now = _counters()
        before = {VMSTAT: now.get(VMSTAT, 0), **self._before}
        cgroups = [path for path in now if path != VMSTAT]
        return [path for path in cgroups or now if now[path] > before.get(path, 0)]


def limit() -> str:
    """The own cgroup's memory limit for people, such as '512 MiB', or ''."""
    for _, path in _files():
        value = _read(path).strip()
        if value.isdigit() and int(value) < NO_LIMIT:
            return f"{int(value) >> 20} MiB"
    return ""


def _is_ours(counters: str) -> bool:
    members = _read(os.path.join(os.path.dirname(counters), "cgroup.procs")).split()
    return members == [str(os.getpid())]


def _counters() -> dict[str, int]:
    found = {}
    for path in [counters for counters, _ in _files()] + [VMSTAT]:
        for line in _read(path).splitlines():
            if line.startswith("oom_kill "):
                found[path] = int(line.split()[1])
    return found


def _files() -> list[tuple[str, str]]:
    """(counters, limit) of the own cgroup, which in a container may be the mount's root."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        controllers, path = line.split(":", 2)[1:]
        for controller, mounts, counters, maximum in HIERARCHIES:
            if controller not in controllers.split(","):
                continue
            for mount in mounts:
                for folder in (mount + path.rstrip("/"), mount):
                    if os.path.exists(os.path.join(folder, counters)):
                        found.append((f"{folder}/{counters}", f"{folder}/{maximum}"))
                        break
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
