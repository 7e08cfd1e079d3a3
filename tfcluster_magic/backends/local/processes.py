"""Finding, measuring and killing the processes of a run, by means of /proc.

Every process of a run is found, even if it was reparented or is in another session: by the run's
uid in its environment, by its ancestry, or by its session. Without /proc (macOS) nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

UID_VARIABLE = "TFCLUSTER_RUN_UID"
TASK_VARIABLE = "TFCLUSTER_TASK"
_EXIT_VARIABLE = b"TFCLUSTER_TERMINATION_LOG="
SUPERVISOR = os.path.join("backends", "local", "__main__.py").encode()
"""The end of the path of the file that every supervisor runs; supervisors are recognized by it."""


@dataclass(frozen=True)
class Process:
    """The fields of /proc/<pid>/stat that this module needs."""

    pid: int
    parent: int
    session: int


def snapshot() -> dict[int, Process]:
    """Return every process that is not a zombie, by pid."""
    found: dict[int, Process] = {}
    for entry in _pids():
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{entry}/stat", "rb") as file,
        ):
            fields = file.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                found[entry] = Process(pid=entry, parent=int(fields[1]), session=int(fields[3]))
    return found


def of_run(uid: str, task: str | None = None) -> list[int]:
    """Return the pids of all processes, except this process, whose environment names the run `uid`
    and, unless `task` is None, the task.
    """
    marks = [f"{UID_VARIABLE}={uid}".encode()]
    if task is not None:
        marks.append(f"{TASK_VARIABLE}={task}".encode())
    found = []
    for pid in _pids():
        variables = _words(pid, "environ")
        if all(mark in variables for mark in marks) and pid != os.getpid():
            found.append(pid)
    return found


def began(uid: str) -> dict[str, float]:
    """Return the start time of each task of this run that has processes, in seconds since 1970."""
    mark = f"{UID_VARIABLE}={uid}".encode()
    named = f"{TASK_VARIABLE}=".encode()
    found: dict[str, float] = {}
    for pid in _pids():
        variables = _words(pid, "environ")
        task = next((v for v in variables if v.startswith(named)), None)
        at = _began_at(pid) if mark in variables and task is not None else None
        if task is not None and at is not None:
            name = task[len(named) :].decode("utf-8", "replace")
            found[name] = min(at, found.get(name, at))
    return found


def _began_at(pid: int) -> float | None:
    """Return the start time of a process in seconds since 1970; None if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return None
        ticks = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks
    return None


def run_of(pid: int) -> str:
    """Return the run uid in a process's environment; empty if it has none."""
    return next(_uids(_words(pid, "environ")), "")


def uids_of(tasks: Path) -> set[str]:
    """Find the processes of tasks that write their exit status to the folder `tasks`, and return
    the uids of their runs. Call this if the record of a run is unreadable and its uid is therefore
    unknown.
    """
    place = _EXIT_VARIABLE + os.fsencode(tasks) + b"/"
    found: set[str] = set()
    for pid in _pids():
        variables = _words(pid, "environ")
        if any(each.startswith(place) for each in variables):
            found.update(_uids(variables))
    return found


def _uids(variables: Iterable[bytes]) -> Iterator[str]:
    mark = f"{UID_VARIABLE}=".encode()
    return (v[len(mark) :].decode("utf-8", "replace") for v in variables if v.startswith(mark))


def write_elsewhere(uid: str, tasks: Path) -> bool:
    """Return whether a task of this run writes its exit status to another folder than `tasks`, so
    that `tasks` belongs to a copy of the run's folder.
    """
    mark = f"{UID_VARIABLE}={uid}".encode()
    for pid in _pids():
        variables = _words(pid, "environ")
        with contextlib.suppress(OSError):
            for variable in variables if mark in variables else ():
                place = os.path.dirname(variable.removeprefix(_EXIT_VARIABLE))
                # A folder that was moved away does not count: its old path no longer exists.
                if variable.startswith(_EXIT_VARIABLE) and os.path.isdir(place):
                    return not (tasks.is_dir() and os.path.samefile(place, tasks))
    return False


def supervisors(folder: Path) -> list[int]:
    """Return the pids of the supervisors of the run in `folder`. They are found by their command
    lines, even if they have lost the lock.
    """
    found = []
    for pid in _pids():
        words = command_line(pid)
        with contextlib.suppress(OSError, ValueError):
            if (
                len(words) > 4
                and words[1:3] == [b"-I", b"-S"]
                and words[3].endswith(SUPERVISOR)
                and os.path.samefile(os.fsdecode(words[4]), folder)
                and os.stat(f"/proc/{pid}").st_uid in (os.geteuid(), os.stat(folder).st_uid)
            ):
                found.append(pid)
    return found


def tree(root: int, processes: dict[int, Process] | None = None) -> list[int]:
    """Return `root`, all its descendants, and all other processes of its session."""
    known = snapshot() if processes is None else processes
    children: dict[int, list[int]] = {}
    for process in known.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: dict[int, None] = dict.fromkeys(p.pid for p in known.values() if p.session == root)
    if root in known:
        found[root] = None
    queue = list(found)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found[child] = None
                queue.append(child)
    return list(found)


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_all(
    uid: str, task: str | None = None, within: float = 5.0, spare: Collection[int] = ()
) -> list[int]:
    """Kill every process of the run (or of one task) except `spare`, including processes that start
    in the meantime. Return the processes that still exist after `within` seconds, in
    uninterruptible waits.
    """
    deadline = time.monotonic() + within
    while left := [pid for pid in of_run(uid, task) if pid not in spare]:
        kill(left)
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)  # the kernel does not report the end of other processes' children
    return left


def pss(pids: Iterable[int]) -> int:
    """Return the memory of these processes in bytes (PSS). A page that several processes share is
    divided among them.
    """
    return sum(_memory_of(pid, "smaps_rollup", b"Pss:") for pid in pids)


def rss(pids: Iterable[int]) -> int:
    """Return the memory of these processes in bytes (RSS). A page that several processes share is
    counted once for each of them. The result is never less than that of `pss`, and cheaper to read.
    """
    total = 0
    page = os.sysconf("SC_PAGE_SIZE")
    for pid in pids:
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{pid}/statm", "rb") as file,
        ):
            total += int(file.read().split()[1]) * page
    return total


def anonymous(pids: Iterable[int]) -> int:
    """Return the memory in bytes that these processes do not share and the kernel cannot drop
    (RssAnon).
    """
    return sum(_memory_of(pid, "status", b"RssAnon:") for pid in pids)


def command_line(pid: int) -> list[bytes]:
    """Return the command line of a process; empty if it is gone."""
    return _words(pid, "cmdline")


def _words(pid: int, file: str) -> list[bytes]:
    """Return the strings in a process's /proc file `environ` or `cmdline`; empty if unreadable."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read().split(b"\0")
    return []


def _memory_of(pid: int, file: str, name: bytes) -> int:
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open(f"/proc/{pid}/{file}", "rb") as opened,
    ):
        for line in opened:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def _pids() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []
