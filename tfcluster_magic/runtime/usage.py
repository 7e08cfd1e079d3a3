"""Samples of a task's usage: CPU, throttling, memory, network, disk and GPUs.

A thread takes a sample every two seconds and writes it to the task's file in the folder
`.tfcluster-usage` of the run's output. Old samples are merged, so all files of a run together stay
below 1 MiB. If the volume hangs, is full or was removed, samples are lost, but the task goes on.
The package `tfcluster_magic.usage` reads the files. The thread also answers requests for stacks,
and keeps the stacks of a stalled program. Standard library only, Python 3.8 syntax.

The usage of all processes of the task counts, including processes that have ended. The figures for
the network count all traffic of the pod. Outside of pods, they count the traffic of the task's TCP
connections, without the last bytes of a connection that ends between two samples. The figures for
the disk count the traffic of block devices.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time

import sockets
import stacks
from activity import FamilyReading, family
from exit_report import CGROUP_ROOT, HIERARCHIES, NO_LIMIT, find_cgroup, read_text
from process import read_stat
from task_config import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable
    from typing import Any

    from task_config import TaskConfig

FOLDER = ".tfcluster-usage"
SAMPLE = 2.0
# The maximum fraction of a core that sampling may use. The sampling of `activity` and this sampling
# together may use 0.5 % of a core.
MOST_SHARE = 0.003
# The longest pause after a sample that took much CPU time: half of the time after which
# `usage/summary.py` regards a sample as stale. MOST_LOOK is the longest pause between two checks
# for requests for stacks.
LONGEST, MOST_LOOK = 15.0, 10.0
# The process tree is listed again after this many samples, or when one of its processes has ended:
# finding the children of a hundred threads costs more than the rest of a sample.
LIST_EVERY = 3
# STALLED_SAMPLES: the number of idle `activity` samples in a row after which a program's stacks are
# kept. After six, the run is reported as stalled. MOST_STALLS: the maximum number of such periods
# of inactivity for which one start of a task keeps the stacks.
STALLED_SAMPLES, MOST_STALLS = 5, 5

# ---- the file ----
# A file has lines of JSON. An object begins an attempt: its time (seconds since 1970), number and
# limits. An array is an interval that begins at the end of the previous one. It has 12 numbers,
# each in the unit given here: [duration 0.1 s, CPU 0.01 s, memory 64 KiB, received KiB, sent KiB,
# read KiB, written KiB, throttled 0.01 s, GPU 0.01 s, GPU memory 64 KiB, peak of memory 64 KiB,
# step]. Zeros at the end of an array are left out. The peak is the maximum memory that the kernel
# recorded; it is written as 0 if it is not above all samples and earlier peaks. The step is the
# newest that the program reported; it is 0 if the step has not changed.

VERSION = 1
RUN_BYTES = 1 << 20
TASK_BYTES = 32 << 10
# Maximum number of writes per second by all tasks of a run together, so that 600 tasks do not
# overload a volume.
MOST_WRITES = 60.0
BLOCK = 64 << 10
KIB = 1 << 10
MOST_DIGEST_ROWS, DIGEST_BYTES = 32, 1000
FIELDS = 12
MEMORY, GPU_MEMORY, PEAK, STEP = 2, 9, 10, 11
_LARGEST = (MEMORY, GPU_MEMORY, PEAK, STEP)
RETRY_SECONDS = (2.0, 60.0)
# A pair: the maximum bytes of a progress report, and the largest step that `usage/samples.py`
# accepts.
MOST_REPORT, MOST_STEP = 64 << 10, (1 << 53) - 1


def merged(rows: list[list[int]]) -> list[int]:
    """Merge intervals into one: add up the numbers, but use the largest memory, peak and step."""
    return [max(c) if at in _LARGEST else sum(c) for at, c in enumerate(zip(*rows))]


def encoded(row: list[int]) -> bytes:
    """Return an interval as a line of the file."""
    count = len(row)
    while count > 1 and not row[count - 1]:
        count -= 1
    return (",".join(map(str, row[:count]))).join("[]").encode() + b"\n"


def thinned(content: bytes, most: int) -> bytes:
    """Return the content of a file, reduced to at most `most` bytes. The newest quarter of the
    intervals stays unchanged, and the older ones are merged into fewer intervals of equal length.
    If the result is still too long, the oldest attempts are dropped. If that is not enough either,
    fewer of the newest intervals stay unchanged. Return b"" if not even one interval fits.
    """
    attempts = _attempts(content)
    count = sum(len(rows) for _head, rows in attempts)
    newest = count // 4
    step = 4 * int(SAMPLE * 10)
    while attempts:
        made, left = [], newest
        for head, rows in reversed(attempts):
            kept = rows[max(0, len(rows) - left) :] if left else []
            older = _binned(rows[: len(rows) - len(kept)], step)
            left -= len(kept)
            made.append(head + b"".join(map(encoded, older + kept)))
        result = b"".join(reversed(made))
        if len(result) <= most:
            return result
        if step < 10**9:
            step *= 2
        elif len(attempts) > 1:
            attempts.pop(0)
        elif newest:
            newest //= 2
        else:
            break
    return b""


def _attempts(content: bytes) -> list[tuple[bytes, list[list[int]]]]:
    """Return the attempts of a file: for each, its first line and its intervals. Other lines are
    ignored, such as a line that a killed writer left unfinished.
    """
    found: list[tuple[bytes, list[list[int]]]] = []
    for line in content.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append((line + b"\n", []))
        elif found and _is_row(value):
            found[-1][1].append(value + [0] * (FIELDS - len(value)))
    return found


def _is_row(value: Any) -> bool:
    right = isinstance(value, list) and 0 < len(value) <= FIELDS
    return right and all(type(each) is int for each in value)


def _binned(rows: list[list[int]], step: int) -> list[list[int]]:
    """Merge the rows that end within the same period; periods last `step` tenths of a second."""
    made: list[list[int]] = []
    group: list[list[int]] = []
    at, place = 0, -1
    for row in rows:
        at += row[0]
        if group and at // step != place:
            made.append(merged(group))
            group = []
        group.append(row)
        place = at // step
    return [*made, merged(group)] if group else made


class UsageFile:
    """The file with the usage samples of one task. Its methods never raise. Intervals that cannot
    be written are merged into one, which is written by a later call.
    """

    def __init__(self, folder: str, task: str, tasks: int) -> None:
        self._path = os.path.join(folder, FOLDER, f"{task}.jsonl")
        # While a file is replaced, the old and the new file both use space. The new file has up to
        # half of the old file's size, so the limit for one file is two thirds of the task's share.
        self._most = min(TASK_BYTES, RUN_BYTES // max(1, tasks) * 2 // 3)
        self._head = b""
        self._rows: list[list[int]] = []
        self._fd = -1
        self._pause = RETRY_SECONDS[0]
        self._next_try = 0.0

    def begin(self, head: dict[str, Any]) -> None:
        """Begin an attempt in the file; `head` is its first line (see "the file" above)."""
        self._head = json.dumps(head, separators=(",", ":")).encode() + b"\n"

    def write(self, row: list[int]) -> None:
        """Append an interval to the file."""
        self._rows.append(row)
        if time.monotonic() < self._next_try:
            self._rows = [merged(self._rows)]
            return
        try:
            self._append(self._head + b"".join(map(encoded, self._rows)))
        except OSError:
            self.close()
            self._rows = [merged(self._rows)]
            self._next_try = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, RETRY_SECONDS[1])
        else:
            self._head, self._rows, self._pause = b"", [], RETRY_SECONDS[0]

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass  # the network volume has failed meanwhile

    def _append(self, lines: bytes) -> None:
        if self._fd < 0:
            self._open()
        size = os.fstat(self._fd).st_size
        if size + len(lines) > self._most:
            self._thin(len(lines))
            size = os.fstat(self._fd).st_size
        if size + len(lines) > self._most:
            raise OSError("too many tasks for a file of each")
        if os.write(self._fd, lines) < len(lines):
            os.ftruncate(self._fd, size)
            raise OSError("the disk is full")
        if not os.fstat(self._fd).st_nlink:
            raise OSError("its file was removed")

    def _open(self) -> None:
        try:
            # Create only this folder, and never its parent: a deleted output folder must stay
            # deleted.
            os.mkdir(os.path.dirname(self._path), mode=0o755)
        except FileExistsError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd = os.open(self._path, flags, 0o644)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise OSError("it is not a regular file")
        content = os.pread(self._fd, TASK_BYTES, 0)
        # Cut off an incomplete last line, which a killed writer or the user's program has left.
        os.ftruncate(self._fd, content.rfind(b"\n") + 1)

    def _thin(self, room: int) -> None:
        content = thinned(os.pread(self._fd, TASK_BYTES, 0), max(0, self._most // 2 - room))
        beside = os.path.join(
            os.path.dirname(self._path), f".{os.path.basename(self._path)}.thinned"
        )
        try:
            # The file may exist if a writer was killed, or if the user's program created it.
            os.unlink(beside)
        except FileNotFoundError:
            pass
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # If this process is killed here, the old file is still complete.
        with open(os.open(beside, flags, 0o644), "wb") as file:
            file.write(content)
        os.replace(beside, self._path)
        self.close()
        self._open()


class Digest:
    """The intervals of this attempt merged into a few of equal length, for the exit report."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._head = json.dumps(head, separators=(",", ":")) + "\n"
        self._rows: list[list[int]] = []
        self._pending: list[list[int]] = []
        self._stride = 1

    def add(self, row: list[int]) -> None:
        """Add an interval to the digest."""
        self._pending.append(row)
        if len(self._pending) < self._stride:
            return
        self._rows, self._pending = [*self._rows, merged(self._pending)], []
        if len(self._rows) >= MOST_DIGEST_ROWS:
            self._rows, self._stride = _in_pairs(self._rows), 2 * self._stride

    def text(self) -> str:
        """Return the merged intervals in the format of a file, in at most DIGEST_BYTES; '' if there
        is no interval.
        """
        rows = [*self._rows, *([merged(self._pending)] if self._pending else [])]
        while rows:
            text = self._head + b"".join(map(encoded, rows)).decode()
            if len(text) <= DIGEST_BYTES:
                return text
            rows = _in_pairs(rows) if len(rows) > 1 else []
        return ""


