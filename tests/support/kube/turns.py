"""Locks for test processes that share one cluster.

A process that needs the cluster exclusively waits until the others have released it; processes that
want to share it later wait behind that process. A lock is a kernel lock on a file, so it is
released when its process dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest


class Turn:
    """The right of this process to a shared resource."""

    def __init__(self, path: Path) -> None:
        """Create the lock's files, `path` and one next to it, without locking anything yet."""
        self._what = os.open(path, os.O_CREAT | os.O_RDWR)
        # A process locks this file while it waits for the lock itself. New sharers then wait behind
        # a process that waits for the exclusive lock, and cannot overtake it.
        self._door = os.open(f"{path}.door", os.O_CREAT | os.O_RDWR)
        self._how = fcntl.LOCK_UN

    @property
    def held(self) -> bool:
        """Whether this process holds the lock, shared or exclusively."""
        return self._how != fcntl.LOCK_UN

    def share(self) -> None:
        """Take the lock, shared with others."""
        self._take(fcntl.LOCK_SH)

    def alone(self) -> None:
        """Take the lock exclusively."""
        self._take(fcntl.LOCK_EX)

    def give(self) -> None:
        """Release the lock."""
        fcntl.flock(self._what, fcntl.LOCK_UN)
        self._how = fcntl.LOCK_UN

    def _take(self, how: int) -> None:
        if self._how == how:
            return  # keep the lock, because a release would let another process in
        # Release the shared lock first; otherwise two sharers would wait for each other.
        self.give()
        fcntl.flock(self._door, fcntl.LOCK_EX)
        fcntl.flock(self._what, how)
        fcntl.flock(self._door, fcntl.LOCK_UN)
        self._how = how


CLUSTER, OPERATOR = pytest.StashKey[Turn](), pytest.StashKey[Turn]()
"""The lock of the cluster under test, which a process holds during a file of tests, and the lock of
its operator, held during one test.
"""
HUB = pytest.StashKey[Turn]()
"""The lock of the hub on that cluster, held during one test."""


def is_worker(config: pytest.Config) -> bool:
    """Return whether this is one of several test processes (pytest-xdist)."""
    return hasattr(config, "workerinput")


def folder_of_all(config: pytest.Config) -> Path:
    """Return a folder that only the processes of this test run share."""
    own = Path(config._tmp_path_factory.getbasetemp())
    return own.parent if is_worker(config) else own
