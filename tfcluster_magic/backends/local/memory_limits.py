"""Memory limits of tasks, enforced by control groups or, without them, by the supervisor.

A task above its limit is killed, and its exit names the limit and the usage. RLIMIT_AS does not
work: TensorFlow reserves far more address space than memory. Control groups (version 2 or 1) are
created below a folder to which this user may write. Every group of a run is removed, even after a
crash: the run's file `cgroup` names the folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ... import state_files
from ...lifecycle.messages import out_of_memory_detail
from ...spec import Cause, TaskExit
from ...spec.quantities import format_bytes
from . import processes

_PREFIX = "tfcluster-"


@dataclass(frozen=True)
class ControlGroupFiles:
    """The names of the files in one version of control groups."""

    limit: str
    # The name of the file that limits swap, and the text to write into it; None means the same text
    # that is written into the file `limit`.
    swap: tuple[str, str | None]
    events: str
    peak: str


_FILES = {
    1: ControlGroupFiles(
        "memory.limit_in_bytes",
        ("memory.memsw.limit_in_bytes", None),
        "memory.oom_control",
        "memory.max_usage_in_bytes",
    ),
    2: ControlGroupFiles("memory.max", ("memory.swap.max", "0"), "memory.events", "memory.peak"),
}


@dataclass(frozen=True)
class ControlGroup:
    """The control group of one task."""

    path: Path
    version: int

    @property
    def members(self) -> Path:
        """The file to which a process writes its pid in order to join the group."""
        return self.path / "cgroup.procs"

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel killed for lack of memory."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (self.path / _FILES[self.version].events).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def peak(self) -> int:
        """Return the peak usage in bytes; 0 if the kernel does not report it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / _FILES[self.version].peak).read_text())
        return 0


@dataclass(frozen=True)
class ControlGroupParent:
    """A folder in which groups with a memory limit can be created."""

    path: Path
    version: int

    def make(self, uid: str, task: str, limit: int) -> ControlGroup:
        """Create the group of one task of one run. Raises OSError."""
        group = ControlGroup(self.path / f"{_PREFIX}{uid}-{task}", self.version)
        names = _FILES[self.version]
        group.path.mkdir(exist_ok=True)
        try:
            (group.path / names.limit).write_text(str(limit))
            swap_file, content = names.swap
            with contextlib.suppress(OSError):  # a kernel without swap accounting has no such file
                (group.path / swap_file).write_text(content or str(limit))
        except OSError:
            group.path.rmdir()
            raise
        return group


def find_parent(proc: Path = Path("/proc/self")) -> ControlGroupParent | None:
    """Return the nearest folder in which this process may create groups with a memory limit."""
    try:
        mounts = [_mount(line) for line in (proc / "mountinfo").read_text().splitlines()]
        own = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
    except (OSError, ValueError):
        return None
    for _number, controllers, path in own:
        for kind, options, root, point in mounts:
            if (
                kind == "cgroup"
                and "memory" in controllers.split(",")
                and "memory" in options.split(",")
            ):
                parent = ControlGroupParent(_mounted_path(path, root, point), version=1)
            elif kind == "cgroup2" and controllers == "":
                parent = ControlGroupParent(
                    _delegated_folder(_mounted_path(path, root, point), point), version=2
                )
            else:
                continue
            if _is_usable(parent):
                return parent
    return None


def remove_groups(parent: Path, uid: str, within: float = 5.0) -> list[Path]:
    """Remove every group of this run below `parent`, and kill the processes in these groups. Return
    the groups that still have processes (in uninterruptible waits) after `within` seconds.
    """
    deadline = time.monotonic() + within
    while left := [path for path in parent.glob(f"{_PREFIX}{uid}-*") if not _remove_group(path)]:
        if time.monotonic() > deadline:
            break
        for path in left:
            processes.kill(_members(path))
        time.sleep(0.01)  # a killed process stays in its group until the kernel has removed it
    return left


def remove_noted_groups(note: Path, uid: str) -> None:
    """Remove the groups of a run below the folder that its supervisor wrote into the file
    `note`.
    """
    with contextlib.suppress(FileNotFoundError, state_files.Unreadable):
        parent = Path(os.fsdecode(state_files.read_bytes(note, most=4096)).replace("\0", ""))
        if (parent / "cgroup.procs").is_file():
            remove_groups(parent, uid)


