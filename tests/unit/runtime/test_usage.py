"""Samples of a task's usage: the sampled amounts, the size of the files, and failing volumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, TaskProcess, new_run

from tfcluster_magic.usage.samples import Attempt, Interval, parse, read_samples
from tfcluster_magic.usage.stacks import WITHIN
from tfcluster_magic.usage.summary import STALE, Rates, series

QUICK = {"TFCLUSTER_IDLE_SAMPLE": "0.2"}
MIB = 1 << 20
WORKS = """
import os, socket, subprocess, sys, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _address = server.accept()
block = bytes(1 << 20)
def send():
    for _number in range(20):
        client.sendall(block)
sender = threading.Thread(target=send)
sender.start()
left = 20 << 20
while left:
    left -= len(peer.recv(1 << 20))
sender.join()
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 1: pass"])
kept = bytearray(os.urandom(1 << 20) * 150)
while not os.path.exists("end"):
    time.sleep(0.05)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; afterwards end its processes."""
    with new_run(tmp_path) as made:
        yield made


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield the runtime's module `usage`, imported as in a task."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(RUNTIME))
    import usage as module  # type: ignore[import-not-found, unused-ignore]

    yield module
    for name in set(sys.modules) - before:
        del sys.modules[name]


def samples(run: Run, task: str = "worker-0") -> list[Attempt]:
    """Return the samples of a task, by attempt."""
    return read_samples(str(run.output), [task]).get(task, [])


def intervals(run: Run) -> list[Interval]:
    """Return the sampled intervals of all attempts of worker-0."""
    return [each for attempt in samples(run) for each in attempt.intervals]


def test_what_a_program_uses_is_sampled(run: Run) -> None:
    """CPU includes processes that have ended, memory is resident memory, and network is the traffic
    of the program's connections.
    """
    task = run.program(WORKS).task().start(QUICK)
    wait_until(lambda: any(e.memory > 150 * MIB for e in intervals(run)), "its memory")
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"
    every = intervals(run)
    assert sum(e.cpu for e in every) >= 1.0
    assert max(e.memory for e in every) < 400 * MIB
    for moved in (sum(e.received for e in every), sum(e.sent for e in every)):
        assert 20 * MIB - 1024 <= moved < 21 * MIB


def test_each_attempt_counts_from_its_own_start(run: Run) -> None:
    """A restarted task continues the same file with the usage of its own processes."""
    run.program("sum(range(10**7))")
    for number in ("1", "2"):
        run.task().start({**QUICK, "TFCLUSTER_ATTEMPT": number}).wait()
    first, second = samples(run)
    assert (first.number, second.number) == (1, 2)
    assert second.began >= first.intervals[-1].at - 0.2
    assert all(sum(e.cpu for e in each.intervals) > 0.01 for each in (first, second))


def test_the_last_sample_of_a_short_task_has_all_of_it(run: Run) -> None:
    """The whole usage of a program that ends before the second sample is counted."""
    run.program("import time\nwhile time.process_time() < 0.5: pass").task().start().wait()
    assert sum(e.cpu for e in intervals(run)) >= 0.45


@pytest.mark.parametrize("broken", ["file", "folder", "volume"])
def test_a_volume_that_fails_disturbs_no_task(run: Run, broken: str) -> None:
    """If samples cannot be written, the program continues and its log does not mention it."""
    run.output.mkdir()
    folder = run.output / ".tfcluster-usage"
    if broken == "file":
        folder.mkdir()
        os.mkfifo(folder / "worker-0.jsonl")
    elif broken == "folder":
        folder.write_text("something else")
    else:
        folder.symlink_to("/dev/full")
    task: TaskProcess = run.program("print('done')").task().start(QUICK)
    assert task.wait()["cause"] == "Completed"
    assert task.output == "done\n"


def test_files_stay_below_a_mebibyte_for_any_run(usage: ModuleType, tmp_path: Path) -> None:
    """For any number of tasks and any duration, a sample file stays within its share of 1 MiB, even
    while it is replaced, and the sums stay right.
    """
    for tasks, least in ((1, 400), (600, 12), (1500, 5)):
        folder = tmp_path / str(tasks)
        folder.mkdir()
        file = usage.UsageFile(str(folder), "worker-0", tasks)
        file.begin({"v": 1, "at": 1.7e9, "attempt": 1})
        most = 0
        for number in range(4000):
            file.write(
                [20, 150 + number % 7, 30000 + number, 99, 12, 0, 4, 0, 0, 0, 0, 50 * number]
            )
            most = max(most, sum(each.stat().st_size for each in folder.rglob("*.jsonl*")))
        file.close()
        assert most * 3 // 2 <= min(usage.TASK_BYTES * 3 // 2, (1 << 20) // tasks)
        (attempt,) = parse((folder / ".tfcluster-usage" / "worker-0.jsonl").read_bytes())
        every = attempt.intervals
        assert sum(e.cpu for e in every) == pytest.approx(
            sum(1.5 + number % 7 / 100 for number in range(4000))
        )
        assert sum(e.seconds for e in every) == pytest.approx(8000)
        assert max(e.memory for e in every) == 33999 << 16
        assert every[-1].seconds == pytest.approx(2)
        assert len(every) >= least


def test_an_exit_report_has_the_usage_if_it_is_asked_for(run: Run) -> None:
    """If usage is requested, the termination message has a digest of the samples after the report
    of the exit. Together, they have less than 4096 bytes, even if the last lines of the program are
    long.
    """
    line = "x" * 600
    text = f"""
