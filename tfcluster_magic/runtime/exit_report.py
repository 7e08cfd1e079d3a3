"""The report of a task's exit: cause, code, signal and what its output shows (TaskExit in JSON).

This module reads the kernel's counters of memory kills, and writes to the backend's pipe and the
termination message. `printed_errors` reads the output. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from task_config import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from printed_errors import LastLines


# ---- memory kills: the kernel's counters before and after the program ----
# The counter of the task's cgroup (v2 memory.events, v1 memory.oom_control) counts only processes
# of this cgroup. If no cgroup is readable, the machine's counter (/proc/vmstat) is used, which
# counts all processes of the machine.


CGROUP_ROOT = "/sys/fs/cgroup"
VMSTAT = "/proc/vmstat"
# For each cgroup version: the controller's name in /proc/self/cgroup (empty in v2), the folders
# where it may be mounted, the file with the counters of memory kills, and the file with the memory
# limit.
HIERARCHIES = (
    ("", (CGROUP_ROOT, CGROUP_ROOT + "/unified"), "memory.events", "memory.max"),
    ("memory", (CGROUP_ROOT + "/memory",), "memory.oom_control", "memory.limit_in_bytes"),
)
NO_LIMIT = 1 << 50


class OomWatch:
    """The counters of memory kills at the time when this object was created."""

    def __init__(self) -> None:
        self._before = _kill_counters()

    def own(self) -> bool:
        """Return whether a process of this task was killed for memory since this object was
        created.

        Call this after all processes of the task have ended. If other processes still run in the
        cgroup then, other tasks share the cgroup. Then the answer is False, because the killed
        process may have been theirs.
        """
        return any(_is_own_cgroup(path) for path in self._risen())

    def around(self) -> bool:
        """Return whether any process in the cgroup was killed for memory; if no cgroup is readable,
        whether any process on this machine was.
        """
        return bool(self._risen())

    def _risen(self) -> list[str]:
        now = _kill_counters()
        before = {VMSTAT: now.get(VMSTAT, 0), **self._before}
        cgroups = [path for path in now if path != VMSTAT]
        return [path for path in cgroups or now if now[path] > before.get(path, 0)]


def memory_limit() -> str:
    """Return the memory limit of the task's cgroup as a quantity, such as '512Mi', or ''."""
    for _, path in _cgroup_files():
        value = read_text(path).strip()
        if value.isdigit() and int(value) < NO_LIMIT:
            return f"{int(value) >> 20}Mi"
    return ""


def _is_own_cgroup(counters: str) -> bool:
    members = read_text(os.path.join(os.path.dirname(counters), "cgroup.procs")).split()
    return members == [str(os.getpid())]


def _kill_counters() -> dict[str, int]:
    found = {}
    for path in [counters for counters, _ in _cgroup_files()] + [VMSTAT]:
        for line in read_text(path).splitlines():
            if line.startswith("oom_kill "):
                found[path] = int(line.split()[1])
    return found


def _cgroup_files() -> list[tuple[str, str]]:
    """Return a pair of paths for each cgroup of the task: the file with the counters of memory
    kills, and the file with the memory limit.
    """
    found = []
    for controller, mounts, counters, maximum in HIERARCHIES:
        folder = find_cgroup(controller, mounts, counters)
        if folder:
            found.append((f"{folder}/{counters}", f"{folder}/{maximum}"))
    return found


def find_cgroup(controller: str, mounts: tuple[str, ...], file: str) -> str:
    """Return the folder of the task's cgroup that has this file, or ''. In a container, this folder
    may be the root of the mount.
    """
    for line in read_text("/proc/self/cgroup").splitlines():
        controllers, path = line.split(":", 2)[1:]
        if controller in controllers.split(","):
            for mount in mounts:
                for folder in (mount + path.rstrip("/"), mount):
                    if os.path.exists(os.path.join(folder, file)):
                        return folder
    return ""


