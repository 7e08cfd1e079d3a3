"""Memory limits of tasks: the kernel's where it may be asked, else watched, and told as out of
memory.

Promises that a task above its limit is ended and that its end says so, with the limit and what was
used. RLIMIT_AS is no way: TensorFlow reserves far more address space than memory. Watching looks
every 0.5 s at the proportional memory (PSS) of the task's whole tree, and ends everything in it but
its `task.py`, which then tells the task's last lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from ...i18n import _
from ...spec import Cause, TaskExit
from ...spec.quantities import format_bytes
from . import memory_limits, processes

PERIOD = 0.5
"""Seconds between two looks at the memory of watched tasks."""


class MemoryGuard:
    """The limits of one run's tasks."""

    def __init__(
        self, uid: str, limits: Mapping[str, int], parent: memory_limits.Parent | None
    ) -> None:
        """`limits`: bytes by task, for those that have one; `parent`: where groups may be made."""
        self._uid, self._limits, self._parent = uid, limits, parent
        self._groups: dict[str, memory_limits.Group] = {}
        self._kills_before: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def admit(self, task: str) -> Path | None:
        """Prepare a start; the file in which the new process writes its pid, or None when it is
        watched.
        """
        self._ended.pop(task, None)
        if task not in self._limits or self._parent is None:
            return None
        try:
            group = self._parent.make(self._uid, task, self._limits[task])
        except OSError:
            self._groups.pop(task, None)
            return None
        self._groups[task] = group
        self._kills_before[task] = group.oom_kills()
        return group.members

    def watched(self, tasks: Iterable[str]) -> list[str]:
        """Those of `tasks` that have a limit which the kernel does not keep."""
        return [t for t in tasks if t in self._limits and t not in self._groups]

    def enforce(self, roots: dict[str, int]) -> None:
        """End what is above its limit; `roots` are the pids of the watched tasks' `task.py`."""
        known = processes.snapshot() if roots else {}
        for task, root in roots.items():
            members = processes.tree(root, known)
            if processes.rss(members) <= self._limits[task]:
                continue  # cheap, and never less than the PSS
            used = processes.pss(members)
            if used > self._limits[task]:
                self._ended.setdefault(task, used)
                processes.kill([pid for pid in members if pid != root] or [root])

    def explain(self, task: str, task_exit: TaskExit) -> TaskExit:
        """`task_exit` as out of memory, where that is what it was."""
        used = self._ended.get(task)
        group = self._groups.get(task)
        if used is None and group is not None and group.oom_kills() > self._kills_before[task]:
            used = group.peak()
        if used is None or task_exit.cause in (Cause.COMPLETED, Cause.STOPPED):
            return task_exit
        detail = _("limit {limit}").format(limit=format_bytes(self._limits[task]))
        if used:
            detail += ", " + _("used {used}").format(used=format_bytes(used))
        return replace(task_exit, cause=Cause.OOM, detail=detail)

    def close(self) -> None:
        """Remove the control groups; every process of the run is gone."""
        if self._parent:
            memory_limits.remove_all(self._parent.path, self._uid)
