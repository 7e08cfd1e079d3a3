"""Between-Graph training with 1 parameter server and 2 workers, compared with the same tasks
started by hand. Both sides run `programs/train.py` unchanged. The program records its own steps, so
both sides are measured in the same way.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import by_hand
from .processes import until
from .product import Workbench, workbench
from .rows import Row, bounded, compared

WORKERS = ("worker-0", "worker-1")


@dataclass(frozen=True)
class Training:
    """The figures of one training, started with TFCluster or by hand."""

    first_step: float  # seconds from the command to the first step of any worker
    spread: float  # seconds from that step to the first step of the last worker
    rate: float  # steps/s of all workers while all of them train


def training(quick: bool) -> list[Row]:
    """Measure the time to the first step, the delay until all workers train, and the speed."""
    seconds = 4.0 if quick else 10.0
    rounds = range(1 if quick else 3)
    with workbench() as bench:
        pairs = [(_ours(bench, seconds), _by_hand(seconds)) for _ in rounds]
    ours, theirs = [own for own, _ in pairs], [other for _, other in pairs]
    waits = "by hand, a worker that looks before the chief is ready sleeps for 30 s"
    return [
        compared(
            "between_first_step",
            "s",
            [one.first_step for one in ours],
            [one.first_step for one in theirs],
            at_most=1.1,
        ),
        bounded(
            "workers_spread",
            "s",
            [one.spread for one in ours],
            at_most=2.0,
            baseline=[one.spread for one in theirs],
            note=waits,
        ),
        compared(
            "steps_per_second",
            "1/s",
            [one.rate for one in ours],
            [one.rate for one in theirs],
            at_least=0.98,
        ),
    ]


def _ours(bench: Workbench, seconds: float) -> Training:
    program = by_hand.PROGRAMS / "train.py"

    with tempfile.TemporaryDirectory() as marks:
        began = time.time()
        bench.tfcluster(
            *("launch", "--workers", "2", "--ps", "1", "--name", "bench", "--reclaim-after", "0s"),
            *(str(program), "--", "--marks", marks),
        )
        seen = _watch(Path(marks), began, seconds, lambda: _must_run(bench))
        bench.end("bench")
        return seen


def _must_run(bench: Workbench) -> None:
    cluster = bench.manager.status("bench")
    if not cluster.active:
        raise RuntimeError(cluster.status.message)


def _by_hand(seconds: float) -> Training:
    with tempfile.TemporaryDirectory() as marks:
        began = time.time()
        addresses = by_hand.free_addresses(ps=1, worker=2)
        with by_hand.tasks("train.py", addresses, ["--marks", marks]):
            return _watch(Path(marks), began, seconds, lambda: None)


def _watch(marks: Path, began: float, seconds: float, check: Callable[[], None]) -> Training:
    def all_noted(ending: str) -> bool:
        check()
        return all((marks / f"{worker}.{ending}").exists() for worker in WORKERS)

    until("the first step of every worker", lambda: all_noted("first"), every=0.1)
    time.sleep(seconds)  # the interval that is measured
    end = time.time()
    (marks / "stop").touch()
    until(
        "the steps of every worker",
        lambda: all((marks / f"{worker}.steps").exists() for worker in WORKERS),
        every=0.1,
    )
    firsts = [float((marks / f"{worker}.first").read_text()) for worker in WORKERS]
    steps = [
        float(line)
        for worker in WORKERS
        for line in (marks / f"{worker}.steps").read_text().splitlines()
    ]
    from_here = max(firsts) + 0.5
    rate = sum(from_here <= at <= end for at in steps) / (end - from_here)
    return Training(min(firsts) - began, max(firsts) - min(firsts), rate)
