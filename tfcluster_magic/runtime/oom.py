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
        """Whether a process of this task's own cgroup was killed for memory since."""
        now = _counters()
        return any(now[path] > self._before.get(path, 0) for path in now if path != VMSTAT)

    def anywhere(self) -> bool:
        """As own(); where no cgroup can be read, whether it happened on this machine."""
        now = _counters()
        if set(now) - {VMSTAT}:
            return self.own()
        return now.get(VMSTAT, 0) > self._before.get(VMSTAT, now.get(VMSTAT, 0))


def limit() -> str:
    """The own cgroup's memory limit for people, such as '512 MiB', or ''."""
    for _, path in _files():
        value = _read(path).strip()
        if value.isdigit() and int(value) < NO_LIMIT:
            return f"{int(value) >> 20} MiB"
    return ""


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
