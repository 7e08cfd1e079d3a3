"""Python stacks of a running task, on request: the request and the answer are files in the run's
folder.

The program's hook (`site/sitecustomize.py`) lets the kernel write every thread's stack to memory
when a real-time signal arrives, even if the program hangs. The signal is sent only to a process
that has this memory open and catches the signal, because it would end any other process. It is sent
only while the process does not compute: the handler reads the threads' frames without the GIL, so a
thread that runs Python at that time could make the process crash (CPython issues 116008 and
140815). `usage/stacks.py` of the package writes the requests and reads the answers. `keep` saves
the stacks of a stalled task in the run's folder without a request. Standard library only, Python
3.8 syntax.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time

import process
from exit_report import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FOLDER = ".tfcluster-stacks"
# The signal that requests stacks, and the name of the memory to which they are written. Both are
# the same in site/sitecustomize.py.
SIGNAL = getattr(signal, "SIGRTMAX", 64) - 7
MEMORY = "/memfd:tfcluster-stacks"
# Seconds. ANSWER is the maximum for the answer of one process, ALL the maximum for the answers of
# all processes of a task. An answer is complete when it has not grown for SETTLED seconds.
ANSWER, ALL, SETTLED = 3.0, 15.0, 0.4
# A process gets the signal after it has used no CPU for STILL seconds; LOOK is the maximum time to
# wait for such a moment.
STILL, LOOK = 0.1, 2.0
MOST_PROCESSES = 32
MOST_BYTES = 256 << 10
MOST_WORDS = 200
# Maximum bytes of the kept stacks of a run. Each task may use its share of them, but at least
# LEAST_KEPT bytes.
KEPT_BYTES, LEAST_KEPT = 8 << 20, 16 << 10
# Maximum number of requests that are answered in one check.
MOST_REQUESTS = 4
# Age in seconds from which an answer that nobody has fetched is removed.
FORGOTTEN = 600.0
_NAME = re.compile(r"\.([0-9a-f]{32})\.(ask|json)")


def answer(folder: str, task: str, family: Callable[[], list[int]]) -> None:
    """Answer the requests in `folder` for the stacks of this task, whose processes `family` lists.
    Errors of the volume are ignored: whoever wrote a request waits only for a limited time.
    """
    try:
        at = os.open(
            os.path.join(folder, FOLDER),
            os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
        )
    except OSError:
        return
    try:
        numbers = _requests(at, task)
        if not numbers:
            return
        until = time.monotonic() + ALL
        now = time.time()
        processes = [stack_of(pid, until) for pid in family()[:MOST_PROCESSES]]
        for number in numbers:
            content = {"request": number, "at": now, "processes": processes}
            _write(at, f"{task}.{number}.json", json.dumps(content).encode())
    except OSError:
        # The volume is full or was removed.
        return
    finally:
        os.close(at)


def keep(
    folder: str, task: str, family: Callable[[], list[int]], since: float, attempt: int, tasks: int
) -> None:
    """Replace the kept stacks of this task by the current stacks. The task has been inactive since
    `since`; `tasks` is the number of tasks of the run. Errors of the volume are ignored.
    """
    try:
        path = os.path.join(folder, FOLDER)
        try:
            os.mkdir(path, mode=0o755)
        except FileExistsError:
            pass
        at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        until = time.monotonic() + ALL
        now = time.time()
        left = max(LEAST_KEPT, min(MOST_BYTES, KEPT_BYTES // max(1, tasks)))
        processes = [stack_of(pid, until) for pid in family()[:MOST_PROCESSES]]
        for each in processes:
            each["stack"] = each["stack"][:left]
            left -= len(each["stack"])
        content = {"since": since, "at": now, "attempt": attempt, "processes": processes}
        _write(at, f"{task}.stalled.json", json.dumps(content).encode())
    except OSError:
        return
    finally:
        os.close(at)


def _requests(at: int, task: str) -> list[str]:
    """Remove at most MOST_REQUESTS requests for this task and return their numbers. A request that
    cannot be removed is not answered, because it would be answered again at every check. Old
    answers are removed, too.
    """
    found: list[str] = []
    for name in os.listdir(at):
        match = _NAME.fullmatch(name, len(task)) if name.startswith(task) else None
        if match is None or len(found) == MOST_REQUESTS:
            continue
        try:
            if match.group(2) == "ask":
                os.unlink(name, dir_fd=at)
                found.append(match.group(1))
            elif os.lstat(name, dir_fd=at).st_mtime < time.time() - FORGOTTEN:
                os.unlink(name, dir_fd=at)
        except OSError:
            # The request is gone, or a program has put something else here.
            continue
    return found


def _write(at: int, name: str, content: bytes) -> None:
    beside = f".{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(beside, flags, 0o644, dir_fd=at)
    try:
        with open(fd, "wb") as file:
            file.write(content)
        os.rename(beside, name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        os.unlink(beside, dir_fd=at)
        raise


def stack_of(pid: int, until: float) -> dict[str, Any]:
    """Return the command and the stacks of a process; without stacks, `problem` is a code that says
    why. Wait at most until the monotonic time `until`.
    """
    command = read_text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:MOST_WORDS]
    found = {"pid": pid, "command": command, "stack": "", "problem": ""}
    memory = _memory_of(pid)
    if not memory:
        try:
            is_python = "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            is_python = False
        found["problem"] = "NoHook" if is_python else "NotPython"
    elif not _catches(pid):
        found["problem"] = "HandlerReplaced"
    else:
        found["problem"] = _moment(pid, min(until, time.monotonic() + LOOK))
        if not found["problem"]:
            found["stack"] = _dump(pid, memory, min(until, time.monotonic() + ANSWER))
            found["problem"] = "" if found["stack"] else "NoAnswer"
    return found


def _moment(pid: int, until: float) -> str:
    """Wait until the process does not compute and can take the signal at once; then return ''. If
    this does not happen until the monotonic time `until`, return the code of the problem.

    A process that cannot take the signal at once gets none: the signal would stay pending and
    arrive when the process computes again.
    """
    while True:
        before = process.read_stat(pid)[11:13]
        time.sleep(STILL)
        problem = "Busy"
        if before and process.read_stat(pid)[11:13] == before:
            problem = _not_now(pid)
        if not problem or time.monotonic() >= until:
            return problem


def _not_now(pid: int) -> str:
    """Return '' if no thread of the process is running, and at least one thread can take the signal
    now; else return the code of the problem.
    """
    folder = f"/proc/{pid}/task"
    takes = False
    try:
        for thread in os.listdir(folder):
            words = dict(
                line.partition(":")[::2]
                for line in read_text(os.path.join(folder, thread, "status")).splitlines()
            )
            state = words.get("State", "").strip()[:1]
            if state == "R":
                return "Busy"
            if state in ("D", "T", "t"):
                # The thread waits in the kernel, or is stopped.
                return "NoAnswer"
            takes = takes or not int(words.get("SigBlk", "-1"), 16) >> (SIGNAL - 1) & 1
    except OSError:
        # The process has ended.
        pass
    return "" if takes else "NoAnswer"


def _memory_of(pid: int) -> str:
    """Return the path of the memory that the hook has opened in a process, or ''."""
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                if os.readlink(os.path.join(folder, name)).startswith(MEMORY):
                    return os.path.join(folder, name)
            except OSError:
                # The descriptor was closed after the listing.
                continue
    except OSError:
        # The process has ended, or has changed its user.
        pass
    return ""


def _catches(pid: int) -> bool:
    for line in read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _dump(pid: int, memory: str, until: float) -> str:
    """Send the signal and return the stacks that the process then writes to `memory`; '' if it does
    not answer.
    """
    try:
        fd = os.open(memory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        before = size = os.fstat(fd).st_size
        process.send(pid, SIGNAL)
        # Writes to the memory (a memfd) cause no file event, so this loop polls its size.
        grown = time.monotonic()
        while time.monotonic() < until:
            time.sleep(0.02)
            now = os.fstat(fd).st_size
            if now > size:
                size, grown = now, time.monotonic()
            elif size > before and time.monotonic() - grown > SETTLED:
                break
        return os.pread(fd, min(size - before, MOST_BYTES), before).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
