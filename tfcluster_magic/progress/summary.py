"""What can be told about a running cluster beside its record: how far it is, and who is silent.

Reads what the run's tasks write (event files, log files) and nothing else, and only where this
machine sees those files. Never raises for what it finds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ..i18n import _
from ..lifecycle.messages import shorten
from ..spec import Mode, Phase, TaskType, TFCluster
from ..spec.names import task_name
from .program_totals import total_from_arguments
from .run_progress import Progress, ProgressReader

SILENCE = 300.0
"""Seconds without output after which a running task is told to be silent."""


def _everything(_folder: str) -> str | None:
    return None


class Observer:
    """Looks at runs; one for a manager, so that following a run reads each event file once.

    Args:
        unseen: why a folder of runs' output cannot be read here, `Backend.unseen`: what lies on
            this machine at the same path is not the run's.
    """

    def __init__(self, unseen: Callable[[str], str | None] = _everything) -> None:
        self._unseen = unseen
        self._readers: dict[str, ProgressReader] = {}

    def progress(self, cluster: TFCluster) -> Progress | None:
        """How far the training is; None when it does not say."""
        folder = cluster.status.paths.get("output")
        program = cluster.spec.program
        if folder is None or self._unseen(folder):
            return None
        reader = self._readers.get(cluster.metadata.uid)
        if reader is None:
            totals = total_from_arguments(program.arguments if program else ())
            reader = ProgressReader(folder, totals.steps, totals.epochs)
            self._readers[cluster.metadata.uid] = reader
        return reader.read()

    def forget(self, cluster: TFCluster) -> None:
        """Give up what is kept for reading a run's progress; it can be read anew."""
        self._readers.pop(cluster.metadata.uid, None)

    def silence(self, cluster: TFCluster, now: float) -> str | None:
        """As `silence`, where the run's files can be seen."""
        folder = cluster.status.paths.get("logs")
        return None if folder is None or self._unseen(folder) else silence(cluster, now)


def silence(cluster: TFCluster, now: float) -> str | None:
    """`no output since 22:41 from worker-0`, when running programs have been silent for long."""
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
            continue  # some have finished: their silence says nothing
        for task in (task_name(task_type, i) for i in range(counts.desired)):
            try:
                last = os.stat(os.path.join(folder, f"{task}.log")).st_mtime
            except OSError:
                continue
            if now - last > SILENCE:
                silent[task] = last
    if not silent:
        return None
    since = time.strftime("%H:%M", time.localtime(max(silent.values())))
    return _("no output since {since} from {tasks}").format(
        since=since, tasks=shorten(list(silent))
    )
