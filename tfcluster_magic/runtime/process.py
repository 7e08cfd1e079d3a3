"""Processes and the event loop that waits for them.

A child is started such that the kernel kills it when this process ends. All descendants can be
found and killed, and their exits are collected. Signals and threads wake up the event loop by a
pipe. Standard library only, Python 3.8.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform.startswith("linux")
# The kernel sends this signal when the thread that started this process ends. It is not SIGTERM,
# because SIGTERM asks this process to stop.
PARENT_DIED = signal.SIGUSR2


class SpawnError(Exception):
    """The child could not be started; the message says what and why."""


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends, so that all can be found."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def tell_when_parent_dies() -> None:
    """Ask the kernel to send PARENT_DIED when the thread that started this process ends."""
    _prctl(PR_SET_PDEATHSIG, PARENT_DIED)


def spawn(argv: list[str], env: dict[str, str], cwd: str, output: int) -> int:
    """Start `argv` in a session of its own, with stdout and stderr on the descriptor `output`;
    return the process id. The kernel kills the child when this process ends.

    Raises:
        SpawnError: the folder or the file is unusable, or no process can be created.
    """
    told, tell = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        raise SpawnError(f"no new process: {error.strerror}") from None
    if pid == 0:
        _become(argv, env, cwd, output, parent, tell)
    os.close(tell)
    with open(told, "rb") as file:
        problem = file.read().decode("utf-8", "replace")
    if problem:
        os.waitpid(pid, 0)
        raise SpawnError(problem)
    return pid


def _become(
    argv: list[str], env: dict[str, str], cwd: str, output: int, parent: int, tell: int
) -> None:
    """Replace the forked child by the command `argv`; an error is written to `tell`. Never
    returns.
    """
    at = cwd
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent ended before prctl(), so the kernel will send no signal: end now.
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in range(1, signal.NSIG):
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in os.listdir("/proc/self/fd" if LINUX else "/dev/fd"):
            if int(name) > 2 and int(name) != tell:
                _close(int(name))
        os.chdir(cwd)
        at = argv[0]
        os.execve(argv[0], argv, env)
    except OSError as error:
        os.write(tell, f"{at}: {error.strerror}".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        # os.listdir() itself had this descriptor open, and has closed it.
        pass


def find_program(name: str, path: str) -> str:
    """Return the first executable of this name on a PATH, or ''."""
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        if folder and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return ""


def descendants() -> list[int]:
    """Return every process below this one, nearest first; empty without /proc."""
    children: dict[int, list[int]] = {}
    if not os.path.isdir("/proc/self"):
        return []
    for name in os.listdir("/proc"):
        stat = read_stat(int(name)) if name.isdigit() else []
        if stat:
            children.setdefault(int(stat[1]), []).append(int(name))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat after the name: [0] state, [1] ppid, [11] utime, [12]
    stime; empty if the process is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def send(pid: int, number: int) -> None:
    """Send a signal to a process, or to a process group if `pid` is negative. Do nothing if the
    process is gone.
    """
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # The process is gone, or has changed its user (sudo).
        pass


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Collect every child that has ended; return [(pid, wait status)] and whether any child is
    left.
    """
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended.append((pid, status))


def kill_tree(child: int, wakeup: int, limit: float = 5.0) -> list[tuple[int, int]]:
    """Kill descendants until none is left, for at most `limit` seconds; return the exits that were
    collected. Orphans become children of this process (adopt_orphans), so when it has no child
    left, it has no descendant either. `wakeup` is a descriptor that is readable after SIGCHLD.
    """
    until = time.monotonic() + limit
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    ended, left = reap()
    while left and time.monotonic() < until:
        for pid in descendants() or [-child]:
            send(pid, signal.SIGKILL)
        # SIGCHLD ends the wait; the timeout is for processes forked between listing and killing.
        if poll.poll(50):
            os.read(wakeup, 4096)
        more, left = reap()
        ended += more
    return ended


# ---- the event loop ----


# Maximum seconds of one call of poll(), which accepts timeouts of at most 24 days.
LONGEST = 24 * 3600.0


class EventLoop:
    """An event loop over file descriptors, signals and timers. `run` calls all callbacks, and
    sleeps in poll() while there is nothing to do.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._fds: dict[int, Callable[[], None]] = {}
        self._signals: dict[int, Callable[[], None]] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self.wakeup, self._wake = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._poll.register(self.wakeup, select.POLLIN)

    def wake(self) -> None:
        """End the sleep and call the callback of signal 0; safe from any thread."""
        try:
            os.write(self._wake, b"\0")
        except BlockingIOError:
            # The pipe is full, so the loop is about to wake up anyway.
            pass

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Set the callback for a signal; `run` calls it outside of the signal handler. The number 0
        stands for wake().
        """
        self._signals[number] = callback
        if number:
            # The handler does nothing: the wake-up pipe passes the signal to `run`. Without a
            # handler the signal's default action would apply, and PID 1 would ignore the signal.
            signal.signal(number, lambda _number, _frame: None)

    def on_fd(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        """Set the callback for a descriptor. `run` calls it when poll() reports one of the events
        in the mask `events`, an error or a hang-up.
        """
        self._fds[fd] = callback
        self._poll.register(fd, events)

    def off_fd(self, fd: int) -> None:
        """Remove the callback of a descriptor, if there is one."""
        if self._fds.pop(fd, None):
            self._poll.unregister(fd)

    def after(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Set a timer that calls `callback` once after `seconds`. A timer of the same name is
        replaced.
        """
        self._timers[name] = (time.monotonic() + seconds, callback)

    def cancel(self, name: str) -> None:
        """Cancel the timer of this name, if there is one."""
        self._timers.pop(name, None)

    def run(self, done: Callable[[], bool]) -> None:
        """Call callbacks as events occur, until done() is true."""
        while not done():
            for fd, _events in self._poll.poll(self._milliseconds()):
                if fd == self.wakeup:
                    self._read_signals()
                elif fd in self._fds:
                    self._fds[fd]()
            now = time.monotonic()
            for name, (when, callback) in list(self._timers.items()):
                if when <= now:
                    self._timers.pop(name, None)
                    callback()

    def _milliseconds(self) -> int | None:
        if not self._timers:
            return None
        first = min(when for when, _ in self._timers.values())
        return max(0, int(min(first - time.monotonic(), LONGEST) * 1000) + 1)

    def _read_signals(self) -> None:
        for number in set(os.read(self.wakeup, 4096)):
            if number in self._signals:
                self._signals[number]()
