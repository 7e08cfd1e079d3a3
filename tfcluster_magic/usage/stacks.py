"""Python stacks of a run's tasks: requests and answers are files in the run's folder.

`runtime/stacks.py`, which runs in each task, writes the answers. This module itself executes
nothing in a task, and needs no permission to trace processes.
"""

from __future__ import annotations

import os
import re
import stat
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from .. import state_files
from ..errors import Conflict, one_line
from ..i18n import _, mark
from ..spec import Model, conversion

FOLDER = ".tfcluster-stacks"
WITHIN = 30.0
"""Maximum seconds to wait for answers; a task checks for requests every two to ten seconds."""
_MOST_BYTES = 9 << 20
_POLL = 0.1

PROBLEMS = {
    "NotPython": mark("it is not a Python process"),
    "NoHook": mark(
        "this Python runs without the hook of TFCluster: it was started by `python -I`, `-E` or "
        "`-S` or with another PYTHONPATH, or it has closed all of its files"
    ),
    "HandlerReplaced": mark("the program has replaced or reset the signal handler of the hook"),
    "NoAnswer": mark("it did not answer: it is stopped, waits for a volume, or blocks signals"),
    "Busy": mark("it computes, and reading its stacks could crash it; ask again when it hangs"),
}


class ProcessStack(Model, frozen=True, omit_defaults=False):
    """One process of a task: the Python stacks of its threads, or the code of `PROBLEMS` that says
    why there are none.
    """

    pid: int
    command: str
    stack: str
    problem: str


class TaskStack(Model, frozen=True, omit_defaults=False):
    """The processes of a task at the time `at`, which is None if the task has not answered. For
    stacks that were taken automatically, `since` is the time of the task's last activity.
    """

    task: str
    at: float | None
    since: float | None = None
    processes: tuple[ProcessStack, ...] = ()


class RunStacks(Model, frozen=True, omit_defaults=False):
    """The stacks of tasks of a run."""

    name: str
    tasks: tuple[TaskStack, ...]


class _KeptStack(msgspec.Struct):
    at: float
    since: float
    processes: tuple[ProcessStack, ...]


class _StackAnswer(msgspec.Struct):
    request: str
    at: float
    processes: tuple[ProcessStack, ...]


def ask(name: str, output: str, tasks: Sequence[str], within: float = WITHIN) -> RunStacks:
    """Return the stacks of these tasks; wait at most `within` seconds for them.

    Raises:
        Conflict: a request cannot be written.
    """
    number = uuid.uuid4().hex
    found: dict[str, _StackAnswer] = {}
    folder = _open_folder(Path(output, FOLDER))
    try:
        _request(folder, Path(output, FOLDER), tasks, number)
        until = time.monotonic() + within
        # Poll, because network file systems do not notify of new files.
        while len(found) < len(tasks) and time.monotonic() < until:
            time.sleep(_POLL)
            for task in tasks:
                told = None if task in found else _answer(folder, f"{task}.{number}.json")
                if told is not None and told.request == number:
                    found[task] = told
    finally:
        for task in tasks:
            for kind in ("ask", "json"):
                with suppress(OSError):
                    os.unlink(f"{task}.{number}.{kind}", dir_fd=folder)
        os.close(folder)
    return RunStacks(name=name, tasks=tuple(_of_task(task, found.get(task)) for task in tasks))


def kept(name: str, output: str, tasks: Sequence[str]) -> RunStacks:
    """Return the stacks that were taken automatically when tasks stalled. A task that has not
    stalled is left out.
    """
    files = {task: Path(output, FOLDER, f"{task}.stalled.json") for task in tasks}
    found = state_files.read_together(files, lambda task: _read_kept(files[task]))
    stacks = [
        TaskStack(task=task, at=told.at, since=told.since, processes=told.processes)
        for task in tasks
        if (told := found.get(task)) is not None
    ]
    return RunStacks(name=name, tasks=tuple(stacks))


