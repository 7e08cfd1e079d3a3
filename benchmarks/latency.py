"""Delays of TFCluster: until servers are reclaimed, and until an exit, a log line or a step is
shown.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from jupyter_client.manager import KernelManager

from tfcluster_magic.runs.watcher import RunWatcher, WatchedRun

from .by_hand import PROGRAMS
from .processes import until
from .product import Workbench, workbench
from .rows import Row, bounded

RECLAIM_AFTER = 2.0


def ps_reclaim(quick: bool) -> list[Row]:
    """Measure the time from the last worker's exit to the parameter server's exit, without
    `reclaimAfter`.
    """
    with workbench() as bench:
        late = [_reclaim(bench) for _ in range(1 if quick else 5)]
    note = "plain TensorFlow's parameter servers never end"
    return [bounded("ps_reclaim", "s", late, at_most=1.0, note=note)]


def exit_visible(quick: bool) -> list[Row]:
    """Measure the time from a worker's exit until `status` shows it."""
    with workbench() as bench:
        late = [_exit(bench) for _ in range(1 if quick else 5)]
    return [bounded("exit_visible", "s", late, at_most=0.5)]


def log_line(quick: bool) -> list[Row]:
    """Measure the delay of the slowest line from a task's print to the output of a cell in a real
    kernel.
    """
    with workbench() as bench:
        slowest = max(_lines(bench, 8 if quick else 30))
    return [bounded("log_line", "s", [slowest], at_most=1.0)]


def step_shown(quick: bool) -> list[Row]:
    """Measure the time from a task's first printed step until a watch of all runs reports it."""
    with workbench() as bench:
        late = [_step(bench) for _ in range(1 if quick else 5)]
    return [bounded("step_shown", "s", late, at_most=2.0)]


@contextmanager
def _roles(bench: Workbench, *options: str, all_end: bool = False) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as marks:
        tail = ["--all"] if all_end else []
        program = [str(PROGRAMS / "roles.py"), "--", marks, *tail]
        counts = ["--workers", "2", "--ps", "1"]
        bench.tfcluster("launch", "--name", "bench", *counts, *options, *program)
        try:
            yield Path(marks)
        finally:
            bench.end("bench")


def _reclaim(bench: Workbench) -> float:
    with _roles(bench, "--reclaim-after", f"{RECLAIM_AFTER}s", all_end=True) as marks:
        ends = [marks / "worker-0.end", marks / "worker-1.end"]
        until("the workers' end", lambda: all(end.exists() for end in ends))
        server = int((marks / "ps-0.pid").read_text())
        until("the parameter server's end", lambda: not Path("/proc", str(server)).exists())
        gone = time.time()
        return gone - max(float(end.read_text()) for end in ends) - RECLAIM_AFTER


def _exit(bench: Workbench) -> float:
    def seen() -> bool:
        counts = bench.manager.status("bench").status.counts.get("worker")
        return counts is not None and counts.succeeded == 1

    with _roles(bench) as marks:
        until("the exit in the status", seen)
        return time.time() - float((marks / "worker-0.end").read_text())


def _step(bench: Workbench) -> float:
    shown: Queue[float] = Queue()

    def listener(_name: str, known: WatchedRun | None) -> None:
        if known and known.cluster.active and known.progress and known.progress.step:
            shown.put(time.time())

    with tempfile.NamedTemporaryFile() as mark:
        program = [str(PROGRAMS / "first_step.py"), "--", mark.name]
        bench.tfcluster("launch", "--name", "bench", "--workers", "1", "--ps", "0", *program)
        end = RunWatcher(bench.manager).listen(listener)
        try:
            return shown.get(timeout=30) - float(Path(mark.name).read_text())
        finally:
            end()
            bench.end("bench")


def _lines(bench: Workbench, count: int) -> list[float]:
    clock = [str(PROGRAMS / "clock.py"), "--", str(count)]
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(env={**os.environ, **bench.env})
    client = kernel.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        client.execute_interactive("%load_ext tfcluster_magic", timeout=60)
        bench.tfcluster("launch", "--name", "bench", "--workers", "1", "--ps", "0", *clock)
        client.execute("%tfcluster logs -f bench --no-prefix")
        return list(_delays(client, count))
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def _delays(client, count: int) -> Iterator[float]:  # type: ignore[no-untyped-def]
    """Yield the delay of each line in seconds."""
    found = 0
    while found < count:
        try:
            message = client.get_iopub_msg(timeout=30)
        except Empty:
            raise RuntimeError(f"only {found} of {count} lines came") from None
        now = time.time()
        if message["msg_type"] != "stream":
            continue
        for line in message["content"]["text"].splitlines():
            if line.strip().replace(".", "").isdigit():
                found += 1
                yield now - float(line)
