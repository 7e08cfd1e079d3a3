"""A program's activity as seen from outside: output, CPU time, ports and event files.

The activity of all processes of the program counts. A program that works counts as started even if
its own port is closed (`StartSigns`), and a program without activity is quiet (`Activity.quiet`).
This module reads the program's output and the kernel's /proc, and never asks the program. The
package `lifecycle` decides what a quiet program means. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import os
import re
import time

import process
import sockets
from idle import BUSY, TICKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SAMPLE = 5.0
# Number of samples in a row without activity after which a program counts as quiet.
QUIET_SAMPLES = 3
# The maximum fraction of a core that sampling may use.
MOST_SHARE = 0.002
MOST_WORDS = 300

# ---- output ----

# Lines that TensorFlow repeats while it waits for another task are no activity. master_session.cc
# and tsl's coordination service print them.
WAITING = re.compile(
    rb"[^\n]*(?:still waiting for response from worker: |[Bb]arrier timed out"
    rb"|[Ww]aiting for \d+/\d+ tasks to connect|[Ss]tragglers:)[^\n]*"
)
_HINTS = (b"aiting for ", b"arrier timed out", b"tragglers:")
_PEER = re.compile(rb"/job:([a-z]+)/(?:replica:\d+/)?task:(\d+)")
# `step 300`, `global_step: 12`, `Epoch 2/10`, `145/1000 [====`, `45%|####`; no option such as
# `--epochs 8`
_STEP = re.compile(
    rb"(?i)\b(?<!-)(?:global[_ ]?)?(?:steps?|iter(?:ation)?s?|epochs?|batch(?:es)?)\b"
    rb"[ \t]*[#=:/\[(]?[ \t]*\d"
    rb"|\d+/\d+ \[|\d%\|"
)
# `step 300`, `global_step=1,200`, `iter: 12/800`; bars such as `145/1000 [====`, `45/100 ━━`,
# `45%|##| 45/100 [00:12`
_COUNTED = re.compile(
    rb"(?i)\b(?<!-)(?:global[_ ]?)?(?:step|iter(?:ation)?|batch)s?[ \t]*[#=:/\[(]?[ \t]*(\d{1,15})"
    rb"((?:,\d{3})*)(?!\d|\.\d)"
    rb"|(?<![\d/.])(\d{1,15})/\d+ (?:\[|\xe2\x94)"
)
# Number of bytes at the end of each piece of output that are searched for the newest step.
_NEWEST = 2 << 10


class Words:
    """The signs of activity in the output of a program.

    `at` is the monotonic time of the last output that is not a note of TensorFlow about waiting.
    `peer` is the task for which TensorFlow has waited since `at`, `words` is its newest note about
    this, and `repeated` is the number of these notes. `steps` becomes true when the program prints
    a step while `looks_for_steps` is true. `step` is the newest printed step; if a progress bar
    starts again in each epoch, `step` continues to rise.
    """

    def __init__(self) -> None:
        self.at = time.monotonic()
        self.peer = ""
        self.words = ""
        self.repeated = 0
        self.steps = False
        self.looks_for_steps = False
        self.step = 0
        self._count = self._earlier = 0

    def put(self, data: bytes) -> None:
        """Search the next piece of the program's output for signs of activity."""
        rest = data
        if any(hint in data for hint in _HINTS):
            waits = WAITING.findall(data)
            rest = WAITING.sub(b"", data) if waits else data
            for line in waits:
                self._wait(line)
        if not rest.strip():
            return
        self.at = time.monotonic()
        self.peer = self.words = ""
        self.repeated = 0
        self._find_step(rest[-_NEWEST:])
        if self.looks_for_steps and not self.steps:
            self.steps = _STEP.search(rest) is not None

    def _find_step(self, data: bytes) -> None:
        every = list(_COUNTED.finditer(data))
        if not every:
            return
        line = data.rfind(b"\n", 0, every[-1].start())
        in_line = [each for each in every if each.start() > line]
        # `training step 12 done (global step: 24)`: the first number counts this task's own steps
        own = [each for each in in_line if not each[0].lower().startswith(b"global")]
        found = (own or in_line)[-1]
        bar = found.group(3)
        count = int(bar or (found.group(1) + found.group(2)).replace(b",", b""))
        if bar and count < self._count:
            self._earlier += self._count
        elif not bar:
            self._earlier = 0
        self._count = count
        self.step = self._earlier + count

    def _wait(self, line: bytes) -> None:
        found = _PEER.search(line)
        self.peer = b"-".join(found.groups()).decode() if found else self.peer
        said = line.partition(b"] ")[2] or line  # leave out the time, which differs in each line
        self.words = said.decode("utf-8", "replace").strip()[:MOST_WORDS]
        self.repeated += 1