def _read_kept(path: Path) -> _KeptStack | None:
    try:
        fd = state_files.open_regular(path, owned=False)
        with os.fdopen(fd, "rb") as file:
            told = conversion.decode(file.read(_MOST_BYTES), _KeptStack)
    except (OSError, state_files.Unreadable, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # there are no stacks, or the task's program wrote something else here
    times = (told.at, told.since)
    return told if all(0 <= each < state_files.MOST_NUMBER for each in times) else None


class Standstill(NamedTuple):
    """The place in the program at which the main thread of a stalled task was at the time `at`: the
    innermost line of the program on the stack, and whether this line waited for a call of
    TensorFlow.
    """

    at: float
    file: str
    line: int
    function: str
    in_tensorflow: bool


# Lines of the stacks that faulthandler writes: the newest thread first and the main thread last,
# each with its newest call first.
_THREAD = re.compile(r"^(?:Current t|T)hread .*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.{1,4096})", line (\d{1,9}) in (.{1,200})$', re.MULTILINE)
_NO_PROGRAM = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python3|/__autograph_generated")


def standstills(found: RunStacks) -> dict[str, Standstill]:
    """Return, by task, the place in the program at which the task was when its stacks were taken. A
    task whose stack has no line of its program is left out.
    """
    told = {}
    for task in found.tasks:
        stack = next((each.stack for each in task.processes if each.stack), "")
        inside = False
        for frame in _FRAME.finditer(_THREAD.split(stack)[-1]):
            path, line, function = frame.groups()
            if not _NO_PROGRAM.search(path):
                file, function = one_line(os.path.basename(path)), one_line(function)
                told[task.task] = Standstill(task.at or 0.0, file, int(line), function, inside)
                break
            inside |= "/tensorflow/" in path
    return told


def _open_folder(path: Path) -> int:
    """Open the folder of requests; a link in its place is not followed. Raises Conflict."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o755)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _request(folder: int, path: Path, tasks: Sequence[str], number: str) -> None:
    """Write a request for each task: an empty file whose name has the task and the number of the
    request. Raises Conflict if it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        for task in tasks:
            os.close(os.open(f"{task}.{number}.ask", flags, 0o644, dir_fd=folder))
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> Conflict:
    return Conflict(
        _("a file in {folder} that asks for the stacks cannot be written: {why}").format(
            folder=path, why=error.strerror
        )
    )


def _of_task(task: str, told: _StackAnswer | None) -> TaskStack:
    return (
        TaskStack(task=task, at=None)
        if told is None
        else TaskStack(task=task, at=told.at, processes=told.processes)
    )


def _answer(folder: int, name: str) -> _StackAnswer | None:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return conversion.decode(file.read(_MOST_BYTES), _StackAnswer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # there is no answer yet, or the task's program wrote something else here


def stack_text(found: RunStacks) -> str:
    """Return the stacks as text: a block for each process of each task."""
    blocks = []
    for task in found.tasks:
        if task.at is None:
            blocks.append(
                _(
                    "{task} did not answer: it does not run, or waits for its volume. "
                    "`tfcluster status {name}` shows it"
                ).format(task=task.task, name=found.name)
            )
        elif not task.processes:
            blocks.append(_("{task} has no process").format(task=task.task))
        if task.at is not None and task.since is not None:
            blocks.append(
                _("{task} has done nothing since {since}; its stacks at {at}:").format(
                    task=task.task, since=_time(task.since), at=_time(task.at)
                )
            )
        for each in task.processes:
            head = _("{task}, process {pid}: {command}").format(
                task=task.task, pid=each.pid, command=each.command
            )
            problem = _(PROBLEMS[each.problem]) if each.problem in PROBLEMS else each.problem
            blocks.append(f"{head}\n{each.stack.rstrip() or problem}")
    return "\n\n".join(blocks)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
