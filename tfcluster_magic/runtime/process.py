"""Processes: start the child so that it dies with us, find all that descends from us, end it, read exits.

Owns prctl and fork; never decides why something ended. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform.startswith("linux")
# Sent to us when the thread that started us ends; not SIGTERM, which must go on meaning "stop".
PARENT_DIED = signal.SIGUSR2
RESET = (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2)


class SpawnError(Exception):
    """The child could not be started; `number` is the errno."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__("%s: %s" % (what, os.strerror(number)))
        self.number = number


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none can slip away."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def tell_when_parent_dies() -> None:
    """Ask for PARENT_DIED when the parent's starting thread ends."""
    _prctl(PR_SET_PDEATHSIG, PARENT_DIED)


def spawn(argv: list, env: dict, cwd: str, output: int) -> int:
    """Start argv in its own session, stdout and stderr on `output`; it dies with us. Raises SpawnError."""
    libc = ctypes.CDLL(None) if LINUX else None
    told, tell = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        what = cwd
        try:
            os.setsid()
            if libc:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(1)
            for number in RESET:
                signal.signal(number, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for fd in _open_fds():
                if fd > 2 and fd != tell:
                    os.close(fd)
            os.chdir(cwd)
            what = argv[0]
            os.execve(argv[0], argv, env)
        except OSError as error:
            os.write(tell, ("%d %s" % (error.errno or 0, what)).encode("utf-8", "replace"))
        finally:
            os._exit(127)
    os.close(tell)
    answer = b""
    while True:
        piece = os.read(told, 4096)
        if not piece:
            break
        answer += piece
    os.close(told)
    if answer:
        os.waitpid(pid, 0)
        number, _, what = answer.decode("utf-8", "replace").partition(" ")
        raise SpawnError(int(number), what)
    return pid


def _open_fds() -> list:
    # The listing holds the descriptor that lists; closing it again fails, which is why it is checked.
    found = []
    for name in os.listdir("/proc/self/fd" if LINUX else "/dev/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue
        found.append(int(name))
    return found


def find_program(name: str, path: str) -> str:
    """The first executable of this name on a PATH, or ''."""
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        if folder and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return ""


def descendants() -> list:
    """Every process below this one, nearest first. Empty where there is no /proc."""
    children = {}  # type: dict
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            stat = read_stat(int(name))
            if stat:
                children.setdefault(int(stat[1]), []).append(int(name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def read_stat(pid: int) -> list:
    """Fields of /proc/<pid>/stat from the state on ([0] state, [1] ppid, [11] utime, [12] stime)."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def send(pid: int, number: int) -> None:
    """Send a signal; a process (or group, when negative) that is gone is fine."""
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def reap() -> tuple:
    """Collect every child that has ended: ([(pid, wait status)], whether any child is left)."""
    ended = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended.append((pid, status))


def kill_tree(child: int, wakeup: int, limit: float = 5.0) -> list:
    """SIGKILL everything below us until nothing is left, at most `limit` seconds; what was reaped.

    An orphan becomes our child (see adopt_orphans), so no child left means no descendant left.
    """
    until = time.monotonic() + limit
    poll = select.poll()
    poll.register(wakeup, select.POLLIN)
    ended, left = reap()
    while left and time.monotonic() < until:
        if not LINUX and child:
            send(-child, signal.SIGKILL)
        for pid in descendants():
            send(pid, signal.SIGKILL)
        # SIGCHLD ends the wait; the time-out is for those that were forked between listing and killing.
        if poll.poll(50):
            os.read(wakeup, 512)
        more, left = reap()
        ended += more
    return ended
