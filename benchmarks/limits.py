"""The speed of a task under a CPU limit, compared with TensorFlow's default number of threads under
the same limit.

The local backend enforces no CPU limit: it only sets the number of threads. In this benchmark, a
control group gives both sides the CPU quota that a container would have. By default, TensorFlow
starts a thread for each core of the machine, whatever the quota is. The kernel then throttles these
threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .by_hand import PROGRAMS
from .processes import until
from .product import Workbench, workbench
from .rows import Row, compared, interleaved

VERSION_1 = Path("/sys/fs/cgroup/cpu")
VERSION_2 = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds


def one_cpu(quick: bool) -> list[Row]:
    """Measure steps per second under a quota of one core."""
    seconds = 4.0 if quick else 10.0
    with quota(1.0) as enter, workbench() as bench:
        if enter is None:
            note = "not measured: no CPU control group may be made here (root can)"
            return [Row("one_cpu_limit", None, "1/s", goal="ratio >= 1.1", note=note)]
        ours, theirs = interleaved(
            1 if quick else 3,
            lambda: _ours(bench, enter, seconds),
            lambda: _by_hand(enter, seconds),
        )
    return [compared("one_cpu_limit", "1/s", ours, theirs, at_least=1.1)]


@contextmanager
def quota(cores: float) -> Iterator[list[str] | None]:
    """Create a control group with a quota of `cores` cores, and yield the start of a command line:
    a command that is appended to it runs in this group. Yield None if no quota can be set here. The
    control group gets priority over other processes, so that the command can use its whole quota.
    """
    version_1 = VERSION_1.is_dir()
    group = (VERSION_1 if version_1 else VERSION_2) / f"tfcluster-bench-{os.getpid()}"
    limit = int(cores * PERIOD)
    period, shares = str(PERIOD), str(100 * 1024)
    settings = {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": str(limit), "cpu.shares": shares}
    if not version_1:
        settings = {"cpu.max": f"{limit} {PERIOD}", "cpu.weight": "10000"}
    try:
        group.mkdir()
        for name, value in settings.items():
            (group / name).write_text(value)
    except OSError:
        yield None
    else:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        if group.is_dir():
            until("the end of the group's processes", lambda: _removed(group), timeout=60)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def _ours(bench: Workbench, enter: list[str], seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "rate")
        program = [str(PROGRAMS / "compute.py"), "--", str(seconds), str(result)]
        limits = ["--workers", "1", "--ps", "0", "--worker-cpu", "1"]
        bench.tfcluster("launch", "--name", "bench", *limits, "--wait", *program, before=enter)
        return float(result.read_text())


def _by_hand(enter: list[str], seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "rate")
        program = [sys.executable, str(PROGRAMS / "compute.py"), str(seconds), str(result)]
        subprocess.run([*enter, *program], check=True, stderr=subprocess.DEVNULL)
        return float(result.read_text())