import time
kept = bytearray(60 << 20)
for _number in range(20):
    print({line!r}, flush=True)
    time.sleep(0.05)
raise SystemExit(3)
"""
    run.program(text)
    run.config["reportsUsage"] = True
    task = run.task().start(QUICK)
    task.process.wait()
    message = task.exit_file.read_text()
    assert len(message.encode()) <= 4096
    first, _newline, told = message.partition("\n")
    assert json.loads(first)["exitCode"] == 3 and json.loads(first)["lastLines"]
    (attempt,) = parse(told.encode())
    assert max(each.memory for each in attempt.intervals) > 60 * MIB
    assert [e["event"] for e in task.hear()][-1] == "exit"
    del run.config["reportsUsage"]
    assert run.task().start(QUICK).wait()["exitCode"] == 3


def test_a_digest_has_equal_intervals_whatever_the_time(usage: ModuleType) -> None:
    """A digest of any number of samples has at most 32 intervals and 1000 bytes, and keeps the
    sums, the largest memory and the newest step.
    """
    for count in (1, 31, 32, 33, 1000, 5000):
        digest = usage.Digest({"v": 1, "at": 1.8e9, "attempt": 3})
        for number in range(count):
            memory = 10**6 if number == count // 2 else 10**5
            digest.add([20, 150, memory, 99999, 0, 0, 0, 20, 0, 0, 0, number])
        text = digest.text()
        assert len(text) <= usage.DIGEST_BYTES
        (attempt,) = parse(text.encode())
        every = attempt.intervals
        assert attempt.number == 3 and len(every) <= usage.MOST_DIGEST_ROWS
        assert sum(each.cpu for each in every) == pytest.approx(1.5 * count)
        assert max(each.memory for each in every) == 10**6 * usage.BLOCK
        assert every[-1].step == count - 1
        lengths = {round(each.seconds, 1) for each in every[:-1]}
        assert len(lengths) <= 1, lengths
        assert count < 32 or len(every) >= 8
    assert usage.Digest({"v": 1, "at": 1.8e9}).text() == ""


def test_thinning_follows_no_link(usage: ModuleType, tmp_path: Path) -> None:
    """A link that a program put next to the samples cannot redirect a write."""
    other = tmp_path / "other"
    other.write_text("kept")
    file = usage.UsageFile(str(tmp_path), "worker-0", 1)
    file.begin({"v": 1, "at": 1.7e9, "attempt": 1})
    file.write([20, 100, 7] + [0] * 9)
    beside = tmp_path / ".tfcluster-usage" / ".worker-0.jsonl.thinned"
    beside.symlink_to(other)
    for _number in range(2000):
        file.write([20, 15000, 30000] + [9] * 9)
    file.close()
    assert not beside.is_symlink()
    assert other.read_text() == "kept"


def test_old_samples_are_merged_to_equal_lengths(usage: ModuleType) -> None:
    """The newest quarter of the samples keeps its resolution; older samples are merged into
    intervals of a fixed length.
    """
    head = json.dumps({"v": 1, "at": 1.7e9, "attempt": 1}).encode() + b"\n"
    content = head + b"".join(usage.encoded([20, n, 100] + [0] * 9) for n in range(1, 401))
    (attempt,) = parse(usage.thinned(content, len(content) // 2))
    lengths = [round(e.seconds) for e in attempt.intervals]
    assert lengths[-100:] == [2] * 100
    assert set(lengths[1:-101]) == {lengths[1]}
    assert lengths[1] > 2


def test_many_attempts_leave_the_newest(usage: ModuleType) -> None:
    """If a task is restarted very often, the samples of its oldest attempts are dropped."""
    content = b"".join(
        json.dumps({"v": 1, "at": 1.7e9, "attempt": n}).encode() + b"\n[20,5,100]\n"
        for n in range(300)
    )
    kept = parse(usage.thinned(content, 900))
    assert kept[-1].number == 299
    assert len(usage.thinned(content, 900)) <= 900


def test_what_could_not_be_written_is_not_lost(usage: ModuleType, tmp_path: Path) -> None:
    """After a time in which samples could not be written, the usage during this time is in one
    interval; a removed folder is not created again.
    """
    gone = tmp_path / "gone"
    file = usage.UsageFile(str(gone), "worker-0", 1)
    file.begin({"v": 1, "at": 1.7e9, "attempt": 1})
    for _number in range(5):
        file.write([20, 100, 7] + [0] * 9)
    assert not gone.exists()
    gone.mkdir()
    file._next_try = 0.0
    file.write([20, 100, 9] + [0] * 9)
    file.close()
    (attempt,) = parse((gone / ".tfcluster-usage" / "worker-0.jsonl").read_bytes())
    assert sum(e.cpu for e in attempt.intervals) == pytest.approx(6)
    assert sum(e.seconds for e in attempt.intervals) == pytest.approx(12)


def test_a_killed_writer_leaves_a_readable_file(usage: ModuleType, tmp_path: Path) -> None:
    """If the writer was killed within a line, this line is ignored, and the next attempt starts on
    a new line.
    """
    file = usage.UsageFile(str(tmp_path), "worker-0", 1)
    file.begin({"v": 1, "at": 1.7e9, "attempt": 1})
    file.write([20, 100, 7] + [0] * 9)
    file.close()
    path = tmp_path / ".tfcluster-usage" / "worker-0.jsonl"
    with path.open("ab") as torn:
        torn.write(b"[20,1")
    assert [len(a.intervals) for a in parse(path.read_bytes())] == [1]
    again = usage.UsageFile(str(tmp_path), "worker-0", 1)
    again.begin({"v": 1, "at": 1.7e9 + 9, "attempt": 2})
    again.write([20, 30, 7] + [0] * 9)
    assert [(a.number, len(a.intervals)) for a in parse(path.read_bytes())] == [(1, 1), (2, 1)]


def test_a_file_of_anything_is_no_error() -> None:
    """Lines that a program wrote to the file are ignored."""
    lines = [b"[1]", b"{", b"[" * 5000, b'{"v": 2, "at": 1}', b'{"v": 1, "at": 1e300}', b"\xff"]
    lines += [b'{"v": 1, "at": 5}', b'["x"]', b"[-1]", b"[1e99]", b"[9" * 99, b"[20, 100]", b"[3"]
    (attempt,) = parse(b"\n".join(lines))
    assert [e.cpu for e in attempt.intervals] == [1.0]
    assert set(Rates.__struct_fields__) < set(type(series([attempt])).__struct_fields__)


def test_gpus_are_those_of_the_driver(usage: ModuleType) -> None:
    """A task that sees no GPU reports no GPU usage, whatever GPUs the machine has."""
    for visible in ("", "-1", "GPU-of-another-machine"):
        assert usage.Gpus(visible).look() == (0.0, 0)


DRIVER = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(0x100000001ul + index);
    return index < 2 ? 0 : 2;
}
int nvmlDeviceGetHandleByUUID(const char *name, void **device) {
    *device = (void *)0x100000002ul;
    return strcmp(name, "GPU-b") ? 6 : 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
    rates[0] = device == (void *)0x100000001ul ? 25 : 50;
    rates[1] = 99;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long room[3]) {
    room[0] = 1ull << 40;
    room[1] = 7;
    room[2] = device == (void *)0x100000001ul ? 3ull << 30 : 1ull << 30;
    return 0;
}
"""


