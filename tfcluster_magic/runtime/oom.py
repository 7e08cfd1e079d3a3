"""Whether the kernel killed for memory: counters read before and after, from the task's own cgroup if it has one.

The counter of the own cgroup (v2 memory.events, v1 memory.oom_control) counts its own processes only; the
machine's (/proc/vmstat) is taken where no cgroup can be read, and proves less. Standard library only.
"""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
VMSTAT = "/proc/vmstat"


class OomWatch:
    """Remembers the counters at its creation."""

    def __init__(self) -> None:
        self._before = _counters()

    def own(self) -> bool:
        """Whether a process of this task's own cgroup was killed for memory since."""
        return any(
            count > self._before.get(path, 0) for path, count in _counters().items() if path != VMSTAT
        )

    def anywhere(self) -> bool:
        """As own(); where no cgroup can be read, whether that happened on this machine."""
        now = _counters()
        if set(now) - {VMSTAT}:
            return self.own()
        return now.get(VMSTAT, 0) > self._before.get(VMSTAT, now.get(VMSTAT, 0))


def limit() -> str:
    """The memory limit of the own cgroup for people, such as '512 MiB', or ''."""
    for folder, names in _folders():
        for name in names:
            try:
                with open(os.path.join(folder, name)) as file:
                    value = file.read().strip()
            except OSError:
                continue
            if value.isdigit() and int(value) < 1 << 50:
                return "%d MiB" % (int(value) >> 20)
    return ""


def _counters() -> dict:
    found = {}
    places = [os.path.join(f, n) for f, _ in _folders() for n in ("memory.events", "memory.oom_control")]
    for path in places + [VMSTAT]:
        try:
            with open(path) as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        found[path] = int(line.split()[1])
        except OSError:
            continue
    return found


def _folders() -> list:
    """(folder, names of limit files): v2 and v1; inside a container the own path may be the mount's root."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            roots, names = (ROOT, ROOT + "/unified"), ("memory.max",)
        elif "memory" in controllers.split(","):
            roots, names = (ROOT + "/memory",), ("memory.limit_in_bytes",)
        else:
            continue
        for root in roots:
            own = os.path.join(root, path.lstrip("/"))
            if path != "/" and os.path.isdir(own):
                found.append((own, names))
            elif os.path.isfile(os.path.join(root, names[0])):
                found.append((root, names))
    return found
