"""The output of a task, which is passed on without loss or changes, and its last lines in the
report.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.polling import wait_until
from support.printing_task import EVERYTHING, MANY, run
from support.project import ROOT
from support.task_process import PATIENCE, Run

from tfcluster_magic.backends.log_files import TaskLog

__all__ = ["run"]  # a fixture of another module

ABORTED = (
    "import os\n"
    "print('F0000 00:00:17.1 1 agent.cc:9] Terminating: ABORTED: heartbeat', flush=True)\n"
    "os.abort()"
)


def test_bytes_stay_as_they_are(run: Run) -> None:
    """A program's output is passed on unchanged, to the task's log and to the copy of the log in
    the output folder: any bytes, carriage returns, and no newline at the end.
    """
    run.program(
        "import os, random, sys\n"
        "data = random.Random(1).randbytes(3_000_000) + b'\\r 1/2\\r 2/2 no newline'\n"
        "sys.stdout.buffer.write(data)\n"
    )
    task = run.task().start()
    task.wait()
    data = task.log.read_bytes()
    assert len(data) == 3_000_021
    assert data.endswith(b"\r 1/2\r 2/2 no newline")
    copied = (run.output / "worker-0.log").read_bytes()
    assert hashlib.sha256(copied).digest() == hashlib.sha256(data).digest()


def test_lines_come_at_once(run: Run) -> None:
    """A line is passed on while the program runs, without a flush by the program."""
    run.program("import time; print('first'); time.sleep(600)")
    task = run.task().start()
    wait_until(lambda: task.output == "first\n", "the line")


def test_when_each_line_was_printed(run: Run, tmp_path: Path) -> None:
    """Each attempt writes the times of its lines next to the log and next to the log's copy."""
    go = tmp_path / "go"
    waits = f"while not os.path.exists({str(go)!r}): time.sleep(0.02)"
    run.program(f"import os, time\nprint('one')\n{waits}\nprint('two')")
    task = run.task().start({"TFCLUSTER_ATTEMPT": "1"})
    wait_until(lambda: task.output == "one\n", "the first line")
    between = time.time()
    go.touch()
    task.wait()
    run.task().start({"TFCLUSTER_ATTEMPT": "2"}).wait()
    for log in (task.log, run.output / "worker-0.log"):
        told = list(TaskLog("worker-0", [log]).read())
        assert [line.text for line in told] == ["one", "two"] * 2
        times = [line.at or 0 for line in told]
        assert between - 60 < times[0] <= between <= times[1] + 0.001 <= times[2] + 0.001
        assert times == sorted(times)
        assert times[-1] <= time.time()
        last = TaskLog("worker-0", [log])
        last.seek_last(1)
        assert [line.at for line in last.read()] == times[-1:]


def test_restarts_append(run: Run) -> None:
    """A later attempt adds to the copy of the log."""
    run.program("import os; print('attempt', os.environ['TFCLUSTER_ATTEMPT'])")
    for attempt in ("1", "2"):
        run.task().start({"TFCLUSTER_ATTEMPT": attempt}).wait()
    assert (run.output / "worker-0.log").read_text() == "attempt 1\nattempt 2\n"


def test_a_line_that_was_cut_off_ends(run: Run) -> None:
    """The first line of a new attempt does not join a line that was cut off."""
    run.program("print('whole')")
    copy, task = run.output / "worker-0.log", run.task()
    for log in (copy, task.log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("hal")
    task.start().wait()
    assert copy.read_text() == "hal\nwhole\n"
    assert task.log.read_text() == "hal\nwhole\n"


def test_stdout_that_takes_nothing(run: Run) -> None:
    """While the task's output is blocked, the program waits, and SIGTERM still works."""
    run.program(MANY)
    task = run.task().start(stdout=subprocess.PIPE)
    task.event("ready")
    task.process.terminate()
    assert task.wait()["cause"] == "Stopped"
    assert task.process.stdout is not None
    task.process.stdout.close()


def test_slow_reader_gets_everything(run: Run) -> None:
    """A slow and late reader gets every line in order."""
    run.program(MANY)
    task = run.task().start(stdout=subprocess.PIPE)
    task.event("ready")
    assert task.process.stdout is not None
    with task.process.stdout as pipe:
        assert pipe.read().decode().splitlines() == EVERYTHING
    assert task.wait()["cause"] == "Completed"


def test_no_reader_at_all(run: Run) -> None:
    """A task whose output has lost its reader continues to the end."""
    run.program(MANY)
    read, write = os.pipe()
    os.close(read)
    task = run.task().start(stdout=write)
    os.close(write)
    assert task.wait()["cause"] == "Completed"
    assert (run.output / "worker-0.log").read_text().endswith("done\n")


def test_last_lines_of_an_exception(run: Run) -> None:
    """The last lines end with the exception, without TensorFlow's log lines before and after it."""
    run.program(
        "import sys\n"
        "print('\\x1b[1m\\r10/10 loss 0.5', flush=True)\n"
        "log = '2024-05-01 10:00:00.123456: {} tensorflow/core/x.cc:1] {}'\n"
        "print(log.format('I', 'noise: goo.gle/debugstr  '), file=sys.stderr)\n"
        "print('experimental {\\n  sent: true\\n}\\n', file=sys.stderr)\n"
        "hook = sys.excepthook\n"
        "sys.excepthook = lambda *a: (hook(*a), print(log.format('W', 'UNAVAILABLE: x')))\n"
        "raise ValueError('shapes differ\\nfirst: 3')\n"
    )
    message = run.task().start().wait()
    assert message["lastLines"][0] == "10/10 loss 0.5"
    assert message["lastLines"][-2:] == ["ValueError: shapes differ", "first: 3"]
    assert not message["follows"]


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("raise RuntimeError('UNAVAILABLE: failed to connect to all addresses')", True),
        ("class UnavailableError(Exception): pass\nraise UnavailableError('{{node x}}')", True),
        ("raise ConnectionResetError(104, 'Connection reset by peer')", True),
        (ABORTED, True),
        ("raise KeyError('x')", False),
        ("print('step 10: connection refused by nobody')\nraise KeyError('x')", False),
        ("import sys; print('UNAVAILABLE'); sys.exit(0)", False),
    ],
)
def test_follows(run: Run, text: str, follows: bool) -> None:
    """A failure because of a lost peer is distinguished from a failure of the program itself."""
    assert run.program(text).task().start().wait()["follows"] is follows


