"""Remains of a cluster on this machine; after `kube-down` there must be none.

Processes, mounts and loop devices are recognized by the cluster's state folder in their command
line, mount point or backing file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import cgroups


def found(state: Path, cgroup: str) -> list[str]:
    """Return the remains of the cluster with this state folder and control group, one line for
    each.
    """
    mark = f"{state}/"
    mounts = Path("/proc/mounts").read_text().splitlines()
    groups = [top / cgroup for top in cgroups.hierarchies()]
    return [
        *_processes(mark),
        *(f"mount: {line}" for line in mounts if mark in line),
        *_loop_devices(mark),
        *(f"control group: {group}" for group in groups if group.exists()),
        *([f"folder: {state}"] if state.exists() else []),
    ]


def _processes(mark: str) -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        words = _read(file).replace("\0", " ")
        if mark in words:
            yield f"process {file.parent.name}: {words[:120]}"


def _loop_devices(mark: str) -> Iterator[str]:
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        if mark in _read(file):
            yield f"loop device: {file.parent.parent.name}"


def _read(file: Path) -> str:
    """Return the text of a kernel file, or "" if the kernel object has just disappeared."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
