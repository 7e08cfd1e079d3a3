"""Observation of a running cluster beyond what its record says: its training progress, and tasks
that are silent.

The observer reads the files that the tasks write (event files, logs, reports), if they can be read
on this machine, and then also the totals in the program's arguments. It raises no errors for the
content of the files.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ..errors import one_line
from ..i18n import _
from ..lifecycle.messages import shorten
from ..spec import Mode, Phase, TaskType, TFCluster
from ..spec.names import task_name
from .printed_progress import LOGS_READ, PrintedLogs, ReportedProgress
from .run_progress import Progress, ProgressReader, step_of_total

# Patterns of the names that programs give to their arguments for totals, and the unit of each
# total. In a name, `-` is replaced by `_` before the match.
_TOTAL_PREFIX = r"((num|nb|n|max|total|global)_?)?((train|training)_?)?"
_TOTAL_ARGUMENTS = (
    (re.compile(_TOTAL_PREFIX + r"steps_per_epoch$"), "steps_per_epoch"),
    (re.compile(_TOTAL_PREFIX + r"(steps|iterations)$"), "steps"),
    (re.compile(_TOTAL_PREFIX + r"epochs$"), "epochs"),
)


class Totals(NamedTuple):
    """The total steps and the total epochs of a program; each is None if the program's arguments do
    not have it.
    """

    steps: int | None = None
    epochs: int | None = None


def totals_from_arguments(arguments: Sequence[str]) -> Totals:
    """Return the totals in arguments such as `--max_steps 800`, `--train-steps=800`, `--epochs 3`.

    If a total is given several times, the last one counts. Without a total number of steps, it is
    computed as `--epochs` times `--steps_per_epoch`.
    """
    found: dict[str, int] = {}
    for argument, after in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = argument.partition("=")
        number = _positive_number(value if equals else after)
        if name.startswith("-") and number is not None:
            name = name.lstrip("-").replace("-", "_").lower()
            found.update({kind: number for rule, kind in _TOTAL_ARGUMENTS if rule.match(name)})
    if "steps" not in found and "epochs" in found and "steps_per_epoch" in found:
        found["steps"] = found["epochs"] * found["steps_per_epoch"]
    return Totals(found.get("steps"), found.get("epochs"))


def _positive_number(text: str) -> int | None:
    """Return the whole number above 0 in a text, such as `100`, `1e5` or `10_000`; None for any
    other text.
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if 1 <= number < 1e15 and number == int(number) else None


# ---- the observer ----

SILENCE = 300.0
"""Seconds without output after which a running task is reported as silent."""


def _all_readable(_folder: str) -> str | None:
    return None