def test_report_is_small(run: Run) -> None:
    """A task's report fits in one pipe write and one termination message, even if its program's
    last lines are very long.
    """
    run.program(
        "for n in range(40): print(str(n) * 1000 + 'é\\udc80'.encode('utf8', 'replace').decode())"
    )
    task = run.task().start()
    message = task.wait()
    assert task.exit_file.stat().st_size <= 4000
    assert 8 <= len(message["lastLines"]) <= 20
    assert message["lastLines"][-1].startswith("3939")


def test_termination_message_on_a_mounted_file(run: Run, tmp_path: Path) -> None:
    """If the termination message is mounted as a file, as in a container, the file is overwritten
    and not replaced.
    """
    mounted = tmp_path / "mounted"
    mounted.touch()
    task = run.program("pass").task()
    task.exit_file.touch()
    bind = f"mount --bind {mounted} {task.exit_file}"
    task.start(
        prefix=[
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            f'{bind} && exec "$@"',
            "",
        ]
    ).process.wait(PATIENCE)
    assert '"Completed"' in mounted.read_text()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith("worker-0.exit.json.")]


def test_oom_counters(tmp_path: Path) -> None:
    """Memory kills are counted in the task's own cgroup, in both versions of cgroups. A kill in a
    cgroup that the task shares does not prove that the task was killed.
    """
    script = """
import os, sys; sys.path.insert(0, sys.argv[1])
import exit_report
root, lines, counter = sys.argv[2:]
exit_report.CGROUP_ROOT = root
exit_report.HIERARCHIES = (
    ("", (root, root + "/unified"), "memory.events", "memory.max"),
    ("memory", (root + "/memory",), "memory.oom_control", "memory.limit_in_bytes"),
)
read = exit_report.read_text
exit_report.read_text = lambda p: lines if p == "/proc/self/cgroup" else read(p)
watch = exit_report.OomWatch()
assert not watch.own() and not watch.around()
open(counter, "w").write("oom 1\\noom_kill 1\\n")
procs = os.path.dirname(counter) + "/cgroup.procs"
open(procs, "w").write(f"{os.getpid()}\\n1\\n")
assert not watch.own() and watch.around()
open(procs, "w").write(f"{os.getpid()}\\n")
assert watch.own() and watch.around()
print(exit_report.memory_limit())
"""
    cases = {
        "v2": ("0::/jobs/7\n", "jobs/7/memory.events", "jobs/7/memory.max"),
        "v2 in a container": ("0::/\n", "memory.events", "memory.max"),
        "v1": (
            "4:memory:/jobs/7\n0::/\n",
            "memory/jobs/7/memory.oom_control",
            "memory/jobs/7/memory.limit_in_bytes",
        ),
        "v1 in a container": (
            "4:memory:/docker/abc\n",
            "memory/memory.oom_control",
            "memory/memory.limit_in_bytes",
        ),
    }
    for name, (lines, counter, limit) in cases.items():
        root = tmp_path / name
        (root / counter).parent.mkdir(parents=True)
        (root / counter).write_text("oom 0\noom_kill 0\n")
        (root / limit).write_text(f"{512 << 20}\n")
        runtime = str(ROOT / "tfcluster_magic/runtime")
        command = [sys.executable, "-c", script, runtime, str(root), lines, str(root / counter)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("512Mi\n", ""), name
