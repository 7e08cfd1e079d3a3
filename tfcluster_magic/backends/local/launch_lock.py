"""One launch, deletion or sweep at a time, across all processes of a user.

Promises an answer within a bounded time, which names who holds the lock. The kernel gives it back
when its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ... import state_files
from ...errors import BackendUnavailable, TFClusterError
from ...i18n import _

PATIENCE = 60.0
"""Seconds that a launch waits for others; each holds the lock for a fraction of one."""


@contextlib.contextmanager
def held(state_dir: Path) -> Iterator[None]:
    """Hold the lock of a state folder.

    Raises:
        BackendUnavailable: another one has held it for PATIENCE seconds.
        TFClusterError: the state folder cannot be written.
    """
    try:
        fd = state_files.lock_file(state_dir / "launch.lock")
    except OSError as error:
        raise TFClusterError(
            _(
                "cannot write in the state folder {state_dir}: {why}; "
                "make it writable, or name another one in TFCLUSTER_STATE_DIR"
            ).format(state_dir=state_dir, why=error.strerror)
        ) from None
    try:
        _take(fd, PATIENCE, state_dir)
        yield
    finally:
        os.close(fd)


def _take(fd: int, seconds: float, state_dir: Path) -> None:
    """Take the lock, and leave our pid in it for those who wait."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                pid = os.pread(fd, 20, 0).decode("ascii", "replace") or "unknown"
                raise BackendUnavailable(
                    _(
                        "another launch or deletion (process {pid}) has not come to its end for "
                        "{seconds:g} s: look what it waits for, or end it, and try again"
                    ).format(pid=pid, seconds=seconds)
                ) from None
            time.sleep(0.01)  # the kernel's own wait for a lock has no time-out
        except OSError as error:
            raise TFClusterError(
                _(
                    "the state folder {state_dir} is on a volume without locks ({why}): "
                    "name another one in TFCLUSTER_STATE_DIR"
                ).format(state_dir=state_dir, why=error.strerror)
            ) from None
    with contextlib.suppress(OSError):  # a full disk: nobody needs it to go on
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
