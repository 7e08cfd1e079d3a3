"""Control groups that enforce a task's memory limit in the kernel, where this user may make them.

Promises that a group is made below a folder this user may write (version 2 or 1), and that every
group of a run is removed, by whoever comes last: the folder is noted in the run's `cgroup` file.
Where nothing is writable `find` gives None, and `memory.py` watches instead.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from ... import state_files
from . import processes

_PREFIX = "tfcluster-"


@dataclass(frozen=True)
class Files:
    """What the two versions call the same things."""

    limit: str
    swap: tuple[str, str | None]  # file, and its content (None: the limit again)
    events: str
    peak: str


_FILES = {
    1: Files(
        "memory.limit_in_bytes",
        ("memory.memsw.limit_in_bytes", None),
        "memory.oom_control",
        "memory.max_usage_in_bytes",
    ),
    2: Files("memory.max", ("memory.swap.max", "0"), "memory.events", "memory.peak"),
}


@dataclass(frozen=True)
class Group:
    """The control group of one task."""

    path: Path
    version: int

    @property
    def members(self) -> Path:
        """The file that a process writes its pid to, in order to join."""
        return self.path / "cgroup.procs"

    def oom_kills(self) -> int:
        """How many processes the kernel killed here for memory."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (self.path / _FILES[self.version].events).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def peak(self) -> int:
        """Most bytes used at any time; 0 when the kernel does not tell."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / _FILES[self.version].peak).read_text())
        return 0


@dataclass(frozen=True)
class Parent:
    """A folder in which groups with a memory limit can be made."""

    path: Path
    version: int

    def make(self, uid: str, task: str, limit: int) -> Group:
        """The group of one task of one run. Raises OSError."""
        group = Group(self.path / f"{_PREFIX}{uid}-{task}", self.version)
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


def find(proc: Path = Path("/proc/self")) -> Parent | None:
    """The nearest folder in which this process may make groups with a memory limit."""
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
                parent = Parent(_below(path, root, point), version=1)
            elif kind == "cgroup2" and controllers == "":
                parent = Parent(_delegated(_below(path, root, point), point), version=2)
            else:
                continue
            if _usable(parent):
                return parent
    return None


def remove_all(parent: Path, uid: str, within: float = 5.0) -> list[Path]:
    """Remove every group of this run below `parent`, and end what is still in one.

    Returns those that have processes after `within` seconds: in an uninterruptible wait.
    """
    deadline = time.monotonic() + within
    while left := [path for path in parent.glob(f"{_PREFIX}{uid}-*") if not _removed(path)]:
        if time.monotonic() > deadline:
            break
        for path in left:
            processes.kill(_members(path))
        time.sleep(0.01)  # a process that was killed is counted until it has been torn down
    return left


def remove_noted(note: Path, uid: str) -> None:
    """Remove the groups of a run below the folder that its supervisor noted in this file."""
    with contextlib.suppress(FileNotFoundError, state_files.Unreadable):
        parent = Path(os.fsdecode(state_files.content(note, most=4096)).replace("\0", ""))
        if (parent / "cgroup.procs").is_file():
            remove_all(parent, uid)


def _members(path: Path) -> list[int]:
    try:
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _mount(line: str) -> tuple[str, str, str, Path]:
    """Kind, options, root and mount point of a line of mountinfo (proc(5))."""
    before, _dash, after = line.partition(" - ")
    fields = before.split()
    kind, _source, options = after.split(" ", 2)
    return kind, options, fields[3], Path(fields[4])


def _below(path: str, root: str, point: Path) -> Path:
    return Path(os.path.normpath(point / os.path.relpath(path, root)))


def _delegated(own: Path, point: Path) -> Path:
    """Version 2 lets no group have both processes and limited children, so ours stands beside or
    above us.
    """
    for folder in (own.parent, *own.parent.parents):
        if not folder.is_relative_to(point):
            break
        with contextlib.suppress(OSError):
            if "memory" in (folder / "cgroup.subtree_control").read_text().split():
                return folder
    return own


def _usable(parent: Parent) -> bool:
    """Try it: permission bits do not tell of read-only mounts and missing controllers."""
    try:
        probe = parent.make(f"probe-{os.getpid()}", "0", 1 << 30)
        probe.path.rmdir()
        return os.access(parent.path / "cgroup.procs", os.W_OK)
    except OSError:
        return False