def _in_pairs(rows: list[list[int]]) -> list[list[int]]:
    return [merged(rows[at : at + 2]) for at in range(0, len(rows), 2)]


# ---- sources ----


def memory(pids: list[int]) -> tuple[int, int]:
    """Return the resident bytes of these processes, and the largest peak of a single process.

    Pages of files and shared memory are counted only once, for the process that has most of them.
    """
    own = shared = peak = 0
    for pid in pids:
        resident = {"VmHWM": 0, "RssAnon": 0, "RssFile": 0, "RssShmem": 0}
        for line in read_text(f"/proc/{pid}/status").splitlines():
            name, _colon, value = line.partition(":")
            if name in resident:
                resident[name] = int(value.split()[0]) * KIB
        own += resident["RssAnon"]
        shared = max(shared, resident["RssFile"] + resident["RssShmem"])
        peak = max(peak, resident["VmHWM"])
    return own + shared, peak


def disk(pids: list[int]) -> tuple[int, int]:
    """Return (read, written): the bytes that these processes, and their descendants that have
    ended, have transferred from and to block devices. A process whose numbers are not readable is
    ignored.
    """
    read = written = 0
    for pid in pids:
        for line in read_text(f"/proc/{pid}/io").splitlines():
            name, _colon, value = line.partition(":")
            if name == "read_bytes":
                read += int(value)
            elif name == "write_bytes":
                written += int(value)
    return read, written