# ---- processes ----


def family() -> list[int]:
    """Return every process below this one, from the lists of children in /proc, without examining
    all processes of the machine. A process that starts or ends meanwhile may be missing.
    """
    found: list[int] = []
    queue = [os.getpid()]
    try:
        while queue:
            folder = f"/proc/{queue.pop(0)}/task"
            for thread in _names(folder):
                with open(f"{folder}/{thread}/children", encoding="ascii") as file:
                    below = [int(pid) for pid in file.read().split()]
                found += below
                queue += below
    except OSError:
        # The thread has ended meanwhile, or the kernel does not list children.
        return process.descendants()
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        # The process has ended meanwhile.
        return []


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU seconds of these processes, and of all ended processes below this one."""
    mine = os.times()
    used = mine.children_user + mine.children_system
    for pid in pids:
        # utime and stime, of the process and of children that it has waited for
        used += sum(map(int, process.read_stat(pid)[11:15])) / TICKS
    return used


def seconds_waiting(pids: list[int]) -> float:
    """Return how many seconds the threads of these processes have waited for a busy core; 0 if the
    kernel does not report this time.
    """
    waited = 0
    for pid in pids:
        folder = f"/proc/{pid}/task"
        for thread in _names(folder):
            try:
                with open(f"{folder}/{thread}/schedstat", encoding="ascii") as file:
                    waited += int(file.read().split()[1])
            except (OSError, ValueError, IndexError):
                # The thread has ended meanwhile, or the kernel has no schedstat.
                continue
    return waited / 1e9


def event_files(pids: list[int]) -> dict[str, int]:
    """Return the sizes of the event files that these processes have open, by path."""
    found = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        for name in _names(folder):
            try:
                path = os.readlink(os.path.join(folder, name))
                if "tfevents" in path:
                    found[path] = os.stat(os.path.join(folder, name)).st_size
            except OSError:
                # The process has ended, the file was closed, or another user owns the process.
                continue
    return found


class FamilyReading:
    """The processes below this one and their CPU seconds (see `cpu_seconds`) at one time. If `pids`
    of an earlier reading are passed, the processes are not listed again.
    """

    __slots__ = ("at", "cpu", "pids")

    def __init__(self, pids: list[int] | None = None) -> None:
        self.at = time.monotonic()
        self.pids = family() if pids is None else pids
        self.cpu = cpu_seconds(self.pids)


class Activity:
    """The activity of all processes below this one, sampled every `sample` seconds."""

    def __init__(self, sample: float = SAMPLE) -> None:
        self.words = Words()
        self._sample = sample
        self._at = self._worked_at = time.monotonic()
        self._used = 0.0
        self._files: dict[str, int] = {}
        self._since: float | None = None

    def look(self, seen: FamilyReading | None = None) -> float:
        """Take a sample, or use `seen` if it is recent; return the seconds until the next
        sample.
        """
        began, spent = time.monotonic(), time.thread_time()
        if seen is None or began - seen.at > self._sample / 2 or seen.at <= self._at:
            seen = FamilyReading()
        pids, used = seen.pids, seen.cpu
        busy = used - self._used > BUSY * max(seen.at - self._at, 0.001)
        self._used, self._at = used, seen.at
        if not busy and self.words.at < began - self._sample:
            files = event_files(pids)
            busy = files != self._files
            self._files = files
        if busy:
            self._worked_at = began
        last = max(self._worked_at, self.words.at)
        if began - last < QUIET_SAMPLES * self._sample:
            self._since = None
        elif self._since is None:
            self._since = time.time() - (began - last)
        return max(self._sample, (time.thread_time() - spent) / MOST_SHARE)

    def quiet(self) -> dict[str, Any] | None:
        """Return the start of the program's silence (epoch seconds) and TensorFlow's note about
        waiting; None while the program works.
        """
        if self._since is None:
            return None
        return {"since": self._since, "peer": self.words.peer, "words": self.words.words}


# ---- start ----

# Seconds for which a sign must last before the program counts as started. The operator reads the
# log of a starting pod at least every ten seconds, so it sees the sign within this time. If the
# task's own port opens within this time, the port counts instead of the sign.
PATIENCE = 12.0
# The fraction of a core from which a program counts as computing.
WORKS = 0.5
# LOOK: seconds between two checks. FIRST_LOOK: seconds before the first check, because importing
# TensorFlow takes longer than that anyway.
LOOK, FIRST_LOOK = 1.0, 3.0
MOST_SHARE_AT_START = 0.02


class StartSigns:
    """The signs by which a program counts as started although its own port is closed.

    Args:
        words: the program's output.
        own: the port of the task, on which the program should listen.
        window: seconds from the program's start over which its use of CPU is judged.
    """

    def __init__(self, words: Words, own: int, window: float) -> None:
        self._words = words
        self._own = own
        self._window = window
        self._patience = min(PATIENCE, window / 4)
        self._began = time.monotonic()
        self._next = self._began + min(FIRST_LOOK, window / 4)
        self._wanted: list[tuple[float, float]] = []
        self._first: float | None = None
        self.seen: dict[str, Any] | None = None
        words.looks_for_steps = True

    def look(self) -> bool:
        """Check again if the next check is due; return whether the program counts as started. The
        attribute `seen` then has the sign.
        """
        now = time.monotonic()
        if now < self._next:
            return False
        spent = time.thread_time()
        pids = family()
        used = cpu_seconds(pids)
        self._wanted.append((now, used + seconds_waiting(pids)))
        self._next = now + max(LOOK, (time.thread_time() - spent) / MOST_SHARE_AT_START)
        self.seen = self._sign(pids) or self._computes(now, used)
        if self.seen is None:
            self._first = None
            return False
        self._first = self._first or now
        return now - self._first >= self._patience

    def elsewhere(self, pids: list[int]) -> dict[str, Any] | None:
        """Return the sign with the ports on which the program listens; None if there are none, or
        if the task's own port is one of them.
        """
        ports = sorted(sockets.listening(pids))
        return {"sign": "ports", "ports": ports[:5]} if ports and self._own not in ports else None

    def _sign(self, pids: list[int]) -> dict[str, Any] | None:
        ports = self.elsewhere(pids)
        if ports:
            return ports
        if self._words.steps:
            return {"sign": "steps"}
        return {"sign": "events"} if event_files(pids) else None

    def _computes(self, now: float, used: float) -> dict[str, Any] | None:
        """Return the sign of CPU use if the program needed at least half a core, both since its
        start and in the second half of this time. Seconds in which the program waited because all
        cores were busy count as CPU use, too.
        """
        age = now - self._began
        if age < self._window - self._patience:
            return None
        at, before = next(each for each in self._wanted if each[0] >= now - age / 2)
        total = self._wanted[-1][1]
        if total < WORKS * age or (now > at and total - before < WORKS * (now - at)):
            return None
        return {"sign": "cpu", "cores": round(used / age, 2), "seconds": round(age)}


def described(sign: dict[str, Any], own: int) -> str:
    """Return the line for a pod's log that says by which sign the program counts as started. A pod
    sends the operator no reports, so the operator reads the log, and
    `kube/status/waiting_reasons.py` parses this text.
    """
    how = {
        "ports": "listens on port " + ", ".join(map(str, sign.get("ports", ()))),
        "steps": "prints steps",
        "events": "writes event files",
        "cpu": f"computes ({sign.get('cores')} cores for {sign.get('seconds')} s)",
    }
    return f"it does not listen on its own port {own}, but {how[sign['sign']]}"
