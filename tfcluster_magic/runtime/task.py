"""PID 1 of a task: `python -S -E task.py <task.json> <task>` runs one task of a TFCluster.

This process gives the program (or server) its addresses and environment, forwards the program's
output, and reports its activity. It ends on request or when its parent ends, leaves no descendant
behind, and reports the exit to the backend and in the termination message. It never restarts
anything. The same files run on this machine and in a container, so they use only the standard
library and Python 3.8 syntax. The other modules of this folder are found because the folder of the
started script is sys.path[0].
"""

from __future__ import annotations

import os
import signal
import sys
import time

import process
import sockets
from activity import SAMPLE, Activity, StartSigns, described, family
from exit_report import (
    ChildExit,
    OomWatch,
    Report,
    exit_cause,
    exit_status,
    stop_cause,
    task_exit,
)
from idle import BEACON_LINGER, Beacon, IdleWatch
from output import LogCopy, Output
from prepare import Preparation
from process import EventLoop
from task_config import ConfigError, TaskConfig
from usage import UsageWatch
from writes import WriteWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# No event says that a port has opened, so the port is polled. Each pair is: (until this many
# seconds after the start of the wait, seconds between two polls).
READY_PACE = ((5.0, 0.02), (60.0, 0.1), (float("inf"), 1.0))
# The supervisor or kubelet kills this process at the end of the grace period. The program is killed
# this many seconds earlier, so that its exit can be reported.
HEADROOM = 1.0
GIVE_UP = 5.0
DRAIN = 5.0
COPY = 2.0
# The line "quiet since …" in a pod's log is printed again after TensorFlow has repeated a log
# message this many times. Otherwise the operator, which reads only the last twenty lines of the
# log, would no longer see the line.
REPEAT_QUIET = 8
# After the program's end: maximum seconds to wait until the files that it wrote last are found. The
# same limit applies again to the wait until its last usage sample is written.
LAST_LOOK = 2.0
# A pair: the maximum number of folders in a termination message, and the maximum characters of each
# folder's path.
MOST_TOLD, MOST_TOLD_CHARS = 4, 250


