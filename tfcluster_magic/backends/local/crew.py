"""All tasks of a run as processes: started, asked to end, killed, and how each of them ended.

Promises that starting or ending twice is harmless, that nothing of an attempt outlives it (it would
keep the port of the next), and that at the end no process of the run is left. It decides nothing:
it does what the lifecycle says and reports what it sees.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from ... import state_files
from ...i18n import _
from ...lifecycle import ObservedTask, StartTask
from ...quota.usage import USUAL_CORES
from ...spec import Cause, Spec, TaskExit
from ...spec.names import task_name
from ...spec.quantities import parse_memory
from . import clock, memory_limits, processes
from .ends import how_it_ended
from .memory import PERIOD, MemoryGuard
from .store import RunFolder
from .tasks import Task, adopt_orphans, environment, spawn
from .wakeups import Report

RUNTIME = Path(__file__).resolve().parents[2] / "runtime" / "task.py"
KILL_MARGIN = 2.0
"""Seconds beyond the grace period for a `task.py` to end its child and to say how it ended."""


class Crew:
    """The processes of one run."""

    def __init__(self, folder: RunFolder, uid: str, spec: Spec, cwd: Path, report_fd: int) -> None:
        """Become the parent that they need. Raises OSError."""
        self._folder, self._uid, self._spec, self._cwd = folder, uid, spec, cwd
        self._report_fd = report_fd
        self._tasks: dict[str, Task] = {}
        self._gpus = state_files.read(folder.gpus_file, dict[str, tuple[str, ...]])
        limits = _limits(spec)
        parent = memory_limits.find() if limits else None
        if parent is not None:
            state_files.write(folder.cgroup_file, os.fsencode(parent.path))  # in case we crash
        self._memory = MemoryGuard(uid, limits, parent)
        self._next_memory_check: float | None = None
        self.used = 0.0
        """CPU seconds of every process of the run that has ended."""
        adopt_orphans()

    def observe(self) -> dict[str, ObservedTask]:
        """Every task that was ever started, as it is now."""
        return {
            task.name: ObservedTask(
                name=task.name,
                attempt=task.attempt,
                state=task.state,
                ready=task.ready,
                exit=task.exit,
                idle_since=task.idle_since,
                since=task.since,
                uncopied=task.uncopied,
            )
            for task in self._tasks.values()
        }

    @property
    def cores(self) -> dict[str, float]:
        """What a task counts for that asks for no CPU."""
        asked = {t: self._spec.replicas.of(t).resources.cpu for t in self._spec.replicas.counts}
        return {t.value: USUAL_CORES for t, cpu in asked.items() if not cpu}

    @property
    def has_failures(self) -> bool:
        """Whether a task ended other than well."""
        ends = (task.exit for task in self._tasks.values() if task.exit is not None)
        return any(task_exit.cause is not Cause.COMPLETED for task_exit in ends)

    def start(self, wanted: StartTask) -> None:
        """Start one attempt of a task."""
        old = self._tasks.get(wanted.task)
        if old is not None and (old.exit is None or old.attempt >= wanted.attempt):
            return
        task = self._tasks[wanted.task] = Task(wanted.task, wanted.attempt)
        message = self._termination_message(task)
        with contextlib.suppress(OSError):
            message.unlink()
        env = environment(
            os.environ, self._uid, task, self._report_fd, message, self._gpus_of(task)
        )
        runtime = [sys.executable, "-S", "-E", str(RUNTIME), str(self._folder.task_file), task.name]
        members = self._memory.admit(task.name)
        try:
            task.pid = spawn(runtime, env, self._log(task), self._cwd, self._report_fd, members)
            task.since = clock.now()
        except OSError as error:
            task.exit = TaskExit(
                cause=Cause.NOT_STARTED,
                finished_at=clock.now(),
                detail=_("this machine gives no more processes ({why})").format(why=error.strerror),
            )

    def _gpus_of(self, task: Task) -> tuple[str, ...] | None:
        """Its devices; None leaves the choice to the user or, without any GPU, to nobody."""
        if self._gpus is None:
            return None
        given = self._gpus.get(task.name, ())
        return None if not given and "CUDA_VISIBLE_DEVICES" in self._spec.env else given

    def end(self, names: Iterable[str]) -> None:
        """Ask tasks to end; `enforce_limits` kills one that does not within the grace period."""
        for name in names:
            task = self._tasks[name]
            if task.exit is None and task.pid is not None and not task.stop_asked:
                task.kill_at = clock.now() + self._spec.lifecycle.grace + KILL_MARGIN
                os.kill(task.pid, signal.SIGTERM)  # not reaped, so the pid is still its own

    def take_reports(self, reports: Iterable[Report]) -> None:
        """Take down what tasks say of themselves."""
        for report in reports:
            task = self._tasks.get(report.task)
            if task is None or task.attempt != report.attempt:
                continue
            if report.event == "ready":
                task.ready = True
            elif report.event == "idle":
                task.idle_since = None if report.since is None else clock.from_wall(report.since)
            elif report.event == "copy":
                task.uncopied = report.problem or task.uncopied
            elif report.event == "exit":
                task.reported = report.exit

    def reap(self) -> None:
        """Collect every child that has ended: tasks, and their orphans, which came to us."""
        ended = {}
        for pid, wait_status, seconds in _ended_children():
            ended[pid] = wait_status
            self.used += seconds
        for task in self._alive():
            if task.pid in ended:
                processes.end_all(self._uid, task.name)
                message = self._termination_message(task)
                told = how_it_ended(task, ended[task.pid], message, self._log(task))
                task.exit = self._memory.explain(task.name, told)

    @property
    def due(self) -> float | None:
        """When `enforce_limits` has something to do (epoch seconds)."""
        watched = self._memory.watched(task.name for task in self._alive())
        next_check = self._next_memory_check or clock.now() + PERIOD
        self._next_memory_check = next_check if watched else None
        kills = [task.kill_at for task in self._alive() if task.kill_at is not None]
        return min(filter(None, [self._next_memory_check, *kills]), default=None)

    def enforce_limits(self) -> None:
        """Kill what was asked to end and did not, and what uses more memory than it may."""
        now = clock.now()
        if self._next_memory_check is not None and now >= self._next_memory_check:
            roots = {task.name: task.pid for task in self._alive() if task.pid is not None}
            self._memory.enforce({name: roots[name] for name in self._memory.watched(roots)})
            self._next_memory_check = now + PERIOD
        for task in self._alive():
            if task.pid is not None and task.kill_at is not None and now >= task.kill_at:
                task.killed = True
                task.kill_at = now + 1.0  # again, for what was born meanwhile
                members = processes.tree(task.pid)
                processes.kill({*members, *processes.of_run(self._uid, task.name)})

    def clean_up(self) -> None:
        """Leave no process and no control group of the run."""
        processes.end_all(self._uid)
        # What hid its environment is still below us, since we adopt orphans.
        processes.kill(pid for pid in processes.tree(os.getpid()) if pid != os.getpid())
        self._memory.close()

    def _alive(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.exit is None]

    def _termination_message(self, task: Task) -> Path:
        return self._folder.tasks / f"{task.name}.exit.json"

    def _log(self, task: Task) -> Path:
        return self._folder.tasks / f"{task.name}.log"


def _limits(spec: Spec) -> dict[str, int]:
    """Bytes by task, for those that have a limit."""
    return {
        task_name(task_type, index): parse_memory(memory)
        for task_type, count in spec.replicas.counts.items()
        if (memory := spec.replicas.of(task_type).resources.memory)
        for index in range(count)
    }


def _ended_children() -> Iterable[tuple[int, int, float]]:
    """Each with how it ended, and the CPU seconds of it and of all that it waited for."""
    while True:
        try:
            pid, wait_status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, wait_status, used.ru_utime + used.ru_stime
