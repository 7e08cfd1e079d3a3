"""Turns: what two processes of tests may do at the same time on one cluster.

Many share it; one that wants it alone waits until the others gave it back, and nobody begins before
it. A turn is a lock of the kernel on a file: whoever dies gives back what they had.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest


class Turn:
    """The right of this process to something that it shares with others."""

    def __init__(self, path: Path) -> None:
        """Refer to `path`, which is made; nothing is held yet."""
        self._what = os.open(path, os.O_CREAT | os.O_RDWR)
        # Who wants it alone waits with the door closed: those who share would always be first.
        self._door = os.open(f"{path}.door", os.O_CREAT | os.O_RDWR)
        self._how = fcntl.LOCK_UN

    @property
    def held(self) -> bool:
        """Whether this process holds it, in one way or the other."""
        return self._how != fcntl.LOCK_UN

    def share(self) -> None:
        """Hold it as others may at the same time."""
        self._take(fcntl.LOCK_SH)

    def alone(self) -> None:
        """Hold it as nobody else does."""
        self._take(fcntl.LOCK_EX)

    def give(self) -> None:
        """Hold it no more."""
        fcntl.flock(self._what, fcntl.LOCK_UN)
        self._how = fcntl.LOCK_UN

    def _take(self, how: int) -> None:
        if self._how == how:
            return  # to give it back first would let another in between
        self.give()  # or two who share would wait for each other to be alone
        fcntl.flock(self._door, fcntl.LOCK_EX)
        fcntl.flock(self._what, how)
        fcntl.flock(self._door, fcntl.LOCK_UN)
        self._how = how


CLUSTER, OPERATOR = pytest.StashKey[Turn](), pytest.StashKey[Turn]()
"""Of the cluster under test, for a file; and of the operator that runs on it, for a test."""
HUB = pytest.StashKey[Turn]()
"""Of the hub that runs on it, for a test."""


def is_worker(config: pytest.Config) -> bool:
    """Whether this is one of several processes that run the tests (pytest-xdist)."""
    return hasattr(config, "workerinput")


def folder_of_all(config: pytest.Config) -> Path:
    """A folder that all processes of this run have in common, and no other run."""
    own = Path(config._tmp_path_factory.getbasetemp())
    return own.parent if is_worker(config) else own
