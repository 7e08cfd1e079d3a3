"""One task as a process: its start, its environment, and its end.

Promises that a task runs in a session of its own, dies with the supervisor (parent-death signal),
leaves no core file, knows nothing of the notebook server's credentials, and writes to its log file,
or to nowhere when that cannot be opened. Forks by hand: the supervisor has one thread, and
`subprocess` is bigger than this.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ...spec import TaskExit, TaskState
from . import ports
from .processes import TASK_VARIABLE, UID_VARIABLE

PRIVATE_PREFIXES = ("JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN")
RUN_VARIABLES = frozenset(
    f"TFCLUSTER_{name}"
    for name in (
        "RUN_UID", "TASK", "TASK_TYPE", "TASK_INDEX", "CLUSTER", "RUN", "NAME", "OUTPUT_DIR",
        "ATTEMPT", "RESUME_FROM", "REPORT_FD", "TERMINATION_LOG",
    )
)  # fmt: skip
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IGNORED_HERE = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD)

_prctl: Callable[..., int] | None = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass
class Task:
    """What the supervisor knows of a task that it started."""

    name: str
    attempt: int
    pid: int | None = None
    since: float | None = None
    ready: bool = False
    idle_since: float | None = None
    exit: TaskExit | None = None
    reported: TaskExit | None = None
    kill_at: float | None = None
    uncopied: str = ""
    killed: bool = field(default=False, repr=False)

    @property
    def stop_asked(self) -> bool:
        """Whether it was asked to end."""
        return self.kill_at is not None

    @property
    def state(self) -> TaskState:
        """What it is doing."""
        if self.exit is None:
            return TaskState.RUNNING if self.ready else TaskState.STARTING
        return _STATES.get(self.exit.cause.value, TaskState.FAILED)


_STATES = {"Completed": TaskState.SUCCEEDED, "Stopped": TaskState.STOPPED}


def scrub(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the notebook server's secrets and without another run's identity."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(PRIVATE_PREFIXES) and name not in RUN_VARIABLES
    }


def environment(
    environ: Mapping[str, str],
    uid: str,
    task: Task,
    report_fd: int,
    termination_log: Path,
    gpus: Sequence[str] | None,
) -> dict[str, str]:
    """The environment of a task's `task.py`. `gpus`: device ids, () for none of those there are,
    None for a machine without any (then the variable is left alone).
    """
    env = scrub(environ)
    env.update(ports.ENVIRONMENT)
    env.update(
        {
            UID_VARIABLE: uid,
            TASK_VARIABLE: task.name,
            "TFCLUSTER_ATTEMPT": str(task.attempt),
            "TFCLUSTER_REPORT_FD": str(report_fd),
            "TFCLUSTER_TERMINATION_LOG": str(termination_log),
        }
    )
    if gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus) or "-1"
    return env


def adopt_orphans() -> None:
    """Become the parent of every process below us whose own parent ends, so that none gets away."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    cwd: Path,
    keep_fd: int,
    members: Path | None,
) -> int:
    """Start a task and return its pid. Raises OSError when not even a process can be made.

    `keep_fd` is inherited; `members` is the file of a control group to join.
    """
    parent = os.getpid()
    # A stop may come before the child has let go of the supervisor's handlers, which would swallow
    # it: blocked, it waits until the child means what it says.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED_HERE)
    try:
        pid = os.fork()
        if not pid:
            _become(argv, env, log, cwd, keep_fd, members, parent, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    cwd: Path,
    keep_fd: int,
    members: Path | None,
    parent: int,
    mask: set[int | signal.Signals],
) -> NoReturn:
    """In the child: arrange the process and turn into the task. Nothing may return or raise out of
    here.
    """
    try:
        signal.set_wakeup_fd(-1)
        for number in _IGNORED_HERE:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # until task.py asks for its own
        if os.getppid() != parent:
            os._exit(1)  # it died before the signal was arranged
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = _open_log(log)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if members is not None:
            with contextlib.suppress(OSError), open(members, "w") as file:
                file.write(str(os.getpid()))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            os.chdir(cwd)
        os.set_inheritable(keep_fd, True)
        os.execve(argv[0], list(argv), dict(env))  # noqa: S606 - a shell would be between us
    except BaseException as error:  # noqa: BLE001 - this must not go on as a second supervisor
        with contextlib.suppress(OSError):
            os.write(2, f"tfcluster: cannot start {argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _open_log(log: Path) -> int:
    how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(log, how, 0o600)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.set_blocking(fd, True)
            return fd
        why = "it is not a regular file"
    except OSError as error:
        why = str(error)
    with contextlib.suppress(OSError):  # the supervisor's log lies on the same disk
        print(f"cannot write {log}: {why}", file=sys.stderr, flush=True)
    return os.open(os.devnull, os.O_WRONLY)
