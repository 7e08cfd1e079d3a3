"""What this machine has and what is free of it, for the preflight; what active runs may use counts
as taken.

Promises that memory that a run may still take up to its limits is not given twice, and that what
other programs use is not given at all. Owns no numbers but those that it reads: /proc, the runs'
records, nvidia-smi.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ... import state_files
from ...errors import Problem
from ...i18n import _
from ...quota.preflight import Limit, Room, asked, cpu_of, memory_of
from ...spec import Spec, TaskType, TFCluster
from ...spec.loopback import guard_path
from . import gpus, interpreters, processes
from .store import RunFolder

MAX_TASKS = 100
NEEDED_DISK = 1 << 20

Active = Sequence[tuple[RunFolder, TFCluster]]
"""Runs that still hold something, with their folders."""


def measure(active: Active, with_gpus: bool = True) -> tuple[Room, list[str]]:
    """What there is, and the free GPUs. Without `with_gpus` nvidia-smi, which may take a second, is
    not asked.
    """
    held = {cluster.metadata.name: _held_memory(cluster) for _, cluster in active}
    cores = float(_cores())
    cpu = sum(asked(c.spec, cpu_of, holding(c)) for _, c in active)
    total, available = _memory()
    # What a run may still take on top of what it has is promised to it.
    promised = sum(
        max(0.0, limit - processes.anonymous(processes.of_run(cluster.metadata.uid)))
        for _, cluster in active
        if (limit := held[cluster.metadata.name])
    )
    free = max(0.0, min(total - sum(held.values()), available - promised))
    devices = gpus.devices() if with_gpus else []
    taken = {device for folder, cluster in active for device in _held_gpus(folder, cluster)}
    free_gpus = [device for device in devices if device not in taken]
    room = Room(
        cpu=Limit(total=cores, free=max(0.0, cores - cpu)),
        memory=Limit(total=total, free=free),
        gpu=Limit(total=len(devices), free=len(free_gpus)),
        max_tasks=MAX_TASKS,
        held=held,
    )
    return room, free_gpus


def obstacles(
    spec: Spec, log_dir: Path, state_dir: Path, resume_from: Path | None
) -> list[Problem]:
    """What is missing here before any number matters; `resume_from` has the old checkpoints."""
    found = []
    runs_python = spec.program is None or spec.program.entrypoint.endswith(".py")
    if missing := interpreters.obstacle(spec.interpreter, runs_python):
        found.append(missing)
    if sys.platform == "linux" and guard_path() is None:
        allowed = _(
            "the library is missing, and without it TensorFlow would be open to the whole network: "
            "reinstall tfcluster_magic, with a C compiler (cc) where there is no wheel"
        )
        found.append(Problem(_("loopback guard"), None, allowed))
    for what, folder, variable in (
        (_("log folder"), log_dir, "TFCLUSTER_LOG_DIR"),
        (_("state folder"), state_dir, "TFCLUSTER_STATE_DIR"),
    ):
        if why := unwritable(folder):
            found.append(
                Problem(
                    what,
                    str(folder),
                    _("{why}: make it writable, or name another folder in {variable}").format(
                        why=why, variable=variable
                    ),
                )
            )
    if resume_from is not None and not resume_from.is_dir():
        allowed = _("its folder {resume_from} is gone: launch without it").format(
            resume_from=resume_from
        )
        found.append(Problem("resumeFrom", spec.resume_from, allowed))
    return found


def warnings(log_dir: Path) -> list[str]:
    """What is bad here, but not bad enough to refuse a launch."""
    found = []
    if sys.platform != "linux":
        found.append(
            _("TensorFlow listens on every network interface: this platform has no loopback guard")
        )
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_existing(log_dir)).free < NEEDED_DISK:
            found.append(
                _(
                    "the disk of the log folder {log_dir} is full: "
                    "logs and checkpoints will be lost"
                ).format(log_dir=log_dir)
            )
    return found


def unwritable(folder: Path) -> str | None:
    """Why nothing could be written in `folder`, which may not exist yet; None when it could."""
    there = _existing(folder)
    if not there.is_dir():
        return _("{there} is not a folder").format(there=there)
    if not os.access(there, os.W_OK | os.X_OK):
        return _("user {user} may not write in {there}").format(user=_user(), there=there)
    with contextlib.suppress(OSError):
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return _("{there} is on a read-only file system").format(there=there)
    return None


def _existing(folder: Path) -> Path:
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _user() -> str:
    return os.environ.get("USER") or str(os.getuid())


def holding(cluster: TFCluster) -> list[TaskType]:
    """Task types that hold something: all of an active run, what still runs of an ended one."""
    counts = cluster.status.counts
    if not cluster.status.phase.is_final:
        return [*TaskType]
    return [t for t in TaskType if (c := counts.get(t.value)) and c.running + c.starting]


def _held_memory(cluster: TFCluster) -> float:
    return asked(cluster.spec, memory_of, holding(cluster))


def _held_gpus(folder: RunFolder, cluster: TFCluster) -> set[str]:
    assigned = state_files.read(folder.gpus_file, dict[str, tuple[str, ...]]) or {}
    types = {f"{task_type.value}-" for task_type in holding(cluster)}
    mine = [task for task in assigned if task.rstrip("0123456789") in types]
    return {gpu for task in mine for gpu in assigned[task]}


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def _memory() -> tuple[float, float]:
    """Bytes of memory in all and available; a limit of our own control group counts as the
    machine's.
    """
    known: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                known[name] = float(value.split()[0]) * 1024
    if not known:
        total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        return total, total
    total = known["MemTotal"]
    return total, known.get("MemAvailable", total)