def pod_network() -> tuple[int, int]:
    """Return the bytes that this pod has received and sent, except over its loopback."""
    received = sent = 0
    for line in read_text("/proc/net/dev").splitlines()[2:]:
        name, _colon, numbers = line.partition(":")
        part = numbers.split()
        if name.strip() != "lo" and len(part) > 8:
            received += int(part[0])
            sent += int(part[8])
    return received, sent


class Connections:
    """The bytes of the TCP connections of processes, including connections that have ended."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, int]] = {}
        self._ended = (0, 0)

    def look(self, pids: list[int]) -> tuple[int, int]:
        """Return the bytes that the connections of these processes have received and sent."""
        owned = {inode for pid in pids for inode in sockets.inodes(pid)}
        try:
            now = sockets.traffic(owned) if owned else {}
        except (OSError, AttributeError):
            # The kernel cannot report sockets (no `sock_diag`), or its answer was incomplete.
            now = self._open
        for inode, before in self._open.items():
            if now.get(inode, (-1, -1)) < before:
                self._ended = tuple(map(sum, zip(self._ended, before)))  # type: ignore[assignment]
        self._open = now
        return tuple(map(sum, zip(self._ended, *now.values())))  # type: ignore[return-value]


class Cgroup:
    """The task's own control group: its limits, and the time for which it was throttled. A group is
    ignored if it also has processes that do not belong to the task.
    """

    def __init__(self, pids: list[int]) -> None:
        mine = {str(pid) for pid in (os.getpid(), *pids)}

        def own(folder: str) -> str:
            members = read_text(os.path.join(folder, "cgroup.procs")).split() if folder else []
            return folder if members and mine.issuperset(members) else ""

        v2 = (CGROUP_ROOT, CGROUP_ROOT + "/unified")
        v1 = (CGROUP_ROOT + "/cpu", CGROUP_ROOT + "/cpu,cpuacct")
        self._cpu = own(find_cgroup("", v2, "cpu.max")) or own(find_cgroup("cpu", v1, "cpu.stat"))
        groups = ((own(find_cgroup(c, m, name)), name) for c, m, _counters, name in HIERARCHIES)
        self._memory = next((os.path.join(at, name) for at, name in groups if at), "")

    def throttled(self) -> float:
        """Return the seconds for which the group's threads waited because of the group's CPU
        limit.
        """
        for line in (
            read_text(os.path.join(self._cpu, "cpu.stat")).splitlines() if self._cpu else ()
        ):
            name, _space, value = line.partition(" ")
            if name == "throttled_usec":
                return int(value) / 1e6
            if name == "throttled_time":
                return int(value) / 1e9
        return 0.0

    def limits(self) -> dict[str, float]:
        """Return the group's limits, as far as it has any: `cpu` in cores, `memory` in bytes."""
        found: dict[str, float] = {}
        if self._cpu:
            quota, _space, period = read_text(os.path.join(self._cpu, "cpu.max")).partition(" ")
            if not quota:
                quota = read_text(os.path.join(self._cpu, "cpu.cfs_quota_us"))
                period = read_text(os.path.join(self._cpu, "cpu.cfs_period_us"))
            if quota.strip().isdigit() and period.strip().isdigit():
                found["cpu"] = round(int(quota) / int(period), 3)
        most = read_text(self._memory).strip() if self._memory else ""
        if most.isdigit() and int(most) < NO_LIMIT:
            found["memory"] = int(most)
        return found


