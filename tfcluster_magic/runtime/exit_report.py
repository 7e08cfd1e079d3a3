"""The report of a task's exit: cause, code, signal and last lines (TaskExit in JSON).

Owns the tail of the output in memory and the patterns that read it, the kernel's counters of memory
kills, and the two places where a report goes: the backend's pipe and the termination message.
Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time

from task_config import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# ---- the last lines: a cause rather than TensorFlow's noise, and whether a peer was lost ----


TAIL_BYTES = 64 * 1024
MAX_LINES = 20
MAX_CHARS = 500
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# What a progress bar overwrites: everything before the last \r or run of backspaces.
OVERWRITTEN = re.compile(r"\r|\x08+")
# The start of a log line and its level:
#   2024-05-01 10:00:00.123456: I tensorflow/...     TensorFlow
#   I0000 00:00:1714550400.123456   42 file.cc:1]    absl
#   WARNING:tensorflow:...                           Python's logging
LOG = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) |([IWEF])\d{4} \d\d:\d\d:"
    r"|(I)NFO:|(W)ARNING:|(E)RROR:"
)
NOISE = re.compile(
    r"WARNING: All log messages before absl|To enable the following instructions:"
    r"|Additional GRPC error information from remote target|:UNKNOWN:Error received from peer"
)
TRACEBACK = "Traceback (most recent call last)"
LOST_PEER = re.compile(
    r"\bUNAVAILABLE\b|\bABORTED\b|UnavailableError|AbortedError|[Hh]eartbeat|[Ss]ocket closed"
    r"|[Cc]onnection (?:reset|refused)|Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError"
    r"|[Cc]oordination ?[Ss]ervice|failed to connect to all addresses|GOAWAY|recvmsg:"
)


class LastLines:
    """Collects output as it comes, byte for byte; reads it only when asked."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._cut = False

    def put(self, data: bytes) -> None:
        """Take the next piece of output."""
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
            self._cut = True

    @property
    def tail(self) -> bytes:
        """The end of the output as it came."""
        return bytes(self._tail)

    def _lines(self) -> list[str]:
        lines = bytes(self._tail).decode("utf-8", "replace").split("\n")
        if self._cut and len(lines) > 1:
            del lines[0]
        return [shown for shown in map(_shown, lines) if shown]

    def lines(self, raised: bool) -> list[str]:
        """At most 20 lines without noise: the last ones, with `raised` up to the traceback's end.

        Of a message too long for that the first line is kept, which names the exception.
        """
        lines = self._lines()
        start, end = _exception_lines(lines) if raised else (0, 0)
        head = [line for line in lines[: end or None] if not _is_noise(line)] or lines
        chosen = head[-MAX_LINES:]
        if end - start > MAX_LINES:
            chosen[:2] = [lines[start], "…"]
        return [_short(line) for line in chosen]

    def follows(self, raised: bool) -> bool:
        """Whether the end of the output says that a peer was lost.

        With `raised` (the program ended by an exception) the traceback's message is believed alone:
        what is logged around it while the process goes down often speaks of peers although the
        program itself failed.
        """
        lines = self._lines()
        start, end = _exception_lines(lines) if raised else (0, 0)
        return any(LOST_PEER.search(line) for line in (lines[start:end] or lines[-MAX_LINES:]))


def _shown(line: str) -> str:
    parts = [part for part in OVERWRITTEN.split(ANSI.sub("", line)) if part.strip()]
    return "".join(c for c in parts[-1].rstrip() if c == "\t" or c.isprintable()) if parts else ""


def _short(line: str) -> str:
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def _level(line: str) -> str:
    match = LOG.match(line)
    return next(filter(None, match.groups())) if match else ""


def _is_noise(line: str) -> bool:
    return _level(line) in ("I", "W") or NOISE.match(line) is not None


