"""Changes of runs, seen by looking at their files.

Polls `stat` five times a second: that costs less than a millisecond for fifty runs, works on any
file system (inotify does not on NFS), and also finds a supervisor that was killed, which changes no
file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from ... import state_files
from ...spec import TFCluster
from ..base import Removed
from ..run_names import expired
from . import repair
from .store import RunFolder

POLL = 0.2
Stamp = tuple[state_files.Stamp | None, ...]


def one(folder: RunFolder) -> Iterator[TFCluster | None]:
    """The run now and whenever it changes, None after each look without a change; until nothing of
    it is left.
    """
    known = Known()
    while not state_files.is_gone(folder.record_file):
        cluster = known.changed(folder)
        yield cluster
        if known.is_released(folder):
            return
        time.sleep(POLL)


def every(folders: Callable[[], Iterable[RunFolder]]) -> Iterator[TFCluster | Removed | None]:
    """Each run in `folders()` now, whenever it changes, and when it is gone; None after each look
    without a change. Never ends.
    """
    known = Known()
    while True:
        quiet = True
        current = list(folders())
        for name in known.missing(current):
            quiet = False
            yield Removed(name)
        for folder in current:
            cluster = known.changed(folder)
            if cluster is not None and not expired(cluster, time.time()):
                quiet = False
                yield cluster
        if quiet:
            yield None
        time.sleep(POLL)


class Known:
    """What a watch has told of runs, and how their files looked then."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Stamp, RunFolder, TFCluster]] = {}

    def changed(self, folder: RunFolder) -> TFCluster | None:
        """The run if it is new or has changed."""
        key, stamp = str(folder.path), _stamp(folder)
        last, _, before = self._seen.get(key, (None, None, None))
        if before is None or last != stamp:
            cluster = repair.load(folder)
        elif before.status.released_at is None:
            cluster = _recheck(folder, before)
        else:
            return None
        if cluster is None:
            return None
        self._seen[key] = (stamp, folder, cluster)
        return cluster if cluster != before else None

    def is_released(self, folder: RunFolder) -> bool:
        """Whether the run has been told as one of which nothing is left."""
        seen = self._seen.get(str(folder.path))
        return seen is not None and seen[2].status.released_at is not None

    def missing(self, current: Iterable[RunFolder]) -> list[str]:
        """Names of runs that are gone since they were looked at."""
        there = {str(folder.path) for folder in current}
        gone = [
            key
            for key in self._seen.keys() - there
            if state_files.is_gone(
                self._seen[key][1].path
            )  # a volume that fails for now has it still
        ]
        return [self._seen.pop(key)[2].metadata.name for key in gone]


def _recheck(folder: RunFolder, cluster: TFCluster) -> TFCluster | None:
    """The run, read again only when its supervisor is gone."""
    lock_fd = folder.lock()
    if lock_fd is None:
        return replace(cluster, status=repair.with_disk(folder, cluster.status))
    os.close(lock_fd)
    return repair.load(folder)


def _stamp(folder: RunFolder) -> Stamp:
    every = (folder.status_file, folder.stop_file, folder.record_file)
    return tuple(state_files.stamp(file) for file in every)
