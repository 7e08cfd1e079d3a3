"""Capacity of this machine, total and free: cores, memory, GPUs.

Everything that active runs may use counts as used: the memory that a run may still take up to its
limits is not given to another run, and memory used by other programs is not given to any run. The
numbers come from /proc, the runs' records and `nvidia-smi`.

A GPU belongs as a whole to one task of one active run. Only GPUs that this process may see itself
(CUDA_VISIBLE_DEVICES) are used. Devices are named by UUID, because the numbers of CUDA and of
nvidia-smi differ. Without nvidia-smi on PATH there are no GPUs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence

from ... import state_files
from ...launch_checks.local import RoomFacts
from ...quota.ledger import HoursAccount
from ...quota.limits import resource_totals
from ...quota.preflight import AvailableResources, Limit, cpu_of, gpu_of, memory_of, total_request
from ...spec import Phase, Spec, TaskType, TFCluster
from ...spec.names import task_name
from . import processes, quota
from .hours_file import HoursFile
from .run_store import RunFolder

NVIDIA_SMI_TIMEOUT = 20.0
"""Timeout in seconds of nvidia-smi; a driver that has to wake up needs several seconds."""


def has_gpu_driver() -> bool:
    """Return whether this machine has nvidia-smi, the tool of the GPU driver."""
    return shutil.which("nvidia-smi") is not None


def gpu_devices() -> list[str]:
    """Return the UUIDs of the GPUs that may be used here; none if nvidia-smi fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run(
            [tool, "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_TIMEOUT,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found = [
        tuple(part.strip() for part in line.split(","))
        for line in listed.splitlines()
        if "," in line
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [uuid for _number, uuid in found]
    allowed = [part.strip() for part in visible.split(",") if part.strip()]
    return [
        u
        for number, u in found
        if any(a == number or (a[:3] == "GPU" and u.startswith(a)) for a in allowed)
    ]


# -- capacity --------------------------------------------------------------------------------------

MAX_TASKS = 100

ActiveRuns = Sequence[tuple[RunFolder, TFCluster]]
"""Runs that may use resources, each with its folder. Runs that have released their resources may be
included, and count as using none.
"""


def measure(active: ActiveRuns, with_gpus: bool = True) -> tuple[AvailableResources, list[str]]:
    """Return the resources of this machine, total and free, and the UUIDs of the free GPUs. Without
    `with_gpus`, do not call nvidia-smi, which may take a second.
    """
    held = {cluster.metadata.name: _reserved_memory(cluster) for _, cluster in active}
    cores = float(_cores())
    cpu = sum(total_request(c.spec, cpu_of, occupied_types(c)) for _, c in active)
    total, available = _memory()
    # Memory that a run may still take, up to its limits, does not count as free.
    promised = sum(
        max(0.0, limit - processes.anonymous(processes.of_run(cluster.metadata.uid)))
        for _, cluster in active
        if (limit := held[cluster.metadata.name])
    )
    free = max(0.0, min(total - sum(held.values()), available - promised))
    devices = gpu_devices() if with_gpus else []
    taken = {device for folder, cluster in active for device in _assigned_gpus(folder, cluster)}
    free_gpus = [device for device in devices if device not in taken]
    room = AvailableResources(
        cpu=Limit(total=cores, free=max(0.0, cores - cpu)),
        memory=Limit(total=total, free=free),
        gpu=Limit(total=len(devices), free=len(free_gpus)),
        max_tasks=MAX_TASKS,
        held=held,
    )
    return room, free_gpus


def occupied_types(cluster: TFCluster) -> list[TaskType]:
    """Return the task types that use resources: all types of an active run, else the types of tasks
    that still run.
    """
    counts = cluster.status.counts
    if waits_to_start(cluster):
        return []
    if not cluster.status.phase.is_final:
        return [*TaskType]
    return [t for t in TaskType if (c := counts.get(t.value)) and c.running + c.starting]


def waits_to_start(cluster: TFCluster) -> bool:
    """Return whether a run has reserved no resources yet, because it still waits for other runs or
    for free resources. Every other launch reserves the resources of its run before it writes the
    record.
    """
    return cluster.status.phase is Phase.QUEUED and bool(cluster.spec.after)


def room_facts(spec: Spec, runs: ActiveRuns, hours: HoursFile, now: float) -> RoomFacts:
    """Return the facts that decide whether `spec` fits on this machine together with `runs`.

    Raises:
        TFClusterError: the hub's limits cannot be read.
    """
    limits = quota.hub_limits()
    active = [(folder, run) for folder, run in runs if run.status.released_at is None]
    room, free_gpus = measure(active, with_gpus=bool(total_request(spec, gpu_of)))
    bounded = quota.has_budget(limits)
    return RoomFacts(
        now=now,
        room=room,
        free_gpus=free_gpus if has_gpu_driver() else None,
        held=[
            resource_totals(run.metadata.name, run.spec, occupied_types(run))
            for _folder, run in active
            if not waits_to_start(run)
        ],
        limits=limits,
        account=hours.account((r for _, r in runs), now, limits) if bounded else HoursAccount(),
    )


def assign_gpus(spec: Spec, free: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Assign devices to each task that requested GPUs; the caller has checked that enough devices
    are free.
    """
    left = list(free)
    given: dict[str, tuple[str, ...]] = {}
    for task_type, count in spec.replicas.counts.items():
        wanted = spec.replicas.of(task_type).resources.gpu
        for index in range(count if wanted else 0):
            given[task_name(task_type, index)], left = tuple(left[:wanted]), left[wanted:]
    return given


def _reserved_memory(cluster: TFCluster) -> float:
    return total_request(cluster.spec, memory_of, occupied_types(cluster))


def _assigned_gpus(folder: RunFolder, cluster: TFCluster) -> set[str]:
    assigned = state_files.read(folder.gpus_file, dict[str, tuple[str, ...]]) or {}
    types = {f"{task_type.value}-" for task_type in occupied_types(cluster)}
    mine = [task for task in assigned if task.rstrip("0123456789") in types]
    return {gpu for task in mine for gpu in assigned[task]}


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def _memory() -> tuple[float, float]:
    """Return the total and the available memory in bytes, from /proc/meminfo."""
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
