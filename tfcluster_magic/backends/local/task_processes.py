"""Tasks as processes: ports, environment, start and exit, and all tasks of a run as one group.

Starting or ending a task twice is harmless. No process of an attempt outlives the attempt, because
such a process would keep the port that the next attempt needs. At the end, no process of the run is
left. The lifecycle decides; this module observes the tasks and carries out the decisions.

A port belongs to one run from before the start of the tasks until the run is over. While the
supervisor lives, it keeps each port bound with SO_REUSEPORT, but never listens on it. The kernel
does not choose a bound port for a program that asks for any free port, and refuses a bound port to
other accounts and to sockets without SO_REUSEPORT. A task can bind its own port as if it were free,
because of `runtime/loopback_guard.c`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from ... import state_files
from ...errors import program_lines
from ...lifecycle import ObservedTask, Quiet, StartTask
from ...lifecycle.messages import start_oddity, with_detail
from ...quota.ledger import DEFAULT_CORES
from ...spec import Cause, Message, Spec, TaskExit, TaskState, TaskType
from ...spec.names import task_name
from ...spec.quantities import parse_memory
from ...spec.task_file import RUNTIME
from . import memory_limits, processes, supervisor_events
from .memory_limits import CHECK_INTERVAL, MemoryGuard
from .processes import TASK_VARIABLE, UID_VARIABLE
from .run_store import RunFolder
from .supervisor_events import TaskReport

LOOPBACK = "127.0.0.1"


def reserve_ports(
    counts: Mapping[TaskType, int],
) -> tuple[dict[str, tuple[str, ...]], list[socket.socket]]:
    """Return one address for each task, by task type, and the sockets that reserve them. Raises
    OSError.
    """
    addresses: dict[str, tuple[str, ...]] = {}
    held: list[socket.socket] = []
    try:
        for task_type, count in counts.items():
            mine = [_bind_port() for _ in range(count)]
            held += mine
            addresses[task_type.value] = tuple(f"{LOOPBACK}:{s.getsockname()[1]}" for s in mine)
    except OSError:
        for bound in held:
            bound.close()
        raise
    return addresses, held


def _bind_port() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((LOOPBACK, 0))
    return bound


# -- one task --------------------------------------------------------------------------------------
# A task runs in a session of its own, dies with the supervisor (parent-death signal), leaves no
# core file, and has none of the notebook server's credentials. Its output goes to its log file; if
# this file cannot be opened, the output is lost. This module calls fork itself: that is safe,
# because the supervisor has one thread, and `subprocess` would take more memory than this code.

PRIVATE_PREFIXES = ("JUPYTERHUB_", "JPY_", "JUPYTER_TOKEN")
RUN_VARIABLES = frozenset(
    f"TFCLUSTER_{name}"
    for name in (
        "RUN_UID", "TASK", "TASK_TYPE", "TASK_INDEX", "CLUSTER", "RUN", "NAME", "OUTPUT_DIR",
        "ATTEMPT", "RESUME_FROM", "REPORT_FD", "TERMINATION_LOG", "PORT",
        "SCHEDULED_FOR",
    )
)  # fmt: skip
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SUPERVISOR_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD)

_prctl: Callable[..., int] | None = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass
class TaskProcess:
    """A task that the supervisor started."""

    name: str
    attempt: int
    pid: int | None = None
    since: float | None = None
    ready: bool = False
    idle_since: float | None = None
    quiet: Quiet | None = None
    oddity: Message | None = None
    exit: TaskExit | None = None
    reported: TaskExit | None = None
    kill_at: float | None = None
    uncopied: str = ""
    wrote: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    killed: bool = field(default=False, repr=False)

    @property
    def stop_asked(self) -> bool:
        """Whether the task was asked to end."""
        return self.kill_at is not None

    @property
    def state(self) -> TaskState:
        """The state of the task."""
        if self.exit is None:
            return TaskState.RUNNING if self.ready else TaskState.STARTING
        return _STATES.get(self.exit.cause.value, TaskState.FAILED)


_STATES = {"Completed": TaskState.SUCCEEDED, "Stopped": TaskState.STOPPED}


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the notebook server's secrets and another run's identity."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(PRIVATE_PREFIXES) and name not in RUN_VARIABLES
    }


def task_environment(
    environ: Mapping[str, str],
    uid: str,
    task: TaskProcess,
    report_fd: int,
    termination_log: Path,
    gpus: Sequence[str] | None,
) -> dict[str, str]:
    """Return the environment of a task's `task.py`. `gpus` are device ids; `()` hides all GPUs from
    the task, and `None` leaves CUDA_VISIBLE_DEVICES unchanged.
    """
    env = scrubbed(environ)
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
    """Become the parent of every descendant whose own parent ends, so that no process escapes."""
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
    """Start a task and return its pid. Raises OSError if no process can be created. `keep_fd` is
    inherited; `members` is the file by which the task joins a control group.
    """
    parent = os.getpid()
    # The child inherits the supervisor's handlers, which would swallow a stop signal. Blocked
    # signals wait until the child has reset the handlers.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SUPERVISOR_SIGNALS)
    try:
        pid = os.fork()
        if not pid:
            _exec_task(argv, env, log, cwd, keep_fd, members, parent, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _exec_task(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    cwd: Path,
    keep_fd: int,
    members: Path | None,
    parent: int,
    mask: set[int | signal.Signals],
) -> NoReturn:
    """Set up the child process and execute the task. This function must neither return nor
    raise.
    """
    try:
        signal.set_wakeup_fd(-1)
        for number in _SUPERVISOR_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()
        if _prctl is not None:
            # This signal applies until task.py sets its own parent-death signal.
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the supervisor died before the signal was set up
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
        os.execve(argv[0], list(argv), dict(env))  # noqa: S606 - no shell between supervisor and task
    except BaseException as error:  # noqa: BLE001 - the child must not continue as a second supervisor
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
    # the supervisor's log is on the same disk, which may be full
    with contextlib.suppress(OSError):
        print(f"cannot write {log}: {why}", file=sys.stderr, flush=True)
    return os.open(os.devnull, os.O_WRONLY)


# -- exit status -----------------------------------------------------------------------------------
# The exit status is read from the termination message (its file, or the task's report if the disk
# is full), else from the kernel's wait status.

_MOST_LINES = 20
_MOST_CHARACTERS = 500


def exit_of(task: TaskProcess, wait_status: int, message: Path, log: Path) -> TaskExit:
    """Return how `task` ended; its `task.py` has ended with `wait_status` (wait(2)).

    Only a task that was asked to end counts as Stopped. If a signal ends any other task, the task
    counts as killed.
    """
    told = state_files.read(message, TaskExit) or task.reported
    if told is None:
        told = _exit_from_wait_status(wait_status, log)
    else:
        told = replace(told, finished_at=supervisor_events.from_wall_clock(told.finished_at))
    if task.killed:
        return with_detail(told, Cause.STOPPED, Message("GracePeriodOver"))
    if task.stop_asked and told.cause is Cause.KILLED:
        return replace(told, cause=Cause.STOPPED)
    if told.cause is Cause.STOPPED and not task.stop_asked:
        return replace(told, cause=Cause.KILLED)
    return told


def _exit_from_wait_status(wait_status: int, log: Path) -> TaskExit:
    code = os.waitstatus_to_exitcode(wait_status)
    lines = last_log_lines(log)
    if code == 127 and lines and lines[-1].startswith("tfcluster: cannot start"):
        return TaskExit(
            cause=Cause.NOT_STARTED,
            finished_at=supervisor_events.steady_now(),
            exit_code=code,
            detail=lines[-1][11:],
        )
    return TaskExit(
        cause=Cause.KILLED if code < 0 else Cause.ERROR,
        finished_at=supervisor_events.steady_now(),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        last_lines=lines,
    )


def last_log_lines(log: Path) -> tuple[str, ...]:
    """Return the last lines of a log file that TensorFlow itself did not log, limited in number and
    length as in a termination message.
    """
    text = state_files.read_tail(log, 2 * _MOST_LINES * _MOST_CHARACTERS).decode("utf-8", "replace")
    lines = text.splitlines()
    shown = program_lines(lines) or lines
    return tuple(line[:_MOST_CHARACTERS] for line in shown[-_MOST_LINES:])


# -- all tasks of a run ----------------------------------------------------------------------------

KILL_MARGIN = 2.0
"""Seconds that a `task.py` has, after the grace period, to end its child and to report the exit.
Then the supervisor kills both.
"""


class TaskGroup:
    """The processes of one run."""

    def __init__(self, folder: RunFolder, uid: str, spec: Spec, cwd: Path, report_fd: int) -> None:
        """Become the subreaper of all processes of the run. Raises OSError."""
        self._folder, self._uid, self._spec, self._cwd = folder, uid, spec, cwd
        self._report_fd = report_fd
        self._tasks: dict[str, TaskProcess] = {}
        limits = _memory_limits(spec)
        parent = memory_limits.find_parent() if limits else None
        if parent is not None:
            # If this process crashes, the process that cleans up finds the control groups by this
            # file.
            state_files.write(folder.cgroup_file, os.fsencode(parent.path))
        self._memory = MemoryGuard(uid, limits, parent)
        self._next_memory_check: float | None = None
        self.used = 0.0
        """CPU seconds of every ended process of the run."""
        adopt_orphans()

    def observe(self) -> dict[str, ObservedTask]:
        """Return every task that was ever started, in its current state."""
        return {
            task.name: ObservedTask(
                name=task.name,
                attempt=task.attempt,
                state=task.state,
                ready=task.ready,
                exit=task.exit,
                idle_since=task.idle_since,
                since=task.since,
                began=task.since,
                quiet=task.quiet if task.exit is None else None,
                oddity=task.oddity,
                uncopied=task.uncopied,
                wrote=task.wrote,
                lost=task.lost,
            )
            for task in self._tasks.values()
        }

    @property
    def cores(self) -> dict[str, float]:
        """The task types that requested no CPU, each with the number of cores that the ledger of
        hours counts for one of its tasks.
        """
        asked = {t: self._spec.replicas.of(t).resources.cpu for t in self._spec.replicas.counts}
        return {t.value: DEFAULT_CORES for t, cpu in asked.items() if not cpu}

    @property
    def has_failures(self) -> bool:
        """Whether a task ended without success."""
        ends = (task.exit for task in self._tasks.values() if task.exit is not None)
        return any(task_exit.cause is not Cause.COMPLETED for task_exit in ends)

    def start(self, wanted: StartTask) -> None:
        """Start one attempt of a task."""
        old = self._tasks.get(wanted.task)
        if old is not None and (old.exit is None or old.attempt >= wanted.attempt):
            return
        task = self._tasks[wanted.task] = TaskProcess(wanted.task, wanted.attempt)
        message = self._termination_message(task)
        with contextlib.suppress(OSError):
            message.unlink()
        env = task_environment(
            os.environ, self._uid, task, self._report_fd, message, self._gpus_of(task)
        )
        program = str(RUNTIME / "task.py")
        runtime = [sys.executable, "-S", "-E", program, str(self._folder.task_file), task.name]
        members = self._memory.admit(task.name)
        try:
            task.pid = spawn(runtime, env, self._log(task), self._cwd, self._report_fd, members)
            task.since = supervisor_events.steady_now()
        except OSError as error:
            ended = TaskExit(cause=Cause.NOT_STARTED, finished_at=supervisor_events.steady_now())
            why = Message("NoMoreProcesses", {"why": str(error.strerror)})
            task.exit = with_detail(ended, Cause.NOT_STARTED, why)

    @cached_property
    def _gpus(self) -> dict[str, tuple[str, ...]] | None:
        """The devices of each task, which are assigned before the first task starts."""
        return state_files.read(self._folder.gpus_file, dict[str, tuple[str, ...]])

    def _gpus_of(self, task: TaskProcess) -> tuple[str, ...] | None:
        """Return a task's devices; None if the user's value of CUDA_VISIBLE_DEVICES stays."""
        if self._gpus is None:
            return None
        given = self._gpus.get(task.name, ())
        return None if not given and "CUDA_VISIBLE_DEVICES" in self._spec.env else given

    def end(self, names: Iterable[str]) -> None:
        """Ask tasks to end; `enforce_limits` kills tasks that outlast the grace period."""
        for name in names:
            task = self._tasks[name]
            if task.exit is None and task.pid is not None and not task.stop_asked:
                task.kill_at = (
                    supervisor_events.steady_now() + self._spec.lifecycle.grace + KILL_MARGIN
                )
                # the task is not reaped yet, so no other process has its pid
                os.kill(task.pid, signal.SIGTERM)

    def take_reports(self, reports: Iterable[TaskReport]) -> None:
        """Store the reports of tasks."""
        for report in reports:
            task = self._tasks.get(report.task)
            if task is None or task.attempt != report.attempt:
                continue
            if report.event in ("ready", "sign"):
                task.ready = True
                task.oddity = start_oddity(
                    task.name,
                    report.sign,
                    report.own,
                    report.ports,
                    report.cores,
                    report.seconds,
                )
            elif report.event == "quiet":
                task.quiet = (
                    None
                    if report.since is None
                    else Quiet(
                        since=supervisor_events.from_wall_clock(report.since),
                        peer=report.peer,
                        words=report.words,
                    )
                )
            elif report.event == "idle":
                task.idle_since = (
                    None
                    if report.since is None
                    else supervisor_events.from_wall_clock(report.since)
                )
            elif report.event == "copy":
                task.uncopied = report.problem or task.uncopied
            elif report.event == "writes" and report.gone:
                task.lost = (*task.lost, report.folder)
            elif report.event == "writes":
                task.wrote = (*task.wrote, report.folder)
            elif report.event == "exit":
                task.reported = report.exit

    def reap(self) -> None:
        """Collect every child that has ended: tasks, and orphans that we adopted."""
        ended = {}
        for pid, wait_status, seconds in _ended_children():
            ended[pid] = wait_status
            self.used += seconds
        for task in self._alive():
            if task.pid in ended:
                processes.end_all(self._uid, task.name)
                message = self._termination_message(task)
                told = exit_of(task, ended[task.pid], message, self._log(task))
                task.exit = self._memory.explain(task.name, told)

    @property
    def due(self) -> float | None:
        """The time at which `enforce_limits` must be called (epoch seconds)."""
        watched = self._memory.watched(task.name for task in self._alive())
        next_check = self._next_memory_check or supervisor_events.steady_now() + CHECK_INTERVAL
        self._next_memory_check = next_check if watched else None
        kills = [task.kill_at for task in self._alive() if task.kill_at is not None]
        return min(filter(None, [self._next_memory_check, *kills]), default=None)

    def enforce_limits(self) -> None:
        """Kill tasks that outlast their grace period, and tasks above their memory limits."""
        now = supervisor_events.steady_now()
        if self._next_memory_check is not None and now >= self._next_memory_check:
            roots = {task.name: task.pid for task in self._alive() if task.pid is not None}
            self._memory.enforce({name: roots[name] for name in self._memory.watched(roots)})
            self._next_memory_check = now + CHECK_INTERVAL
        for task in self._alive():
            if task.pid is not None and task.kill_at is not None and now >= task.kill_at:
                task.killed = True
                # kill again after a second, because more processes may have started in the meantime
                task.kill_at = now + 1.0
                members = processes.tree(task.pid)
                processes.kill({*members, *processes.of_run(self._uid, task.name)})

    def clean_up(self) -> None:
        """End every process and remove every control group of the run."""
        processes.end_all(self._uid)
        # Processes that hide their environment are still our descendants, because we adopt orphans.
        processes.kill(pid for pid in processes.tree(os.getpid()) if pid != os.getpid())
        self._memory.close()

    def _alive(self) -> list[TaskProcess]:
        return [task for task in self._tasks.values() if task.exit is None]

    def _termination_message(self, task: TaskProcess) -> Path:
        return self._folder.tasks / f"{task.name}.exit.json"

    def _log(self, task: TaskProcess) -> Path:
        return self._folder.tasks / f"{task.name}.log"


def _memory_limits(spec: Spec) -> dict[str, int]:
    """Return the memory limits in bytes by task."""
    return {
        task_name(task_type, index): parse_memory(memory)
        for task_type, count in spec.replicas.counts.items()
        if (memory := spec.replicas.of(task_type).resources.memory)
        for index in range(count)
    }


def _ended_children() -> Iterable[tuple[int, int, float]]:
    """Yield each ended child: pid, wait status, and CPU seconds, including the CPU seconds of the
    children that this child reaped.
    """
    while True:
        try:
            pid, wait_status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, wait_status, used.ru_utime + used.ru_stime