def read_text(path: str) -> str:
    """Return the text of a file of the kernel, or '' if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


# ---- cause and code ----


# Signals that come from outside; any other (SEGV, ABRT, ...) is raised by the program itself.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Signals by which native code ends its own process.
CRASHES = (
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGILL,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGTRAP,
    signal.SIGSYS,
)
SHELL_SIGNAL = 128


class ChildExit:
    """The exit of the child, without its descendants. `code` and `signal` are None if the child
    never ran or its exit was not collected.
    """

    def __init__(self, status: int | None, shell: bool) -> None:
        self.ran = status is not None
        self.shell = shell
        self.code: int | None = None
        self.signal: int | None = None
        if status is not None and os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
        elif status is not None:
            self.code = os.WEXITSTATUS(status)

    @property
    def killed_by(self) -> int | None:
        """The signal that ended the child; for a shell, the signal that ended its command, which
        the exit code of the shell shows.
        """
        told = self.code - SHELL_SIGNAL if self.shell and self.code else 0
        return told if told in (*FROM_OUTSIDE, *CRASHES) else self.signal


def exit_cause(child: ChildExit, memory: OomWatch) -> tuple[str, str]:
    """Return why a child ended, as a pair (cause, detail), if it was not stopped on request."""
    by = child.killed_by
    # A shell may exit with 0 although its command was killed for memory, so the exit code of a
    # shell does not count. Any other program that lost a process and exits with 0 has handled the
    # loss.
    if (by == signal.SIGKILL and memory.around()) or (
        memory.own() and (child.shell or child.code != 0)
    ):
        limit = memory_limit()
        # `lifecycle.messages.out_of_memory_detail` has the same text. If the task had no limit,
        # the machine's memory was used up.
        return "OOMKilled", f"limit {limit}" if limit else "killed by the kernel for memory"
    if child.code == 0:
        return "Completed", ""
    if by in FROM_OUTSIDE:
        return "Killed", f"killed by {_signal_name(by)} from outside"
    return "Error", f"ended by {_signal_name(by)}" if by else ""


def stop_cause(child: ChildExit) -> tuple[str, str]:
    """Return how a child ended after a request to stop, as a pair (cause, detail)."""
    if child.signal == signal.SIGKILL:
        return "Stopped", "it did not end within the grace period and was killed"
    return "Stopped", ""


def task_exit(
    cause: str,
    detail: str,
    at: float = 0.0,
    child: ChildExit | None = None,
    last: LastLines | None = None,
    folder: str = "",
) -> dict[str, Any]:
    """Return the report of an exit at `at` (epoch seconds, now if 0) of a program in `folder`."""
    crash = child.killed_by if child and cause == "Error" else None
    output = last.report(cause, bool(crash), bool(child and child.shell), folder) if last else {}
    return {
        "cause": cause,
        "finishedAt": at or time.time(),
        "exitCode": child.code if child and not crash else None,
        "signal": crash or (child.signal if child else None),
        "follows": False,
        "lastLines": [],
        "detail": detail,
        **output,
    }


def exit_status(cause: str, child: ChildExit) -> int:
    """Return the exit status with which this process, PID 1 of the task, ends. It is the child's
    code, or 128 + the child's signal.

    After a stop, the status is 128 + SIGTERM (or SIGKILL if the child was killed), even if the
    child's code is 0. With status 0, a Job would count the task as done and not start it again.
    """
    if cause == "Stopped" and child.signal != signal.SIGKILL:
        return SHELL_SIGNAL + signal.SIGTERM
    if child.signal:
        return SHELL_SIGNAL + child.signal
    return 1 if child.code is None else child.code


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


# ---- reports to the backend: one JSON line per event, and the termination message ----
# Lines and messages stay below 4096 bytes: up to this size, a write to a pipe is not split, and
# Kubernetes keeps a termination message completely.


MESSAGE_BYTES = 4000
TERMINATION_FILE = "/dev/termination-log"
# A report that is too long loses the oldest of its `lastLines` until FEW_LINES are left. If it is
# still too long, the longest line is shortened, repeatedly. When no line has MIN_CHARS characters
# any more, the oldest lines are dropped instead.
FEW_LINES = 8
MIN_CHARS = 40


class Report:
    """A writer to the report pipe and the termination file that the environment names."""

    def __init__(self, env: dict[str, str], task: str) -> None:
        number = attempt(env)
        self._head = {"task": task, "attempt": int(number) if number.isdigit() else 1}
        self.fd = _open_descriptor(env.get("TFCLUSTER_REPORT_FD", ""))
        self._file = env.get("TFCLUSTER_TERMINATION_LOG", "")
        if not self._file and os.path.exists(TERMINATION_FILE):
            self._file = TERMINATION_FILE
        self._waiting: list[bytes] = []

    def event(self, event: str, **fields: object) -> None:
        """Send the event `event`, such as "ready", to the backend. Never blocks: an event that the
        full pipe does not take now is sent with the next event.
        """
        self._waiting.append(_encode({**self._head, "event": event, **fields}) + b"\n")
        self._flush(0)

    def exit(self, task_exit: dict[str, Any], usage: str = "") -> None:
        """Report how the task ended: write the termination message, then the event. `usage` is
        ASCII text that is added below the report in the termination message.
        """
        head = len(_encode({**self._head, "event": "exit"}))
        task_exit = shortened(task_exit, MESSAGE_BYTES - head - len(usage))
        if self._file:
            below = f"\n{usage}".encode() if usage else b""
            _replace_file(self._file, _encode(task_exit) + below)
        self.event("exit", **task_exit)
        self._flush(2.0)

    def _flush(self, seconds: float) -> None:
        poll = select.poll()
        if self.fd >= 0:
            poll.register(self.fd, select.POLLOUT)
        while self._waiting and self.fd >= 0 and poll.poll(int(seconds * 1000)):
            try:
                os.write(self.fd, self._waiting[0])
            except OSError:
                # The reader is gone; `Task` notices this by poll().
                self._waiting.clear()
                return
            self._waiting.pop(0)


def shortened(task_exit: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return the report in at most `limit` bytes of JSON, if possible: the oldest of `lastLines`
    are dropped, then the longest are shortened.
    """
    lines = list(task_exit["lastLines"])
    task_exit = {**task_exit, "lastLines": lines, "detail": task_exit["detail"][:500]}
    while len(_encode(task_exit)) > limit and lines:
        longest = max(range(len(lines)), key=lambda number: len(lines[number]))
        if len(lines) > FEW_LINES or len(lines[longest]) < MIN_CHARS:
            lines.pop(0)
        else:
            lines[longest] = lines[longest][: len(lines[longest]) * 3 // 4] + "…"
    return task_exit


def _encode(value: dict[str, Any]) -> bytes:
    # Names that are not UTF-8 have lone surrogates, which cannot be encoded; they become "?".
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _replace_file(path: str, data: bytes) -> None:
    """Write a file such that readers see either its old or its new content, if possible. Does
    nothing if the file cannot be written.
    """
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        # In a container, the file may be a mount point, which cannot be replaced: write to it
        # instead.
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(data)
            os.unlink(temporary)
        except OSError:
            # The report pipe and the exit status still show how the task ended.
            pass


def _open_descriptor(text: str) -> int:
    """Return the file descriptor that `text` names; -1 if it is not a number or not open."""
    try:
        os.fstat(int(text))
        return int(text)
    except (OSError, ValueError):
        return -1