def _members(path: Path) -> list[int]:
    try:
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _remove_group(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _mount(line: str) -> tuple[str, str, str, Path]:
    """Return the file system type, options, root and mount point in a line of mountinfo
    (proc(5)).
    """
    before, _dash, after = line.partition(" - ")
    fields = before.split()
    kind, _source, options = after.split(" ", 2)
    return kind, options, fields[3], Path(fields[4])


def _mounted_path(path: str, root: str, point: Path) -> Path:
    return Path(os.path.normpath(point / os.path.relpath(path, root)))


def _delegated_folder(own: Path, point: Path) -> Path:
    """Return the nearest folder above the group `own` in which groups can have memory limits; `own`
    if there is no such folder. The group `own` itself is skipped, because in version 2, a group
    cannot have both processes and children with limits.
    """
    for folder in (own.parent, *own.parent.parents):
        if not folder.is_relative_to(point):
            break
        with contextlib.suppress(OSError):
            if "memory" in (folder / "cgroup.subtree_control").read_text().split():
                return folder
    return own


def _is_usable(parent: ControlGroupParent) -> bool:
    """Return whether a group can be created in `parent`. The function tries to create one, because
    permission bits do not show read-only mounts and missing controllers.
    """
    try:
        probe = parent.make(f"probe-{os.getpid()}", "0", 1 << 30)
        probe.path.rmdir()
        return os.access(parent.path / "cgroup.procs", os.W_OK)
    except OSError:
        return False


# -- limits of one run's tasks ---------------------------------------------------------------------
# Every 0.5 s the proportional memory (PSS) of a task's process tree is checked. If it is above the
# limit, all processes of the tree are killed except `task.py`, which then reports the task's last
# lines.

CHECK_INTERVAL = 0.5
"""Seconds between two checks of the memory of watched tasks."""


class MemoryGuard:
    """The memory limits of one run's tasks."""

    def __init__(
        self, uid: str, limits: Mapping[str, int], parent: ControlGroupParent | None
    ) -> None:
        """Create the guard. `limits` has the bytes of each task with a limit; groups are created in
        `parent`.
        """
        self._uid, self._limits, self._parent = uid, limits, parent
        self._groups: dict[str, ControlGroup] = {}
        self._kills_before: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def admit(self, task: str) -> Path | None:
        """Prepare the start of a task. Return the file to which the task's process must write its
        pid in order to join a control group. Return None if the task gets no control group, because
        it has no memory limit or because the supervisor itself watches its memory.
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
        """Return the `tasks` whose limit the kernel does not enforce."""
        return [t for t in tasks if t in self._limits and t not in self._groups]

    def enforce(self, roots: dict[str, int]) -> None:
        """Kill the tasks that are above their limits; `roots` has, for each watched task, the pid
        of its `task.py`.
        """
        known = processes.snapshot() if roots else {}
        for task, root in roots.items():
            members = processes.tree(root, known)
            if processes.rss(members) <= self._limits[task]:
                continue  # RSS is cheap to read, and PSS is never more than RSS
            used = processes.pss(members)
            if used > self._limits[task]:
                self._ended.setdefault(task, used)
                processes.kill([pid for pid in members if pid != root] or [root])

    def explain(self, task: str, task_exit: TaskExit) -> TaskExit:
        """Return `task_exit`. If the task was killed because it exceeded its memory limit, change
        the cause to out of memory, with the limit and the usage.
        """
        used = self._ended.get(task)
        group = self._groups.get(task)
        if used is None and group is not None and group.oom_kills() > self._kills_before[task]:
            used = group.peak()
        if used is None or task_exit.cause in (Cause.COMPLETED, Cause.STOPPED):
            return task_exit
        limit = format_bytes(self._limits[task])
        detail = out_of_memory_detail(limit, format_bytes(used) if used else "")
        return replace(task_exit, cause=Cause.OOM, detail=detail)

    def close(self) -> None:
        """Remove the control groups. Call this after every process of the run has ended."""
        if self._parent:
            remove_groups(self._parent.path, self._uid)