class Gpus:
    """The task's NVIDIA GPUs, read by NVML, the driver's library; no GPUs if NVML is not installed.

    `visible` is the value of `CUDA_VISIBLE_DEVICES`. NVML is assumed to number the GPUs as CUDA
    does. Utilization and memory are those of the device, including its use by other processes.
    """

    def __init__(self, visible: str | None) -> None:
        self._devices: list[ctypes.c_void_p] = []
        if visible is not None and visible.strip() in ("", "-1"):
            return
        try:
            import ctypes

            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self._ctypes = ctypes
            if self._nvml.nvmlInit_v2() != 0:
                return
            if visible is None:
                count = ctypes.c_uint()
                self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
                names = [str(number) for number in range(count.value)]
            else:
                names = [name.strip() for name in visible.split(",")]
            found = (self._find(name) for name in names)
            self._devices = [each for each in found if each is not None]
        except (OSError, AttributeError, ImportError):
            # There is no driver, or an old driver without these calls.
            self._devices = []

    def _find(self, name: str) -> ctypes.c_void_p | None:
        handle = self._ctypes.c_void_p()
        pointer = self._ctypes.byref(handle)
        if name.isdigit():
            status = self._nvml.nvmlDeviceGetHandleByIndex_v2(
                self._ctypes.c_uint(int(name)), pointer
            )
        else:
            status = self._nvml.nvmlDeviceGetHandleByUUID(name.encode(), pointer)
        return handle if status == 0 else None

    def look(self) -> tuple[float, int]:
        """Return the number of busy GPUs, such as 1.5 if one is busy and another is busy for half
        of the time, and the used bytes of all GPUs.
        """
        busy, used = 0.0, 0
        for device in self._devices:
            rates = (self._ctypes.c_uint * 2)()  # busy percent: compute, memory access
            if self._nvml.nvmlDeviceGetUtilizationRates(device, rates) == 0:
                busy += rates[0] / 100
            room = (self._ctypes.c_ulonglong * 3)()  # bytes: total, free, used
            if self._nvml.nvmlDeviceGetMemoryInfo(device, room) == 0:
                used += room[2]
        return busy, used


