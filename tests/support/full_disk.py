"""Runs with their state folder on a disk that fills up: a script for its own mount namespace.

`python full_disk.py STORY`, with TFCLUSTER_STATE_DIR on a small file system, prints the result as
JSON.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.output import report
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import Phase

PATIENCE = 90.0
STATE = Path(os.environ.get("TFCLUSTER_STATE_DIR", ""))
GO = Path(os.environ.get("TFCLUSTER_HOME", "")) / "go"
WAITS = f"""
import os, sys, time
print("up", flush=True)
while not os.path.exists({str(GO)!r}):
    time.sleep(0.02)
for number in range(3000):
    print("a line that the disk has no room for", number, flush=True)
"""


def fill() -> None:
    """Write until no byte is free."""
    with open(STATE / "filler", "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def fill_inodes() -> None:
    """Create files until no inode is free."""
    folder = STATE / "files"
    folder.mkdir()
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (folder / str(number)).touch()


def is_full() -> bool:
    """Return whether the disk is full."""
    try:
        (STATE / "one more").write_bytes(bytes(1 << 13))
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        with contextlib.suppress(OSError):
            (STATE / "one more").unlink()
    return False


class Story:
    """One run on a disk that fills up."""

    def __init__(self) -> None:
        self.manager = ClusterManager(backend_name="local")

    def launch(self, filler: Callable[[], None] = fill) -> None:
        """Launch a run, and fill the disk once its program has printed its first line."""
        self.manager.launch(cell=WAITS, name="digits", workers=1, ps=0, grace=1.0)
        deadline = time.monotonic() + PATIENCE
        for seen in self.manager.follow("digits"):
            if seen is not None and seen.status.phase is Phase.RUNNING:
                break
            assert time.monotonic() < deadline
        for line in self.manager.logs("digits", follow=True):
            if line is not None and line.text == "up":
                break
            assert time.monotonic() < deadline
        filler()

    def told(self) -> dict[str, Any]:
        """Return what users see of the run."""
        (run,) = self.manager.list(all_runs=True)
        return {
            "full": is_full(),
            "phase": run.status.phase.value,
            "reason": run.status.reason.value,
            "released": run.status.released_at is not None,
            "text": report.status(run),
            "logs": [line.text for line in self.manager.logs("digits") if line],
        }

    def end(self) -> dict[str, Any]:
        """End a program while the disk is full."""
        self.launch()
        before = self.told()
        GO.touch()
        self.manager.wait("digits", PATIENCE, until=Until.RELEASED)
        return {"before": before, "after": self.told(), "deleted": self.delete()}

    def stop(self, filler: Callable[[], None] = fill) -> dict[str, Any]:
        """Stop a run while the disk is full."""
        self.launch(filler)
        before = self.told()
        self.manager.stop("digits", "no room")
        self.manager.wait("digits", PATIENCE, until=Until.RELEASED)
        return {"before": before, "after": self.told(), "deleted": self.delete()}

    def inodes(self) -> dict[str, Any]:
        """Stop a run while the disk has no free inodes."""
        return self.stop(fill_inodes)

    def delete(self) -> dict[str, Any]:
        """Delete a run, running or not, and try a launch that must be refused."""
        if not (STATE / "runs" / "digits").exists():
            self.launch()
        held = self.manager.status("digits").status.usage is not None
        self.manager.delete("digits", with_logs=True)
        hours = self.manager.hours().days
        left = [run.metadata.name for run in self.manager.list()]
        refused = ""
        fill()
        try:
            self.manager.launch(cell="pass", name="other", workers=1, ps=0)
        except TFClusterError as error:
            refused = str(error)
        return {"left": left, "hours": bool(hours) is held, "refused": refused}


if __name__ == "__main__":
    print(json.dumps(getattr(Story(), sys.argv[1])()))
