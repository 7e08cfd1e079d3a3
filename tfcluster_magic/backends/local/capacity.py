"""What this machine has and what is free of it, for the preflight; what active runs may use counts
as taken.

Promises that memory that a run may still take up to its limits is not given twice, and that what
other programs use is not given at all. Owns no numbers but those that it reads: /proc, the runs'
records, nvidia-smi.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from ... import state_files
from ...quota.preflight import Limit, Room, asked, cpu_of, memory_of
from ...spec import TaskType, TFCluster
from . import gpus, processes
from .store import RunFolder

MAX_TASKS = 100

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