class Reports:
    """The steps that the program reports by `tfcluster.progress` (see `site/tfcluster.py`)."""

    def __init__(self, folder: str, task: str) -> None:
        self._path = os.path.join(folder, ".tfcluster-progress", f"{task}.json")
        self._seen = (0, 0)
        self._step = 0

    def step(self) -> int:
        """Return the newest reported step; 0 if the program has reported none."""
        try:
            found = os.stat(self._path)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_REPORT:
                return self._step
            if (found.st_ino, found.st_mtime_ns) != self._seen:
                self._seen = found.st_ino, found.st_mtime_ns
                told = json.loads(read_text(self._path))["step"]
                self._step = max(0, told) if type(told) is int else 0
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            # There is no report yet, or the file is not a valid report.
            pass
        return self._step


# ---- the thread ----


class UsageWatch:
    """A thread that samples the usage of this process's descendants until `close`. The attribute
    `seen` has what was last read about these processes. The argument `step` is a function that
    returns the step that the program printed last. Raises ConfigError.
    """

    def __init__(
        self, config: TaskConfig, pace: float = SAMPLE, step: Callable[[], int] = lambda: 0
    ) -> None:
        self.seen: FamilyReading | None = None
        self._pace = min(pace, SAMPLE)
        self._stalled_after = STALLED_SAMPLES * pace
        self._stalls: list[float] = []
        self._keep_stacks_of = 0.0
        self._folder, self._task = config.output_dir, config.task
        self._tasks = tasks = sum(config.counts.values())
        self._file = UsageFile(config.output_dir, config.task, tasks)
        self._write_every = max(self._pace, tasks / MOST_WRITES)
        self._in_pod = config.in_pod
        self._visible = config.environment(dict(os.environ)).get("CUDA_VISIBLE_DEVICES")
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfcluster-usage", daemon=True)
        self._pids: list[int] = []
        self._looks = 0
        self._gpu_busy = 0.0
        self._peak = 0
        self._printed = step
        self._reports = Reports(config.output_dir, config.task)
        self._step = 0
        self._digest: Digest | None = None
        self._began = self._at = time.monotonic()
        self._wrote_at = self._at

    def start(self) -> None:
        """Start sampling. Call this after the last fork, because it starts a thread."""
        self._thread.start()

    def quiet(self, since: float) -> None:
        """Let the thread save the stacks of the program if the program has been inactive for a long
        time. `since` is the start of the inactivity, in seconds since 1970. Each period of
        inactivity is handled once.
        """
        if (
            since not in self._stalls
            and len(self._stalls) < MOST_STALLS
            and time.time() - since >= self._stalled_after
        ):
            self._stalls.append(since)
            self._keep_stacks_of = since

    def digest(self) -> str:
        """Return a summary of the samples so far, short enough for the exit report."""
        return self._digest.text() if self._digest else ""

    def end(self) -> None:
        """Make the thread take its last sample now."""
        self._closing.set()

    def close(self, seconds: float) -> None:
        """Wait at most `seconds` until the last sample is written."""
        self._closing.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        pending: list[list[int]] = []
        self._gpus = Gpus(self._visible)
        self._connections = Connections()
        # Disk and network traffic before the program started, which is not part of its usage.
        self._before = disk([os.getpid()]), pod_network() if self._in_pod else (0, 0)
        look = FamilyReading()
        self._pids = look.pids
        self._group = Cgroup(self._pids)
        self._totals = [0] * FIELDS
        self._throttled = self._group.throttled()
        head = {"v": VERSION, "at": round(time.time(), 1), "attempt": int(attempt(os.environ))}
        head.update(self._group.limits())
        self._file.begin(head)
        self._digest = digest = Digest(head)
        next_sample = next_look = time.monotonic() + self._pace
        last = False
        while not last:
            last = self._closing.wait(max(0.0, min(next_sample, next_look) - time.monotonic()))
            if last or time.monotonic() >= next_sample:
                spent = time.thread_time()
                pending.append(self._sample())
                digest.add(pending[-1])
                if last or time.monotonic() - self._wrote_at >= self._write_every - self._pace / 2:
                    self._wrote_at = time.monotonic()
                    for row in pending:
                        self._file.write(row)
                    pending = []
                pause = (time.thread_time() - spent) / MOST_SHARE
                next_sample = time.monotonic() + max(self._pace, min(pause, LONGEST))
            if last or time.monotonic() >= next_look:
                stacks.answer(self._folder, self._task, family)
                since, self._keep_stacks_of = self._keep_stacks_of, 0.0
                if since and not last:
                    number = int(attempt(os.environ))
                    stacks.keep(self._folder, self._task, family, since, number, self._tasks)
                next_look = time.monotonic() + min(self._write_every, MOST_LOOK)
        self._file.close()

    def _sample(self) -> list[int]:
        """Take a sample; return the interval since the last sample."""
        now = time.monotonic()
        if self._looks % LIST_EVERY == 0 or not all(map(read_stat, self._pids)):
            self.seen = FamilyReading()
        else:
            self.seen = FamilyReading(self._pids)
        self._looks += 1
        pids = self._pids = self.seen.pids
        resident, highest = memory(pids)
        (read_before, written_before), network_before = self._before
        read, written = disk([os.getpid(), *pids])
        received, sent = pod_network() if self._in_pod else self._connections.look(pids)
        busy, used = self._gpus.look()
        self._gpu_busy += busy * (now - self._at)
        self._at = now
        before, self._totals = (
            self._totals,
            [
                int((now - self._began) * 10),
                int(self.seen.cpu * 100),
                0,
                (received - network_before[0]) // KIB,
                (sent - network_before[1]) // KIB,
                (read - read_before) // KIB,
                (written - written_before) // KIB,
                int((self._group.throttled() - self._throttled) * 100),
                int(self._gpu_busy * 100),
                0,
                0,
                0,
            ],
        )
        # Totals may fall when a process has ended, because some of its numbers are lost.
        row = [max(0, b - a) for a, b in zip(before, self._totals)]
        self._totals = [max(each) for each in zip(before, self._totals)]
        row[MEMORY], row[GPU_MEMORY] = resident // BLOCK, used // BLOCK
        self._peak = max(self._peak, row[MEMORY])
        if highest // BLOCK > self._peak:
            self._peak = row[PEAK] = highest // BLOCK
        step = min(self._reports.step() or self._printed(), MOST_STEP)
        if step != self._step:
            self._step = row[STEP] = step
        return row