def make_driver(folder: Path) -> None:
    """Build a stand-in for the GPU driver's library in `folder`."""
    (folder / "driver.c").write_text(DRIVER)
    library = folder / "libnvidia-ml.so.1"
    made = ["cc", "-shared", "-fPIC", "-o", str(library), str(folder / "driver.c")]
    subprocess.run(made, check=True)


def test_the_gpus_of_a_task_are_those_that_its_program_sees(run: Run, tmp_path: Path) -> None:
    """The environment of the launch decides which GPUs count, not the environment of the process
    that starts the task.
    """
    make_driver(tmp_path)
    run.config["env"] = {"CUDA_VISIBLE_DEVICES": "0"}
    outside = {"LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "-1"}
    run.program("print('done')").task().start({**QUICK, **outside}).wait()
    assert {e.gpu_memory for e in intervals(run)} == {3 << 30}


def test_samples_come_before_they_count_as_stale(usage: ModuleType) -> None:
    """The longest pause between samples is so short that even a late sample comes before the last
    sample counts as stale. The longest pause between two checks for requests is so short that a
    request for stacks is answered in time.
    """
    import stacks  # type: ignore[import-not-found, unused-ignore]

    assert 2 * usage.LONGEST <= STALE
    assert usage.MOST_LOOK + stacks.ALL + stacks.MOST_PROCESSES * stacks.STILL < WITHIN


def test_gpus_are_read_from_the_drivers_library(tmp_path: Path) -> None:
    """Usage and memory are summed over the visible devices, given by number or by name; devices
    unknown to the driver are ignored.
    """
    make_driver(tmp_path)
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import usage\n"
        "cases = (None, '0', '1,7', 'GPU-b', 'GPU-c', '-1')\n"
        "print(json.dumps([usage.Gpus(each).look() for each in cases]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(RUNTIME)],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    gib = 1 << 30
    assert json.loads(done.stdout) == [
        [0.75, 4 * gib],
        [0.25, 3 * gib],
        [0.5, gib],
        [0.5, gib],
        [0.0, 0],
        [0.0, 0],
    ]


CGROUP = """
import json, os, sys; sys.path.insert(0, sys.argv[1])
import exit_report, usage
root, lines = sys.argv[2:]
exit_report.CGROUP_ROOT = usage.CGROUP_ROOT = root
usage.HIERARCHIES = (
    ("", (root, root + "/unified"), "memory.events", "memory.max"),
    ("memory", (root + "/memory",), "memory.oom_control", "memory.limit_in_bytes"),
)
read = exit_report.read_text
exit_report.read_text = lambda path: lines if path == "/proc/self/cgroup" else read(path)
told = []
for members in (f"{os.getpid()}\\n7\\n", f"{os.getpid()}\\n7\\n1\\n"):
    for folder, _folders, files in os.walk(root):
        if files:
            open(os.path.join(folder, "cgroup.procs"), "w").write(members)
    group = usage.Cgroup([7])
    told.append([group.throttled(), group.limits()])
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        (
            "0::/jobs/7\n",
            {
                "jobs/7/cpu.max": "150000 100000",
                "jobs/7/cpu.stat": "usage_usec 5\nthrottled_usec 2500000\n",
                "jobs/7/memory.max": "1073741824",
            },
        ),
        (
            "4:cpu,cpuacct:/jobs/7\n5:memory:/jobs/7\n",
            {
                "cpu,cpuacct/jobs/7/cpu.stat": "nr_periods 5\nthrottled_time 2500000000\n",
                "cpu,cpuacct/jobs/7/cpu.cfs_quota_us": "150000",
                "cpu,cpuacct/jobs/7/cpu.cfs_period_us": "100000",
                "memory/jobs/7/memory.limit_in_bytes": "1073741824",
            },
        ),
    ],
)
def test_limits_and_throttling_of_an_own_control_group(
    tmp_path: Path, lines: str, files: dict[str, str]
) -> None:
    """The throttled time and the limits are read from the task's own control group, in both
    versions of control groups. A group that the task shares with other processes does not count.
    """
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", CGROUP, str(RUNTIME), str(tmp_path), lines],
        check=True,
        capture_output=True,
    )
    own, shared = json.loads(done.stdout)
    assert own == [2.5, {"cpu": 1.5, "memory": 1 << 30}]
    assert shared == [0.0, {}]


def test_steps_that_a_program_tells_are_sampled(run: Run) -> None:
    """Steps that a program prints are in the samples; steps that a program reports by
    `tfcluster.progress` take precedence.
    """
    source = """
import os, time, tfcluster
print("step 41", flush=True)
while not os.path.exists("reports"):
    time.sleep(0.05)
tfcluster.progress(7000)
while not os.path.exists("end"):
    time.sleep(0.05)
"""
    task = run.program(source).task().start(QUICK)
    wait_until(lambda: any(e.step == 41 for e in intervals(run)), "the printed step")
    (run.output / "reports").touch()
    wait_until(lambda: any(e.step == 7000 for e in intervals(run)), "the reported step")
    (run.output / "end").touch()
    assert task.wait()["cause"] == "Completed"
