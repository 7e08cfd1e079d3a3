"""The cost of TFCluster itself: idle supervisors, measuring the usage of tasks, the command
`tfcluster list`, and loading the IPython extension.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfcluster_magic.usage.samples import read_samples

from . import by_hand
from .processes import cpu_seconds, pss_mib, until
from .product import COMMAND, Workbench, workbench
from .rows import Row, bounded, interleaved

RUNS = 50
IN_GRAPH = ("launch", "--mode", "in-graph", "--workers", "2", "--ps", "1", "--name", "bench")
LOAD = """
import sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
began = time.perf_counter()
shell.run_line_magic("load_ext", "{extension}")
print(time.perf_counter() - began)
assert "tensorflow" not in sys.modules
"""


def supervisor(quick: bool) -> list[Row]:
    """Measure memory and CPU time of an idle supervisor."""
    seconds = 5.0 if quick else 30.0
    with workbench() as bench:
        bench.tfcluster(*IN_GRAPH, "--wait")
        pid = bench.supervisor("bench")
        memory = pss_mib([pid])
        before = cpu_seconds(pid)
        time.sleep(seconds)  # the idle interval that is measured
        percent = (cpu_seconds(pid) - before) / seconds * 100
    return [
        bounded("supervisor_memory", "MiB", [memory], at_most=30.0),
        bounded("supervisor_cpu", "% of a core", [percent], at_most=0.5),
    ]


def sampling(quick: bool) -> list[Row]:
    """Measure the CPU time of the processes that start and sample the tasks of a training, one for
    each task. These processes also read the steps that the program prints.
    """
    seconds = 20.0 if quick else 120.0
    program = str(by_hand.PROGRAMS / "train.py")
    with workbench() as bench, tempfile.TemporaryDirectory() as marks:
        sizes = ("--workers", "2", "--ps", "1", "--name", "bench", "--reclaim-after", "0s")
        bench.tfcluster("launch", *sizes, program, "--", "--marks", marks)
        trains = [Path(marks, f"worker-{index}.first") for index in range(2)]
        until("the first step", lambda: all(each.exists() for each in trains), every=0.1)
        pids = [pid for pid in bench.pids("bench") if _samples(pid)]
        assert len(pids) == 3, pids
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)  # the interval that is measured
        used = [(cpu_seconds(p) - b) / seconds * 100 for p, b in zip(pids, before, strict=True)]
        files = bench.manager.status("bench").status.paths["output"]
        told = read_samples(files, ["worker-0"])["worker-0"]
        steps = max(each.step for attempt in told for each in attempt.intervals)
        Path(marks, "stop").touch()
    each = ", ".join(f"{percent:.2f}" for percent in used)
    note = f"the largest of {each}, with all else that this process does; {steps} steps sampled"
    return [bounded("sampling_cpu", "% of a core", [max(used)], at_most=0.5, note=note)]


def _samples(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return any(word.endswith(b"/runtime/task.py") for word in words)


def list_of_50(quick: bool) -> list[Row]:
    """Measure how long the command `tfcluster list` takes for 50 runs, compared with the start of a
    Python process that does nothing.
    """
    with workbench() as bench:
        clock = str(by_hand.PROGRAMS / "clock.py")
        options = ["--workers", "1", "--ps", "0", "--name", "bench", "--wait"]
        bench.tfcluster("launch", *options, clock, "--", "1")
        _multiply(bench.folder / "state" / "runs" / "bench" / "1")
        command = [COMMAND, "list", "--all", "-o", "name"]
        listed = subprocess.run(command, env=bench.env, check=True, stdout=subprocess.PIPE)
        assert len(listed.stdout.split()) == RUNS, listed.stdout
        ours, theirs = interleaved(
            3 if quick else 15,
            lambda: _timed([COMMAND, "list", "--all"], bench),
            lambda: _timed([sys.executable, "-c", "pass"], bench),
        )
    return [bounded("list_50", "s", ours, at_most=0.4, baseline=theirs)]


def _multiply(run: Path) -> None:
    record = json.loads((run / "record.json").read_text())
    for number in range(2, RUNS + 1):
        copy = run.with_name(str(number))
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("control"))
        metadata = {**record["metadata"], "name": f"bench-{number}", "run": number}
        (copy / "record.json").write_text(json.dumps({**record, "metadata": metadata}))


def _timed(command: list[str], bench: Workbench) -> float:
    began = time.monotonic()
    subprocess.run(command, env=bench.env, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def load_ext(quick: bool) -> list[Row]:
    """Measure how long `%load_ext tfcluster_magic` takes in a new IPython, compared with loading
    TensorBoard's extension.
    """
    ours, theirs = interleaved(
        1 if quick else 7, lambda: _load("tfcluster_magic"), lambda: _load("tensorboard")
    )
    return [bounded("load_ext", "s", ours, at_most=0.15, baseline=theirs)]


def _load(extension: str) -> float:
    command = [sys.executable, "-c", LOAD.format(extension=extension)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()[-1])