def _exception_lines(lines: list[str]) -> tuple[int, int]:
    """Where the last traceback's exception and its message stand; (0, 0) without a traceback."""
    starts = [number for number, line in enumerate(lines) if TRACEBACK in line]
    if not starts:
        return 0, 0
    start = starts[-1] + 1
    while start < len(lines) and (lines[start][0] in " \t" or _level(lines[start])):
        start += 1
    end = start
    while end < len(lines) and not _level(lines[end]):
        end += 1
    return (start, end) if end > start else (0, 0)


# ---- memory kills: counters read before and after, from the own cgroup ----
# The own cgroup's counter (v2 memory.events, v1 memory.oom_control) counts its own processes only;
# the machine's (/proc/vmstat) is taken where no cgroup can be read, and proves less.


CGROUP_ROOT = "/sys/fs/cgroup"
VMSTAT = "/proc/vmstat"
# (controller as /proc/self/cgroup names it, where it is mounted, counters, limit); v2 has no name.
HIERARCHIES = (
    ("", (CGROUP_ROOT, CGROUP_ROOT + "/unified"), "memory.events", "memory.max"),
    ("memory", (CGROUP_ROOT + "/memory",), "memory.oom_control", "memory.limit_in_bytes"),
)
NO_LIMIT = 1 << 50


class OomWatch:
    """Remembers the counters at its creation."""

    def __init__(self) -> None:
        self._before = _kill_counters()

    def own(self) -> bool:
        """Whether a process of this task was killed for memory since.

        To be asked when our children are gone: a cgroup in which others live is not ours, and what
        was killed there may have been another task.
        """
        return any(_is_own_cgroup(path) for path in self._risen())

    def around(self) -> bool:
        """Whether it happened in the cgroup, ours or not, or without one on this machine."""
        return bool(self._risen())

    def _risen(self) -> list[str]:
        now = _kill_counters()
        before = {VMSTAT: now.get(VMSTAT, 0), **self._before}
        cgroups = [path for path in now if path != VMSTAT]
        return [path for path in cgroups or now if now[path] > before.get(path, 0)]


def memory_limit() -> str:
    """The own cgroup's memory limit for people, such as '512 MiB', or ''."""
    for _, path in _cgroup_files():
        value = _read(path).strip()
        if value.isdigit() and int(value) < NO_LIMIT:
            return f"{int(value) >> 20} MiB"
    return ""


def _is_own_cgroup(counters: str) -> bool:
    members = _read(os.path.join(os.path.dirname(counters), "cgroup.procs")).split()
    return members == [str(os.getpid())]


def _kill_counters() -> dict[str, int]:
    found = {}
    for path in [counters for counters, _ in _cgroup_files()] + [VMSTAT]:
        for line in _read(path).splitlines():
            if line.startswith("oom_kill "):
                found[path] = int(line.split()[1])
    return found


