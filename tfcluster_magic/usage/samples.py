"""The sample files of a run's tasks, as `runtime/usage.py` writes them.

A file has lines of JSON: an object starts an attempt, and each array is the next interval. Other
lines are ignored; no content of a file raises an error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .. import state_files
from ..spec import conversion

FOLDER = ".tfcluster-usage"
MOST_BYTES = 64 << 10
"""Maximum bytes that are read from a sample file. The task keeps its file below half of this size.
"""
_FIELDS = 12
_TENTH, _HUNDREDTH, _KIB, _BLOCK = 0.1, 0.01, 1 << 10, 64 << 10
_MOST_COUNT = 1 << 53
"""Maximum value of each number in a file, so that sums stay exact in JSON."""


@dataclass(frozen=True)
class Interval:
    """The usage of a task between two samples.

    `at` is its end (seconds since 1970 by the clock of the task's machine), `seconds` its length.
    `cpu`, `throttled` and `gpu` are seconds, the other amounts bytes. `memory` and `gpu_memory` are
    the largest sampled values, `peak` the largest that the kernel recorded. `step` is the newest
    step that the program has reported; 0 if it reported no new one.
    """

    at: float
    seconds: float
    cpu: float
    memory: int
    received: int
    sent: int
    read: int
    written: int
    throttled: float
    gpu: float
    gpu_memory: int
    peak: int
    step: int = 0


@dataclass(frozen=True)
class Attempt:
    """The intervals of one start of a task, oldest first, and the limits that its container had."""

    number: int
    began: float
    cpu_limit: float | None
    memory_limit: int | None
    intervals: tuple[Interval, ...]


class _Head(msgspec.Struct):
    v: int
    at: float
    attempt: int = 1
    cpu: float | None = None
    memory: int | None = None


def parse(content: bytes) -> list[Attempt]:
    """Return the attempts in a file, oldest first. Attempts without an interval are left out."""
    found: list[tuple[_Head, list[Interval]]] = []
    for line in content.split(b"\n")[:-1]:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if line.startswith(b"{"):
                head = conversion.decode(line, _Head)
                if head.v == 1 and 0 <= head.at < state_files.MOST_NUMBER:
                    found.append((head, []))
            elif found:
                row = conversion.decode(line, list[int])
                if 0 < len(row) <= _FIELDS and all(0 <= each < _MOST_COUNT for each in row):
                    head, intervals = found[-1]
                    before = intervals[-1].at if intervals else head.at
                    intervals.append(_interval(before, row + [0] * (_FIELDS - len(row))))
    return [
        Attempt(head.attempt, head.at, head.cpu, head.memory, tuple(intervals))
        for head, intervals in found
        if intervals
    ]


def _interval(before: float, row: Sequence[int]) -> Interval:
    length, cpu, memory, received, sent, read, written, throttled, gpu, gpu_memory, *rest = row
    peak, step = rest
    return Interval(
        at=before + length * _TENTH,
        seconds=length * _TENTH,
        cpu=cpu * _HUNDREDTH,
        memory=memory * _BLOCK,
        received=received * _KIB,
        sent=sent * _KIB,
        read=read * _KIB,
        written=written * _KIB,
        throttled=throttled * _HUNDREDTH,
        gpu=gpu * _HUNDREDTH,
        gpu_memory=gpu_memory * _BLOCK,
        peak=peak * _BLOCK,
        step=step,
    )


def read_samples(output: str, tasks: Sequence[str]) -> dict[str, list[Attempt]]:
    """Return the samples of these tasks, by task name. A task without samples, or whose file could
    not be read within the time limit, is left out.
    """
    files = {task: Path(output, FOLDER, f"{task}.jsonl") for task in tasks}
    return state_files.read_together(files, lambda task: _read(files[task]))


def _read(path: Path) -> list[Attempt] | None:
    try:
        fd = state_files.open_regular(path, owned=False)
    except (FileNotFoundError, state_files.Unreadable):
        return None
    try:
        with os.fdopen(fd, "rb") as file:
            return parse(file.read(MOST_BYTES)) or None
    except OSError:
        return None
