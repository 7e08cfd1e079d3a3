"""The supervisor of one run: feeds what it sees to the lifecycle and carries out what that decides.

Promises to be the only writer of `status.json`, to hold the run's lock as long as it lives, to take every
task with it when it dies, and to leave no process and no control group behind when the run is over. It
sleeps until something happens: a child ends, a task reports, a stop is asked for, or a time that was asked
for has come. It never runs the user's code and decides nothing itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
import traceback
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ...checkpoint_state import checkpoint_step
from ...lifecycle import Decision, Observation, ObservedTask, StartTask, decide
from ...models import Cause, Spec, Status, Stop, TaskExit
from ...names import parse_task, task_name
from ...quantity import parse_memory
from . import files, ports, processes
from .ends import how_it_ended
from .memory import PERIOD, MemoryGuard
from .publisher import Publisher
from .store import RunFolder
from .tasks import Task, adopt_orphans, environment, spawn

RUNTIME = Path(__file__).resolve().parents[2] / "runtime" / "task.py"
KILL_MARGIN = 2.0
"""Seconds beyond the grace period that a `task.py` gets to end its child and to say how it ended."""


class Report(msgspec.Struct):
    """One line of the report pipe."""

    task: str
    attempt: int
    event: str
    since: float | None = None


class Supervisor:
    """One run, from its first task to its last."""

    def __init__(self, folder: RunFolder) -> None:
        cluster = folder.load()
        if cluster is None:
            raise RuntimeError(f"{folder.record_file} is not a record of a run")
        self.folder, self.name, self.uid = folder, cluster.metadata.name, cluster.metadata.uid
        self.spec: Spec = cluster.spec
        self.status: Status = cluster.status
        self.tasks: dict[str, Task] = {}
        self.gpus = files.read(folder.gpus_file, dict[str, tuple[str, ...]])
        limits = {
            task_name(t, i): parse_memory(memory)
            for t, count in self.spec.replicas.counts.items()
            if (memory := self.spec.replicas.of(t).resources.memory)
            for i in range(count)
        }
        self.memory = MemoryGuard(self.uid, limits, folder.cgroup_file)
        self.next_look: float | None = None
        self.publisher = Publisher(folder)
        self._asked: Stop | None = None
        self._partial = b""
        adopt_orphans()
        addresses, self._held_ports = ports.reserve(self.spec.replicas.counts)
        self._describe_tasks(addresses)
        self.selector = selectors.DefaultSelector()
        self._report_fd = self._listen()

    def _describe_tasks(self, addresses: dict[str, tuple[str, ...]]) -> None:
        """Complete `task.json` with what only we know."""
        described = files.read(self.folder.task_file, dict[str, object]) or {}
        described["addresses"] = addresses
        files.write(self.folder.task_file, msgspec.json.encode(described))
        self.status = replace(self.status, addresses=addresses)

    def _listen(self) -> int:
        """Register what may wake us; returns the descriptor that tasks report on."""
        signals, wake = os.pipe()
        reports, report = os.pipe()
        if not self.folder.control.exists():
            os.mkfifo(self.folder.control, 0o600)
        # Open for writing as well, so that it never comes to its end.
        control = os.open(self.folder.control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        for fd in (signals, wake, reports):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda number, frame: None)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self.selector.register(signals, selectors.EVENT_READ, self._on_signals)
        self.selector.register(reports, selectors.EVENT_READ, self._on_reports)
        self.selector.register(control, selectors.EVENT_READ, self._on_control)
        return report

    # -- what happens ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until the run is over and everything is given back."""
        self._read_stop()
        while True:
            decision = self._turn()
            if decision.done:
                self._clean_up()
                self.publisher.put(self.status, urgent=True)
                if self.publisher.settled:
                    return
            else:
                self.publisher.put(self.status)
                self._notice_removal()
            self._sleep(decision.wake_at)

    def _turn(self) -> Decision:
        """Decide, and do it; again at once when that started something."""
        while True:
            now = time.time()
            decision = decide(self.spec, self.name, self.status, self._observe(), now)
            self.status = decision.status
            for task in decision.stop:
                self._end(self.tasks[task], now)
            for wanted in decision.start:
                self._start(wanted)
            if not decision.start:
                return decision

    def _observe(self) -> Observation:
        tasks = {
            t.name: ObservedTask(
                name=t.name,
                attempt=t.attempt,
                state=t.state,
                ready=t.ready,
                exit=t.exit,
                idle_since=t.idle_since,
            )
            for t in self.tasks.values()
        }
        failed = any(
            t.exit is not None and t.exit.cause is not Cause.COMPLETED for t in self.tasks.values()
        )
        step = checkpoint_step(self.status.paths.get("output", "")) if failed else None
        return Observation(tasks=tasks, checkpoint_step=step)

    def _sleep(self, wake_at: float | None) -> None:
        now = time.time()
        alive = [t for t in self.tasks.values() if t.exit is None]
        watched = self.memory.watched(t.name for t in alive)
        self.next_look = (self.next_look or now + PERIOD) if watched else None
        due = [wake_at, self.next_look, self.publisher.due, *(t.kill_at for t in alive)]
        known = [at for at in due if at is not None]
        for key, _ in self.selector.select(max(0.0, min(known) - now) if known else None):
            key.data(key.fd)
        now = time.time()
        if self.next_look is not None and now >= self.next_look:
            roots = {t: pid for t in watched if (pid := self.tasks[t].pid) is not None}
            self.memory.look(roots)
            self.next_look = now + PERIOD
        for task in alive:
            if task.kill_at is not None and now >= task.kill_at and task.exit is None:
                self._kill(task, now)

    def _on_signals(self, fd: int) -> None:
        if signal.SIGTERM in os.read(fd, 4096):
            reason = (
                "its supervisor was asked to end (the machine shuts down, or somebody sent SIGTERM)"
            )
            self._asked = self._asked or Stop(reason=reason, at=time.time())
            self._read_stop()
        self._reap()

    def _on_control(self, fd: int) -> None:
        for line in os.read(fd, 65536).splitlines():
            if line:  # a stop that could not be written to the disk
                self._asked = msgspec.json.decode(line, type=Stop)
        self._read_stop()

    def _notice_removal(self) -> None:
        """Somebody removed the record by hand: a run that nobody can see or stop must end."""
        if self.publisher.due is not None and not self.folder.path.exists():
            self._asked = self._asked or Stop(reason="its record was removed", at=time.time())
            self._read_stop()

    def _read_stop(self) -> None:
        stop = files.read(self.folder.stop_file, Stop) or self._asked
        if stop is not None and self.spec.stop is None:
            self.spec = replace(self.spec, stop=stop)

    def _on_reports(self, fd: int) -> None:
        try:
            *lines, self._partial = (self._partial + os.read(fd, 65536)).split(b"\n")
        except BlockingIOError:
            return
        for line in lines:
            try:
                report = msgspec.json.decode(line, type=Report)
            except msgspec.MsgspecError:
                continue  # whatever a program wrote there is not from task.py
            task = self.tasks.get(report.task)
            if task is None or task.attempt != report.attempt:
                continue
            if report.event == "ready":
                task.ready = True
            elif report.event == "idle":
                task.idle_since = report.since

    # -- tasks ----------------------------------------------------------------------------------------

    def _start(self, wanted: StartTask) -> None:
        """Start one attempt; carrying it out twice is harmless."""
        old = self.tasks.get(wanted.task)
        if old is not None and (old.exit is None or old.attempt >= wanted.attempt):
            return
        task = self.tasks[wanted.task] = Task(wanted.task, wanted.attempt)
        exit_file = self._exit_file(task)
        exit_file.unlink(missing_ok=True)
        task_type = parse_task(task.name)[0].value
        gpus = None if self.gpus is None else self.gpus.get(task.name, ())
        if not gpus and "CUDA_VISIBLE_DEVICES" in self.spec.env:
            gpus = None
        env = environment(dict(os.environ), self.uid, task, self._report_fd, exit_file, gpus)
        cwd = Path(self.status.paths.get("output", "/"))
        try:
            task.pid = spawn(
                [sys.executable, "-S", "-E", str(RUNTIME), str(self.folder.task_file), task.name],
                env,
                self.folder.tasks / f"{task.name}.log",
                cwd,
                self._report_fd,
                self.memory.admit(task.name),
            )
        except OSError as error:
            task.exit = TaskExit(
                cause=Cause.NOT_STARTED,
                finished_at=time.time(),
                detail=f"the machine gives no process for this {task_type}: {error.strerror}",
            )

    def _exit_file(self, task: Task) -> Path:
        return self.folder.tasks / f"{task.name}.exit.json"

    def _end(self, task: Task, now: float) -> None:
        """Ask a task to end; it is killed when it does not. Asking again changes nothing."""
        if task.exit is not None or task.pid is None or task.stop_asked:
            return
        task.kill_at = now + self.spec.lifecycle.grace + KILL_MARGIN
        os.kill(task.pid, signal.SIGTERM)  # still our child, so the pid cannot be another's

    def _kill(self, task: Task, now: float) -> None:
        assert task.pid is not None
        task.killed = True
        task.kill_at = now + 1.0  # again, for what was born meanwhile
        processes.kill({*processes.tree(task.pid), *processes.of_run(self.uid, task.name)})

    def _reap(self) -> None:
        """Collect every child that has ended: tasks, and their orphans that came to us."""
        ended: dict[int, int] = {}
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            ended[pid] = wait_status
        for task in self.tasks.values():
            if task.exit is None and task.pid in ended:
                # Nothing of an attempt may outlive it: it would keep the port of the next.
                processes.end_all(self.uid, task.name)
                task.exit = self.memory.explain(
                    task.name,
                    how_it_ended(
                        task,
                        ended[task.pid],
                        self._exit_file(task),
                        self.folder.tasks / f"{task.name}.log",
                    ),
                )

    def _clean_up(self) -> None:
        processes.end_all(self.uid)
        # What hid its environment is still below us, since we adopt orphans.
        processes.kill(pid for pid in processes.tree(os.getpid()) if pid != os.getpid())
        self.memory.close()


def main(path: str, lock_fd: int, ready_fd: int) -> None:
    """Supervise the run in `path`; `lock_fd` holds its lock, `ready_fd` is told when that has begun."""
    os.set_inheritable(lock_fd, False)
    os.set_inheritable(ready_fd, False)
    try:
        supervisor = Supervisor(RunFolder(Path(path)))
        supervisor.folder.write_status(supervisor.status)
        os.write(ready_fd, b"1")
        os.close(ready_fd)
        supervisor.run()
    except BaseException:  # the last words go to supervisor.log, where readers look for them
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)  # nothing is left to finalise, and that costs time