def _cgroup_files() -> list[tuple[str, str]]:
    """(counters, limit) of the own cgroup, which in a container may be the mount's root."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        controllers, path = line.split(":", 2)[1:]
        for controller, mounts, counters, maximum in HIERARCHIES:
            if controller not in controllers.split(","):
                continue
            for mount in mounts:
                for folder in (mount + path.rstrip("/"), mount):
                    if os.path.exists(os.path.join(folder, counters)):
                        found.append((f"{folder}/{counters}", f"{folder}/{maximum}"))
                        break
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


# ---- cause and code ----


# By these somebody outside ends a process; any other (SEGV, ABRT, ...) is the program's own doing.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What Python ends with after an exception that nobody caught.
UNCAUGHT_EXCEPTION = 1
SHELL_SIGNAL = 128


class ChildExit:
    """How the child itself ended; all None when it never ran or could not be collected."""

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
        """The signal that ended it, or that ended what the shell ran, as the shell tells it."""
        if self.shell and self.code and self.code - SHELL_SIGNAL in FROM_OUTSIDE:
            return self.code - SHELL_SIGNAL
        return self.signal


def exit_cause(child: ChildExit, memory: OomWatch) -> tuple[str, str]:
    """(cause, detail) of a child that ended by itself."""
    by = child.killed_by
    # A shell hides that what it ran was killed for memory, so its exit code does not count; another
    # program that lost a helper and still says 0 has coped.
    if (by == signal.SIGKILL and memory.around()) or (
        memory.own() and (child.shell or child.code != 0)
    ):
        limit = memory_limit()
        return "OOMKilled", "killed by the kernel for memory" + (limit and f" (limit {limit})")
    if child.code == 0:
        return "Completed", ""
    if by in FROM_OUTSIDE:
        return "Killed", f"killed by {_signal_name(by)} from outside"
    return "Error", f"ended by {_signal_name(child.signal)}" if child.signal else ""


def stop_cause(child: ChildExit) -> tuple[str, str]:
    """(cause, detail) of a child that was asked to end."""
    if child.signal == signal.SIGKILL:
        return "Stopped", "it did not end within the grace period and was killed"
    return "Stopped", ""


def task_exit(
    cause: str,
    detail: str,
    at: float = 0.0,
    child: ChildExit | None = None,
    last: LastLines | None = None,
) -> dict[str, Any]:
    """The report of an exit at `at` (epoch seconds, now when 0)."""
    raised = child is not None and child.code == UNCAUGHT_EXCEPTION
    return {
        "cause": cause,
        "finishedAt": at or time.time(),
        "exitCode": child.code if child else None,
        "signal": child.signal if child else None,
        "follows": cause == "Error" and last is not None and last.follows(raised),
        "lastLines": last.lines(raised) if last else [],
        "detail": detail,
    }


def exit_status(cause: str, child: ChildExit) -> int:
    """What our own process ends with: the child's code, 128 + signal, as of SIGTERM when stopped.

    Never 0 when stopped: a Job would count the task as done and not start it again.
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


# ---- what the backend is told: one JSON line per event, and the termination message ----
# Both stay below 4096 bytes: so much goes into a pipe in one piece, and Kubernetes keeps no more of
# a termination message.


MESSAGE_BYTES = 4000
TERMINATION_FILE = "/dev/termination-log"
# Fewer lines than this are shortened rather than dropped.
FEW_LINES = 8
MIN_CHARS = 40


class Report:
    """Writes to the report descriptor and the termination file that the environment names."""

    def __init__(self, env: dict[str, str], task: str) -> None:
        number = attempt(env)
        self._head = {"task": task, "attempt": int(number) if number.isdigit() else 1}
        self.fd = _open_descriptor(env.get("TFCLUSTER_REPORT_FD", ""))
        self._file = env.get("TFCLUSTER_TERMINATION_LOG", "")
        if not self._file and os.path.exists(TERMINATION_FILE):
            self._file = TERMINATION_FILE
        self._waiting: list[bytes] = []

    def event(self, event: str, **fields: object) -> None:
        """Tell one event. Never blocks: what does not fit now goes with the next one."""
        self._waiting.append(_encode({**self._head, "event": event, **fields}) + b"\n")
        self._flush(0)

    def exit(self, task_exit: dict[str, Any]) -> None:
        """Leave how the task ended: the termination message first, then the event."""
        head = len(_encode({**self._head, "event": "exit"}))
        task_exit = shortened(task_exit, MESSAGE_BYTES - head)
        if self._file:
            _replace_file(self._file, _encode(task_exit))
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
                # The reader is gone, which the task learns by itself.
                self._waiting.clear()
                return
            self._waiting.pop(0)


def shortened(task_exit: dict[str, Any], limit: int) -> dict[str, Any]:
    """Shorten `lastLines` until all is `limit` bytes: the oldest go, then the longest shrink."""
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
    # Undecodable names carry lone surrogates, which UTF-8 cannot write; they become "?".
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _replace_file(path: str, data: bytes) -> None:
    """Write a file in one step; nowhere to leave it is no reason to fail."""
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        # A file mounted by itself, as in a container, cannot be replaced: one write has to do.
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(data)
            os.unlink(temporary)
        except OSError:
            # The report pipe and the exit status remain.
            pass


def _open_descriptor(text: str) -> int:
    """The number of an open descriptor, or -1."""
    try:
        os.fstat(int(text))
        return int(text)
    except (OSError, ValueError):
        return -1
