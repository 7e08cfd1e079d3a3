"""A node's control groups on cgroup v1 (a hierarchy for each controller) and v2 (a single one).

Ref: cgroups(7)
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from .commands import wait_until
from .errors import NodeError

ROOT = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.shares": "4096", "cpu.weight": "400"}  # four times the default weight, on v1 and v2


def of(cluster: str) -> str:
    """Return the path of a cluster's control group in each hierarchy."""
    return f"tfcluster-kube-{cluster}"


def hierarchies() -> list[Path]:
    """Return the mounted hierarchies: one on cgroup v2, one for each controller on v1."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [
        each
        for each in ROOT.iterdir()
        if (each / "cgroup.procs").exists() and not each.is_symlink()
    ]


def join(pid: int, cgroup: str) -> None:
    """Move a process into `cgroup` in every hierarchy; missing groups are created."""
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in cgroup.split("/"):
            pass_on(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                # These files are empty in a new v1 group, and it accepts no process until they are
                # set.
                file = folder / name
                if file.exists() and not file.read_text().strip():
                    file.write_text((folder.parent / name).read_text())
        (folder / "cgroup.procs").write_text(str(pid))
        # With the default weight, all pods of a cluster together get as much CPU time as one
        # process outside it. A server that starts in 0.5 s took over 60 s while others imported
        # TensorFlow.
        for name, weight in WEIGHTS.items():
            if (file := hierarchy / cgroup.partition("/")[0] / name).exists():
                file.write_text(weight)


def pass_on(folder: Path) -> None:
    """Enable every controller of a v2 group for its children, because kubelet needs them all."""
    controllers = folder / "cgroup.controllers"
    for name in controllers.read_text().split() if controllers.exists() else ():
        with contextlib.suppress(OSError):  # this fails in a container's root group
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def kill(cgroup: str) -> None:
    """Kill every process in `cgroup` and below."""
    for hierarchy in hierarchies():
        for file in (hierarchy / cgroup).glob("**/cgroup.procs"):
            for pid in file.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def remove(cgroup: str, seconds: float = 90) -> None:
    """Remove `cgroup` and all groups below it, in every hierarchy, once the last process has left.

    Raises:
        NodeError: processes are still in it.
    """
    tops = [hierarchy / cgroup for hierarchy in hierarchies()]

    def removed() -> bool:
        for top in tops:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(
                    OSError
                ):  # a group whose process is dying is removed by a later attempt
                    os.rmdir(folder)
        left = [str(top) for top in tops if top.exists()]
        if left:
            raise NodeError(f"These control groups still hold processes: {', '.join(left)}")
        return True

    wait_until(removed, f"the removal of {cgroup}", seconds=seconds, every=0.05)