class RunReader:
    """All sources of one run's progress.

    The program's reports by `tfcluster.progress` take precedence over its event files, and these
    over its printed lines. If the progress is taken from the event files, but they have no total
    number of steps, the total is taken from the printed lines.
    """

    def __init__(self, cluster: TFCluster, output: str, logs: str | None) -> None:
        program = cluster.spec.program
        totals = totals_from_arguments(program.arguments if program else ())
        self._reported = ReportedProgress(output)
        self._events = ProgressReader(output, totals.steps, totals.epochs)
        counts = cluster.spec.replicas.counts
        trains = (TaskType.CHIEF, TaskType.WORKER) if program else ()
        tasks = [task_name(kind, i) for kind in trains for i in range(counts.get(kind, 0))]
        self._tasks = tasks
        folders = dict.fromkeys(folder for folder in (logs, output) if folder)
        places = [[os.path.join(folder, f"{t}.log") for folder in folders] for t in tasks]
        self._printed = PrintedLogs(places, totals.steps, totals.epochs)

    def step_rates(self) -> dict[str, float]:
        """Return the steps per second of each task whose reports or printed lines have them."""
        self._printed.read()
        printed = zip(self._tasks, self._printed.rates(), strict=True)
        return {**{task: rate for task, rate in printed if rate}, **self._reported.rates()}

    def step_counts(self) -> dict[str, int]:
        """Return the last step of each task whose reports or printed lines have it."""
        for _part in range(-(-len(self._tasks) // LOGS_READ)):
            self._printed.read()
        printed = zip(self._tasks, self._printed.counts(), strict=True)
        return {**{task: count for task, count in printed if count}, **self._reported.counts()}

    def read(self) -> Progress | None:
        """Return the progress of the run; None while no source has progress."""
        reported, written, printed = (
            reader.read() for reader in (self._reported, self._events, self._printed)
        )
        found = reported or written or printed
        if written is None or found is not written or written.total is not None:
            return found
        step, total = step_of_total(written.step, self._printed.total_of(written.unit))
        if total is None:
            return found
        rate, left = written.steps_per_second, total - step
        return replace(written, step=step, total=total, eta_seconds=left / rate if rate else None)


class Observer:
    """An observer that finds the progress and the silent tasks of runs. Use one observer for each
    manager, so that each file is read only once.

    Args:
        unseen: a function that returns why this machine cannot read a run's output folder; None if
            it can (`Backend.unseen`). If it cannot, nothing is read, because files at the same path
            on this machine do not belong to the run.
    """

    def __init__(self, unseen: Callable[[str], str | None] = _all_readable) -> None:
        self._unseen = unseen
        self._readers: dict[str, RunReader] = {}

    def progress(self, cluster: TFCluster) -> Progress | None:
        """Return the progress of the training; None if none is known."""
        reader = self._reader(cluster)
        found = None if reader is None else reader.read()
        if found is not None and cluster.status.phase.is_final:
            return replace(found, steps_per_second=None, eta_seconds=None)
        return found

    def step_rates(self, cluster: TFCluster) -> dict[str, float]:
        """Return the steps per second of each task for which they are known; empty for a run that
        has ended.
        """
        reader = None if cluster.status.phase.is_final else self._reader(cluster)
        return {} if reader is None else reader.step_rates()

    def step_counts(self, cluster: TFCluster) -> dict[str, int]:
        """Return the last step of each task for which it is known."""
        reader = self._reader(cluster)
        return {} if reader is None else reader.step_counts()

    def _reader(self, cluster: TFCluster) -> RunReader | None:
        folder = cluster.status.paths.get("output")
        if folder is None or self._unseen(folder):
            return None
        reader = self._readers.get(cluster.metadata.uid)
        if reader is None:
            reader = RunReader(cluster, folder, cluster.status.paths.get("logs"))
            self._readers[cluster.metadata.uid] = reader
        return reader

    def forget(self, cluster: TFCluster) -> None:
        """Delete the cached progress of a run; a later call reads the files again."""
        self._readers.pop(cluster.metadata.uid, None)

    def lost(self, cluster: TFCluster) -> str | None:
        """Return a warning if running tasks write to their pods' disks, which are deleted with the
        pods; else None.
        """
        folder = cluster.status.paths.get("output")
        if folder is None or cluster.status.phase.is_final or self._unseen(folder):
            return None
        found = lost_writes(folder)
        if not found:
            return None
        return _(
            "{task} writes to {folder}, on its pod's own disk, which is lost with the pod. As "
            "much as fits is copied to {place}; write to $TFCLUSTER_OUTPUT_DIR instead, which is "
            "kept"
        ).format(task=found[0][0], folder=found[0][1], place=found[0][2])

    def silence(self, cluster: TFCluster, now: float) -> str | None:
        """Return the result of the function `silence` for the run; None if its files cannot be seen
        from here.
        """
        folder = cluster.status.paths.get("logs")
        return None if folder is None or self._unseen(folder) else silence(cluster, now)


_LOST = ".tfcluster-lost"
_LOST_BYTES = 16 << 10


def lost_writes(output: str) -> list[tuple[str, str, str]]:
    """Return the folders whose files will be lost with their pods, as runtime/writes.py reports
    them. Each tuple has a task, the folder to which it writes, and the folder with copies of its
    files.
    """
    found: list[tuple[str, str, str]] = []
    try:
        with os.scandir(os.path.join(output, _LOST)) as entries:
            names = sorted(e.name for e, _n in zip(entries, range(64), strict=False))
    except OSError:
        return found
    for name in names:
        # a program may have put anything there
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(os.path.join(output, _LOST, name), how), "rb") as file:
                told = json.loads(file.read(_LOST_BYTES))["folders"]
            task = one_line(name.removesuffix(".json"))
            found += [(task, one_line(folder), one_line(place)) for folder, place in told.items()]
    return found


def silence(cluster: TFCluster, now: float) -> str | None:
    """Return `no output since 22:41 +0800 from worker-0` if running programs have been silent for
    long; else None.
    """
    folder = cluster.status.paths.get("logs")
    if (
        cluster.status.phase is not Phase.RUNNING
        or cluster.spec.mode is Mode.IN_GRAPH
        or not folder
    ):
        return None
    silent: dict[str, float] = {}
    for task_type in (TaskType.CHIEF, TaskType.WORKER):
        counts = cluster.status.counts.get(task_type.value)
        if counts is None or counts.running < counts.desired:
            continue  # some tasks have ended, and the others may rightly wait in silence
        for task in (task_name(task_type, i) for i in range(counts.desired)):
            try:
                last = os.stat(os.path.join(folder, f"{task}.log")).st_mtime
            except OSError:
                continue
            if now - last > SILENCE:
                silent[task] = last
    if not silent:
        return None
    since = time.strftime("%H:%M %z", time.localtime(max(silent.values())))
    return _("no output since {since} from {tasks}").format(
        since=since, tasks=shorten(list(silent))
    )
