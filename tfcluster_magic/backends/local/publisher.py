"""Writes a run's status: at once when it matters, at most five times a second otherwise, again when
it fails.

A full disk never ends a run: a status that could not be written is kept and tried again, and the
end of the run is written to reserved space. If the run's folder is gone, nothing is written any
more.
"""

from __future__ import annotations

import contextlib
import errno

from ... import state_files
from ...spec import Phase, Status
from . import clock, repair
from .presence import Presence
from .store import RunFolder

INTERVAL = 0.2
RETRY = 1.0
_REMOVED = "the record of the run was removed"


class Publisher:
    """The status file of one run, as its only writer sees it."""

    def __init__(self, folder: RunFolder, integrity: Presence) -> None:
        self._folder, self._integrity = folder, integrity
        self._written: Status | None = None
        self._wanted: Status | None = None
        self._not_before = 0.0
        self._failed = False

    def put(self, status: Status, urgent: bool = False) -> None:
        """Make `status` the published one, now or by `due`."""
        self._wanted = status
        if status == self._written:
            return
        now = clock.now()
        waits = self._failed or not (urgent or _weighty(self._written, status))
        if waits and now < self._not_before:
            return
        try:
            if self._integrity.is_lost:
                raise FileNotFoundError(errno.ENOENT, _REMOVED)  # another run's folder is there
            self._write(status, last=urgent or _ends(self._written, status))
        except OSError as error:
            if not self._failed:
                log(f"cannot write the status, will try again: {error}")
            self._failed, self._not_before = True, now + RETRY
        else:
            self._written, self._failed, self._not_before = status, False, now + INTERVAL

    def _write(self, status: Status, *, last: bool) -> None:
        """Write a status. One that nobody may miss is written even on a full disk, and names that
        disk.
        """
        try:
            text = self._folder.write_status(status, spare=False)
            self._folder.reserve()
        except OSError as error:
            if error.errno not in state_files.FULL or not last:
                raise
            text = self._folder.write_status(repair.with_disk(self._folder, status, full=True))
        self._integrity.remember(self._folder.status_file, text)

    @property
    def settled(self) -> bool:
        """Whether what was put is written, or nobody can read it any more."""
        return self._written == self._wanted or self._integrity.is_lost

    @property
    def due(self) -> float | None:
        """When `put` must be called again (epoch seconds); None when everything is written."""
        return None if self._written == self._wanted else self._not_before


def log(text: str) -> None:
    """Write a line to the supervisor's log."""
    # The log lies on the same disk, which may be full.
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _ends(before: Status | None, after: Status) -> bool:
    """Return whether the run begins to end, or has ended."""
    ending = after.phase.is_final or after.phase is Phase.STOPPING
    return ending and (before is None or before.phase is not after.phase)


def _weighty(before: Status | None, after: Status) -> bool:
    """Whether somebody waits for this change: another phase or reason, or a task that ended."""
    if before is None or (before.phase, before.reason) != (after.phase, after.reason):
        return True
    return _ended(before) != _ended(after)


def _ended(status: Status) -> list[tuple[int, int, int]]:
    return [(c.succeeded, c.failed, c.stopped) for c in status.counts.values()]
