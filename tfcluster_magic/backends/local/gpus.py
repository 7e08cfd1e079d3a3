"""GPUs of this machine as `nvidia-smi` lists them, and which task gets which.

Promises whole devices, each for one task of one active run. What this process may see itself
(CUDA_VISIBLE_DEVICES) bounds what it gives away. Devices are named by UUID, because the numbers of
CUDA and of nvidia-smi differ. Without nvidia-smi on PATH there are no GPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection

from ...spec import Spec
from ...spec.names import task_name

TIMEOUT = 20.0
"""Seconds; a driver that has to wake up takes several."""


def present() -> bool:
    """Whether this machine has the driver's tool at all."""
    return shutil.which("nvidia-smi") is not None


def devices() -> list[str]:
    """The UUIDs of the GPUs that may be used here; none when nvidia-smi fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run(
            [tool, "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
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


def assign(spec: Spec, free: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Devices for each task that asked for some; there are known to be enough."""
    left = list(free)
    given: dict[str, tuple[str, ...]] = {}
    for task_type, count in spec.replicas.counts.items():
        wanted = spec.replicas.of(task_type).resources.gpu
        for index in range(count if wanted else 0):
            given[task_name(task_type, index)], left = tuple(left[:wanted]), left[wanted:]
    return given
