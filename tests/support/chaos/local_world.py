"""A user's runs on this machine under chaos, and their invariants.

This module manages the state folder of a test, clients that run verbs (`chaos/client.py`), and a
clock that changes for clients, supervisors and tasks. `check` reads records, processes and files.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.chaos.clients import Asking
from support.chaos.invariants import check_change, check_end, check_released

from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.spec import Status, TFCluster

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static volatile long *offset;

__attribute__((constructor)) static void attach(void)
{
    int fd = open(getenv("CHAOS_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *seconds = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    offset = seconds == MAP_FAILED ? NULL : seconds;
}

/* The machine's clock as if somebody had set it, by so many seconds as the file says. */
int clock_gettime(clockid_t id, struct timespec *at)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (id == CLOCK_REALTIME && offset)
        at->tv_sec += *offset;
    return result;
}
"""


@dataclass(frozen=True)
class Process:
    """A process of this world, as the kernel lists it."""

    pid: int
    parent: int
    words: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def task(self) -> str:
        return self.variables.get("TFCLUSTER_TASK", "")

    @property
    def is_runtime(self) -> bool:
        return any(word.endswith("/runtime/task.py") for word in self.words)


class World(Asking):
    """A user's runs on this machine, by name. Each run that was launched and not deleted must have
    a record.
    """

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which the fixture `own_folders` made and to which the environment variables
        point.
        """
        self.folder = folder
        self.backend = LocalBackend()
        self.data = self.backend.data_dir
        self.data.mkdir(parents=True)
        self.known: dict[str, str] = {}
        self.seen: dict[str, Status] = {}
        self.abandoned: set[Path] = set()
        self.uids: set[str] = set()
        source, shim, clock = folder / "clock.c", folder / "clock.so", folder / "clock"
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
        clock.write_bytes(bytes(8))
        with open(clock, "r+b") as file:
            self._clock = mmap.mmap(file.fileno(), 8)
        super().__init__({**os.environ, "LD_PRELOAD": str(shim), "CHAOS_CLOCK": str(clock)})

    def close(self) -> None:
        """End the clients and the processes left after a violated invariant."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        super().close()
        self._clock.close()

    # -- actions -----------------------------------------------------------------------------------

    def clients(self, *wishes: dict[str, Any]) -> list[dict[str, Any]]:
        """Run these requests at once, each in its own process, and return the results."""
        results = self.ask(*wishes)
        for result in results:
            if made := result.get("made"):
                assert made["name"] not in self.known, "a number was given twice"
                self.known[made["name"]] = made["uid"]
        return results

    def set_clock(self, seconds: int) -> None:
        """Set the clock's offset from the real time."""
        self._clock[:] = struct.pack("l", seconds)

    def forget(self, name: str) -> None:
        """Record that a run was deleted on purpose."""
        uid = self.known.pop(name)
        self.seen.pop(uid, None)

    def abandon(self, run: TFCluster) -> Path:
        """Record that no client will remove the folder of a run's logs; return this folder."""
        of_run = run.metadata
        output = self.backend.log_dir / of_run.cluster / str(of_run.run)
        self.abandoned |= {output, output.parent}
        return output

    # -- observations ------------------------------------------------------------------------------

    def newest(self, cluster: str) -> TFCluster | None:
        """Return the newest run of this name that has a record."""
        runs = [run for run in self.backend.list() if run.metadata.cluster == cluster]
        return max(runs, key=lambda run: run.metadata.run, default=None)

    def folder_of(self, run: TFCluster) -> Path:
        return self.backend.state_dir / "runs" / run.metadata.cluster / str(run.metadata.run)

    def processes(self) -> Iterator[Process]:
        """Return every live process of this world except the clients."""
        mark = f"TFCLUSTER_STATE_DIR={self.backend.state_dir}".encode()
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in (os.getpid(), self.clients_process.pid):
                continue
            with contextlib.suppress(OSError):
                raw = Path("/proc", entry, "environ").read_bytes().split(b"\0")
                if mark not in raw:
                    continue
                words = Path("/proc", entry, "cmdline").read_bytes().decode().split("\0")
                stat = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                variables = dict(v.decode().split("=", 1) for v in raw if b"=" in v)
                yield Process(int(entry), int(stat[1]), tuple(words), variables)

    def tasks(self, uid: str) -> list[Process]:
        """Return every process of a run's tasks."""
        return [p for p in self.processes() if p.variables.get("TFCLUSTER_RUN_UID") == uid]

    def supervisors(self, folder: Path) -> list[Process]:
        """Return the supervisors of the run in a folder, including those that are forking."""
        found = [p for p in self.processes() if {str(folder), "-I"} <= set(p.words)]
        return [p for p in found if p.parent not in {other.pid for other in found}]

    # -- invariants --------------------------------------------------------------------------------

    def adopt(self, cluster: str) -> None:
        """Record the run, if any, that a launch of this name made although its client died."""
        runs = {r.metadata.name: r.metadata.uid for r in self.backend.list()}
        unknown = {name: uid for name, uid in runs.items() if name not in self.known}
        assert len(unknown) <= 1 and all(n.rpartition("-")[0] == cluster for n in unknown), unknown
        self.known |= unknown

    def check(self) -> None:
        """Check the invariants that always hold."""
        runs = {run.metadata.name: run for run in self.backend.list()}
        assert {n: r.metadata.uid for n, r in runs.items()} == self.known, "nothing is lost or new"
        for run in runs.values():
            self._check_run(run)
        taken = [
            address
            for run in runs.values()
            if run.status.released_at is None
            for addresses in run.status.addresses.values()
            for address in addresses
        ]
        assert len(taken) == len(set(taken)), f"a port was given twice: {taken}"
        assert not (twice := [p.name for p in self.data.glob("twice-*")]), twice

    def _check_run(self, run: TFCluster) -> None:
        status, uid = run.status, run.metadata.uid
        before = self.seen.get(uid)
        if before is not None:
            check_change(before, status)
        if before is None or before.released_at is None:
            if status.phase.is_final:
                check_end(status)
            if status.released_at is not None:
                self._check_released(run)
        self.seen[uid] = status
        self.uids.add(uid)

    def _check_released(self, run: TFCluster) -> None:
        """Check that only the record and the logs of a finished run are left."""
        uid, status = run.metadata.uid, run.status
        # A killed process disappears within seconds, or later on a busy machine.
        self.until(lambda: not self.tasks(uid), f"no process of {run.metadata.name} is left")
        check_released(status)
        half = [p.name for p in self.folder_of(run).rglob("*.json.*")]
        # an unfinished stop file is removed later, together with the record
        half = [name for name in half if not name.startswith(".stop.")]
        assert not half, f"{run.metadata.name} left {half}"

    def check_nothing_left(self) -> None:
        """Check that nothing of the runs is left after all are deleted."""
        self.until(lambda: not [*self.processes()], "no process is left")
        groups = [name for _, folders, _ in os.walk("/sys/fs/cgroup") for name in folders]
        assert not [name for name in groups if any(uid in name for uid in self.uids)]
        assert [*(self.backend.state_dir / "runs").iterdir()] == []
        assert {p.name for p in self.backend.state_dir.iterdir()} <= {
            *("runs", "launch.lock"),
            "hours.json",  # the CPU-hours of the runs stay
        }
        empty = [p for p in self.backend.log_dir.rglob("*") if p.is_dir() and not [*p.iterdir()]]
        empty = [p for p in empty if not p.name.startswith(".tfcluster-run-")]
        assert not {*empty} - self.abandoned, f"folders without anything in them: {empty}"
