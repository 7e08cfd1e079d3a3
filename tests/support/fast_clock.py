"""The clock process of schedules, with a fast clock; tests can kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.polling import wait_until
from support.project import ROOT
from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.local import schedule_store
from tfcluster_magic.runs.manager import Until

_PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tfcluster_magic.backends.local.clock import main
base, speed = float(sys.argv[3]), float(sys.argv[4])
main(sys.argv[2], lambda: base + (time.time() - base) * speed)
"""


class FastClock:
    """A clock process for which `speed` seconds pass in each real second."""

    def __init__(self, state_dir: Path, base: float, speed: float) -> None:
        self.state_dir, self.base, self.speed = state_dir, base, speed

    def now(self) -> float:
        """Return the time of the clock process."""
        return self.base + (time.time() - self.base) * self.speed

    def start(self) -> None:
        """Start the clock process unless it is running."""
        words = [str(ROOT), str(self.state_dir), str(self.base), str(self.speed)]
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *words], start_new_session=True)
        assert process.wait() == 0
        wait_until(lambda: self.pid() is not None)

    def pid(self) -> int | None:
        """Return the pid of the clock process; None if it is not running. Do not take the process's
        lock, because a starting process needs it.
        """
        lock = self.state_dir / "schedules" / "clock.lock"
        with contextlib.suppress(OSError):
            pid = lock.read_text()
            if pid and str(self.state_dir) in Path("/proc", pid, "cmdline").read_text():
                return int(pid)
        return None

    def kill(self) -> None:
        """Kill the clock process and its launch processes."""
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            wait_until(self._has_let_go, "nothing of the clock is left")

    def _has_let_go(self) -> bool:
        fd = schedule_store.take_clock_lock(self.state_dir)
        if fd is not None:
            os.close(fd)
        return fd is not None


@pytest.fixture
def scheduler(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterManager]:
    """Yield a manager in a folder with programs; end its schedules, clock and runs afterwards."""
    folder = own_folders / "work"
    folder.mkdir()
    tell = "import os, sys\nprint(os.environ['TFCLUSTER_SCHEDULED_FOR'], *sys.argv[1:])\n"
    (folder / "tell.py").write_text(tell)
    (folder / "fail.py").write_text("raise SystemExit(3)\n")
    (folder / "sleep.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    (folder / "quick.sh").write_text("exit 0\n")
    monkeypatch.chdir(folder)
    manager = ClusterManager()
    yield manager
    for each in manager.schedules.list():
        manager.schedules.delete(each.name)
    clock = FastClock(manager.backend.schedules().state_dir, 0.0, 1.0)
    wait_until(lambda: clock.pid() is None, "the clock has ended", 20)
    for run in manager.list(all_runs=True):
        manager.stop(run.metadata.name)
    for run in manager.list(all_runs=True):
        manager.wait(run.metadata.name, 60, until=Until.RELEASED)
