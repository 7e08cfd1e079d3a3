"""PID 1 of a task: `python -S -E task.py <task.json> <task>` runs one member of a TFCluster to its end.

Promises: the program (or server) gets its addresses and environment, everything it prints comes through, it
ends when asked or when whoever started us ends, nothing that descends from it survives, and how it ended is
left as a report and a termination message. It never restarts anything and never looks at what the program
does. The same files run on this machine and in a container: standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import signal
import sys

sys.path[0] = os.path.dirname(os.path.abspath(__file__))

import time  # noqa: E402

import process  # noqa: E402
import sockets  # noqa: E402
from exits import Ending, not_started  # noqa: E402
from idle import IdleWatch  # noqa: E402
from logcopy import LogCopy  # noqa: E402
from loop import Loop  # noqa: E402
from oom import OomWatch  # noqa: E402
from output import Output  # noqa: E402
from prepare import start_preparing  # noqa: E402
from report import Report  # noqa: E402
from taskconfig import ConfigError, TaskConfig  # noqa: E402

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Looking whether the port is open has no event to wait for: (up to this many seconds, every so many).
READY_PACE = ((5.0, 0.02), (60.0, 0.1), (float("inf"), 1.0))


class Task:
    """One run of one child, from preparation to its last report."""

    def __init__(self, config: TaskConfig, report: Report, loop: Loop) -> None:
        self.config = config
        self.report = report
        self.loop = loop
        name = "%s.log" % config.task
        self.copy = LogCopy(os.path.join(config.output_dir, name), loop.wake)
        self.output = Output(loop, self.copy)
        self.child = 0
        self.status = None  # type: ignore[var-annotated]
        self.ended_at = 0.0
        self.stopping = False
        self.orphaned = False
        self.problem = ""
        self.prepared = False
        self.oom = OomWatch()
        self._ready_since = 0.0
        self._left = True

    def run(self) -> int:
        """The exit status of this process."""
        parent = os.getppid()
        process.adopt_orphans()
        process.tell_when_parent_dies()
        for number in STOP_SIGNALS:
            self.loop.on_signal(number, self._stop)
        self.loop.on_signal(signal.SIGCHLD, self._reap)
        self.loop.on_signal(process.PARENT_DIED, lambda: self._check_parent(parent))
        if self.report.fd >= 0:
            # No events but those that always come: the error that says that the reader is gone.
            self.loop.on_fd(self.report.fd, 0, lambda _events: self._lost_parent())
        self._check_parent(parent)
        start_preparing(self.config, self.output.say, self._prepared, self.loop)
        self.loop.run(lambda: self.prepared or self.stopping or self.orphaned)
        if not (self.stopping or self.orphaned or self.problem):
            self._spawn()
        self.copy.start()
        if self.child:
            self._watch()
            self.loop.run(lambda: self.orphaned or (self.status is not None and not self._lingers()))
        return self._finish()

    def _prepared(self, problem: str) -> None:
        self.prepared, self.problem = True, problem

    def _spawn(self) -> None:
        config = self.config
        try:
            env = config.environment(dict(os.environ))
            argv = config.command(lambda name: process.find_program(name, env.get("PATH", "")))
            folder = config.program.get("workingDir") if config.program else None
            cwd = folder if folder and os.path.isdir(folder) else config.output_dir
            write = self.output.open()
            try:
                self.child = process.spawn(argv, env, cwd, write)
            finally:
                os.close(write)
        except (ConfigError, process.SpawnError) as error:
            self.problem = "cannot start the program: %s" % error

    def _watch(self) -> None:
        self.report.event("started", pid=self.child)
        if self.config.opens_port and sockets.can_look():
            self._ready_since = time.monotonic()
            self._look_ready()
        else:
            self.report.event("ready")

    def _look_ready(self) -> None:
        found = sockets.listeners(self.config.port)
        if found and any(found & sockets.inodes(pid) for pid in process.descendants()):
            self.report.event("ready")
            if self.config.in_graph:
                self._watch_idle()
            return
        waited = time.monotonic() - self._ready_since
        pace = next(every for until, every in READY_PACE if waited < until)
        self.loop.after("ready", pace, self._look_ready)

    def _watch_idle(self) -> None:
        every = float(os.environ.get("TFCLUSTER_IDLE_SAMPLE") or 5.0)
        watch = IdleWatch(
            self.child, self.config.port, os.environ.get("TFCLUSTER_RUN_UID", ""), self.config.hosts
        )

        def sample() -> None:
            if watch.sample():
                self.report.event("idle", since=watch.since)
            self.loop.after("idle", every, sample)

        self.loop.after("idle", every, sample)

    def _stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        if self.child and self.status is None:
            # A shell does not pass signals on to what it runs, so its whole group is asked.
            process.send(-self.child if self.config.is_shell else self.child, signal.SIGTERM)
        # Sooner than the backend's own limit, so that how it ended can still be told.
        grace = max(self.config.grace - 1.0, self.config.grace / 2)
        self.loop.after("grace", grace, lambda: self._kill("grace"))

    def _kill(self, _why: str) -> None:
        for pid in process.descendants() or [-self.child]:
            process.send(pid, signal.SIGKILL)
        self._left = False

    def _lingers(self) -> bool:
        """Whether others below us are still using the time they have after SIGTERM."""
        return self.stopping and self._left

    def _reap(self) -> None:
        ended, self._left = process.reap()
        for pid, status in ended:
            if pid == self.child:
                self.status, self.ended_at = status, time.time()
                self.loop.cancel("ready")
                self.loop.cancel("idle")
                if self.stopping and self._left:
                    for other in process.descendants():
                        process.send(other, signal.SIGTERM)

    def _check_parent(self, parent: int) -> None:
        if os.getppid() != parent:
            self._lost_parent()

    def _lost_parent(self) -> None:
        self.orphaned = True
        if self.report.fd >= 0:
            self.loop.off_fd(self.report.fd)

    def _finish(self) -> int:
        killed = process.kill_tree(self.child, self.loop.wakeup)
        for pid, status in killed:
            if pid == self.child and self.status is None:
                self.status, self.ended_at = status, time.time()
        if self.problem:
            self.output.say(self.problem)
        ending = Ending(self.config, self.status, self.ended_at or time.time(), self.output.last, self.oom)
        ending.stopping = self.stopping or self.orphaned
        ending.problem = self.problem
        self.output.close(2.0)
        self.report.exit(ending.taken())
        return ending.exit_status()


def main(argv: list) -> int:
    """Run the task named on the command line."""
    if len(argv) != 3:
        sys.stderr.write("use: task.py <task.json> <task>, such as task.py task.json worker-0\n")
        return 2
    report = Report(dict(os.environ), argv[2])
    try:
        config = TaskConfig.load(argv[1], argv[2])
    except ConfigError as error:
        os.write(1, ("tfcluster: %s\n" % error).encode("utf-8", "replace"))
        report.exit(not_started(str(error)))
        return 1
    return Task(config, report, Loop()).run()


if __name__ == "__main__":
    status = main(sys.argv)
    # Not sys.exit: a thread that hangs on a volume must not keep us, and nothing is left to clean up.
    os._exit(status)