class Task:
    """One task: preparation, start of the child process, and reports until the exit."""

    def __init__(self, config: TaskConfig, report: Report, loop: EventLoop) -> None:
        self.config = config
        self.report = report
        self.loop = loop
        copy = os.path.join(config.output_dir, f"{config.task}.log")
        self.copy = LogCopy(copy, loop.wake)
        self._pace = float(os.environ.get("TFCLUSTER_IDLE_SAMPLE") or SAMPLE)
        self.activity = Activity(self._pace)
        self.output = Output(loop, self.copy, self._copied, self.activity.words.put)
        self._quiet: dict[str, Any] | None = None
        self._quiet_said = 0
        self._sign_said = False
        self._signs: StartSigns | None = None
        self.memory = OomWatch()
        self.child = 0
        self.status: int | None = None
        self.ended_at = 0.0
        self.problem = ""
        self._message: dict[str, Any] | None = None
        self.stopping = False
        self.orphaned = False
        self.given_up = False
        self._alone = False
        self.writes: WriteWatch | None = None
        self.usage: UsageWatch | None = None

    def run(self) -> int:
        """Run the task; return the exit status for this process."""
        self._watch_signals_and_parent()
        preparation = Preparation(self.config, self.loop, self.output.say)
        self.loop.run(lambda: preparation.finished or self.stopping or self.orphaned)
        self.problem, self._message = preparation.problem, preparation.problem_message
        if not (self.problem or self.stopping or self.orphaned):
            self._spawn(preparation)
        if not preparation.owns_folder:
            self.copy.path = os.devnull  # the log in this folder belongs to another run
        self.copy.start()
        if self.child:
            self.report.event("started", pid=self.child)
            if self.writes is not None:
                self.writes.start()
            if preparation.owns_folder and os.path.isdir("/proc/self"):
                self.usage = UsageWatch(self.config, self._pace, lambda: self.activity.words.step)
                self.usage.start()
            self._watch_ready()
            self.loop.run(self._is_over)
        return self._finish()

    def _watch_signals_and_parent(self) -> None:
        parent = os.getppid()
        for number in STOP_SIGNALS:
            self.loop.on_signal(number, self._stop)
        self.loop.on_signal(signal.SIGCHLD, self._reap)
        # PARENT_DIED is sent when the thread that started this process ends. The parent process
        # itself may still be running.
        self.loop.on_signal(process.PARENT_DIED, lambda: self._check_parent(parent))
        process.adopt_orphans()
        process.tell_when_parent_dies()
        self._check_parent(parent)
        if self.report.fd >= 0:
            # With no events requested, poll() reports only errors, such as that the parent has
            # closed the read end of the pipe. If the parent has already ended, poll() reports this
            # at once.
            self.loop.on_fd(self.report.fd, 0, self._orphan)

    def _check_parent(self, parent: int) -> None:
        if os.getppid() != parent:
            self._orphan()

    def _orphan(self) -> None:
        self.orphaned = True
        self.loop.off_fd(self.report.fd)

    def _spawn(self, preparation: Preparation) -> None:
        config = self.config
        write = self.output.open()
        try:
            env = config.environment(dict(os.environ))
            argv = config.command(lambda name: process.find_program(name, env.get("PATH", "")))
            if preparation.earlier is not None:
                preparation.earlier.watch()
            cwd = config.start_dir
            self.child = process.spawn(argv, env, cwd, write)
            if config.writes_results:
                earlier = preparation.earlier
                say, told = self.output.say, self._wrote
                self.writes = WriteWatch(config, cwd, self.loop, say, told, earlier)
        except (ConfigError, process.SpawnError) as error:
            self.problem = f"cannot start the program: {error}"
            self._message = getattr(error, "message", None)
        finally:
            os.close(write)

    def _watch_ready(self) -> None:
        if not (self.config.opens_port and sockets.visible()):
            self._ready({})
            return
        began = time.monotonic()
        signs = StartSigns(self.activity.words, self.config.port, self.config.start_window)

        def look() -> None:
            found = sockets.listeners(self.config.port)
            if found and any(found & sockets.inodes(pid) for pid in process.descendants()):
                self._ready({})
                return
            if not self.config.in_graph:
                started = signs.look()
                if signs.seen is not None and not self._sign_said:
                    self._sign_said = True
                    self._say_in_pod(described(signs.seen, self.config.port))
                if started and signs.seen is not None:
                    self._signs = None if signs.seen["sign"] == "ports" else signs
                    self._ready({"own": self.config.port, **signs.seen})
                    return
            waited = time.monotonic() - began
            self.loop.after("look", next(s for until, s in READY_PACE if waited < until), look)

        look()

    def _ready(self, sign: dict[str, Any]) -> None:
        """Report that the program counts as started: its port is open, it needs none, or `sign`
        shows that it works.
        """
        self.activity.words.looks_for_steps = False
        self.report.event("ready", **sign)
        if self.config.in_graph:
            if self.config.opens_port and sockets.visible():
                self._watch_idle()
            return
        if self.config.started_beacon:
            try:
                Beacon(self.loop, self.config.started_beacon).show(True)
            except OSError:
                # The program itself listens on this port, so the probe can connect anyway.
                pass
        if os.path.isdir("/proc/self"):
            self._watch_quiet()

    def _watch_quiet(self) -> None:
        def look() -> None:
            pause = self.activity.look(self.usage.seen if self.usage else None)
            self._look_elsewhere()
            quiet = self.activity.quiet()
            if quiet and self.usage and not self.config.task.startswith("evaluator-"):
                # A quiet evaluator waits for checkpoints, which is no stall.
                self.usage.quiet(quiet["since"])
            if quiet != self._quiet:
                if quiet is None or self._quiet is None:
                    self._say_quiet(quiet)
                self._quiet = quiet
                self.report.event("quiet", **(quiet or {}))
            elif quiet and self.activity.words.repeated - self._quiet_said >= REPEAT_QUIET:
                self._say_quiet(quiet)
            self.loop.after("look", pause, look)

        self.loop.after("look", self._pace, look)

    def _look_elsewhere(self) -> None:
        """Report the ports on which the program listens, once and as soon as there are any. This
        applies only if a sign other than an open port showed that the program has started.
        """
        found = self._signs.elsewhere(family()) if self._signs else None
        if found is not None:
            self._signs = None
            self.report.event("sign", own=self.config.port, **found)

    def _say_quiet(self, quiet: dict[str, Any] | None) -> None:
        self._quiet_said = self.activity.words.repeated
        if quiet is None:
            self._say_in_pod("works again")
        else:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(quiet["since"]))
            self._say_in_pod(
                f"quiet since {at}: it prints nothing, writes no event file and uses almost no CPU"
            )

    def _say_in_pod(self, text: str) -> None:
        """In a pod, print a line to the log, because the operator reads the log and gets no
        reports.
        """
        if self.report.fd < 0:
            self.output.say(text, copied=False)

    def _watch_idle(self) -> None:
        every = float(os.environ.get("TFCLUSTER_IDLE_SAMPLE") or 5.0)
        watch = IdleWatch(self.child, self.config.port, self.config.mark, self.config.hosts)
        beacon = Beacon(self.loop, self.config.beacon)

        def look() -> None:
            if watch.sample():
                self.report.event("idle", since=watch.since)
            if self.config.beacon:
                beacon.show(watch.since is None or time.time() - watch.since < BEACON_LINGER)
            self.loop.after("look", every, look)

        self.loop.after("look", every, look)

    def _wrote(self, folder: str, lost: bool) -> None:
        self.report.event("writes", folder=folder, gone=lost)

    def _copied(self, problem: str) -> None:
        self.report.event("copy", problem=problem)

    def _stop(self) -> None:
        if self.stopping or self.status is not None:
            return
        self.stopping = True
        self.loop.cancel("look")
        if self.child:
            # A shell does not pass signals on to its commands, so the signal is sent to the process
            # group.
            target = -self.child if self.config.is_shell else self.child
            process.send(target, signal.SIGTERM)
        grace = max(self.config.grace - HEADROOM, self.config.grace / 2)
        self.loop.after("grace", grace, self._kill)

    def _kill(self) -> None:
        for pid in process.descendants() or [-self.child]:
            process.send(pid, signal.SIGKILL)
        self.loop.after("grace", GIVE_UP, self._give_up)

    def _give_up(self) -> None:
        # Not even SIGKILL ends a process that waits for a dead volume, so do not wait any longer.
        self.given_up = True

    def _reap(self) -> None:
        ended, left = process.reap()
        self._alone = not left
        for pid, status in ended:
            if pid == self.child:
                self.status, self.ended_at = status, time.time()
                self.loop.cancel("look")
                if self.stopping:
                    # Ask the processes that the child has left behind to end, too.
                    for other in process.descendants():
                        process.send(other, signal.SIGTERM)

    def _is_over(self) -> bool:
        ended = self.status is not None and (self._alone or not self.stopping)
        return ended or self.orphaned or self.given_up

    def _finish(self) -> int:
        for pid, status in process.kill_tree(self.child, self.loop.wakeup):
            if pid == self.child:
                self.status = status
        child = ChildExit(self.status, self.config.is_shell)
        if self.problem:
            self.output.say(self.problem)
            cause, detail = "NotStarted", self.problem
        elif self.orphaned:
            cause, detail = "Killed", "whoever started it is gone, so it was ended"
        elif self.stopping:
            cause, detail = stop_cause(child)
        else:
            cause, detail = exit_cause(child, self.memory)
        if self.usage is not None:
            self.usage.end()
        self.output.drain(DRAIN)
        last = self.output.last
        folder = str(self.config.program.get("dir") or "")
        ended = task_exit(cause, detail, self.ended_at, child, last, folder)
        if cause == "NotStarted" and self._message:
            values = self._message["params"].items()
            short = {name: value[:MOST_TOLD_CHARS] for name, value in values}
            ended["detailMessage"] = {**self._message, "params": short}
        if self.writes is not None:
            self.writes.close(LAST_LOOK)
            folders = self.writes.folders
            told = [each for each in folders if len(each) < MOST_TOLD_CHARS][:MOST_TOLD]
            ended["wrote"] = [each for each in told if not folders[each]]
            ended["lost"] = [each for each in told if folders[each]]
            if cause == "Completed":
                ended["found"] = self.writes.found_only_a_checkpoint(last.tail)
        usage = self.usage.digest() if self.usage and self.config.reports_usage else ""
        self.report.exit({**ended, "uncopied": self.copy.first}, usage)
        self.output.close(COPY)
        if self.usage is not None:
            self.usage.close(LAST_LOOK)
        return exit_status(cause, child)


def main(argv: list[str]) -> int:
    """Run the task that the command line names."""
    if len(argv) != 3:
        sys.stderr.write("use: task.py <task.json> <task>, such as task.py task.json worker-0\n")
        return 2
    report = Report(dict(os.environ), argv[2])
    try:
        config = TaskConfig.load(argv[1], argv[2])
    except ConfigError as error:
        os.write(1, f"tfcluster: {error}\n".encode("utf-8", "replace"))
        report.exit(task_exit("NotStarted", str(error)))
        return 1
    return Task(config, report, EventLoop()).run()


if __name__ == "__main__":
    status = main(sys.argv)
    # Not sys.exit: a thread that hangs on a volume must not delay the exit, and all output is
    # written by now.
    os._exit(status)
