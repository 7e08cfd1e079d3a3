"""A task whose output volume is full, hangs, or loses its copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.printing_task import EVERYTHING, MANY, run
from support.project import ROOT
from support.task_process import PATIENCE, Run

from tfcluster_magic.backends.log_files import (
    TIMES_FOLDER,
    TIMES_RECORD,
    RecordedTimes,
    TaskLog,
)

__all__ = ["run"]  # a fixture of another module


def test_full_volume(run: Run) -> None:
    """If the log volume is full, only the copy of the log stops, and the program continues; the
    task's log reports this once.
    """
    (run.output / "worker-0.log").symlink_to("/dev/full")
    run.program(MANY)
    task = run.task().start()
    assert task.wait()["cause"] == "Completed"
    lines = task.output.splitlines()
    said = f"tfcluster: the copy of this log in {run.output}/worker-0.log was stopped: "
    why = "No space left on device; training goes on"
    assert [line for line in lines if "stopped" in line] == [said + why]
    assert lines[-1] == f"tfcluster: lines missing in {run.output}/worker-0.log: 200001"
    assert len(lines) == 200_001 + 2


def test_volume_fills_up(run: Run, tmp_path: Path) -> None:
    """When the log volume fills up, the copy keeps the output that fitted, and the missing rest is
    counted.
    """
    seen = tmp_path / "copied"
    run.program(
        MANY
        + f"import os, shutil; shutil.copy({str(run.output)!r} + '/worker-0.log', {str(seen)!r})"
    )
    task = run.task().start(prefix=in_a_volume(run, 1))
    assert task.wait()["cause"] == "Completed"
    text = task.output
    assert "No space left on device" in text
    copied = seen.read_text()
    assert 0 < len(copied) <= 1 << 20
    assert text.startswith(copied)
    missing = int(text.splitlines()[-1].split()[-1])
    assert missing + copied.count("\n") == 200_001


def in_a_volume(run: Run, megabytes: int) -> list[str]:
    """Return a prefix that runs a command with the run's log folder on a file system of this
    size.
    """
    mount = f"mount -t tmpfs -o size={megabytes}m none {run.output}"
    shell = ["sh", "-c", f'{mount} && exec "$@"', ""]
    return ["unshare", "--user", "--map-root-user", "--mount", *shell]


ROOM_AGAIN = """
import os, pathlib, shutil, sys, time
volume, folder = pathlib.Path(os.environ["TFCLUSTER_OUTPUT_DIR"]), pathlib.Path(sys.argv[1])
def until(true):
    while not true():
        time.sleep(0.01)
def copied():
    return (volume / "worker-0.log").read_text()
(volume / "ballast").write_bytes(b"x" * (2 << 20))
for n in range(40_000):
    print(f"{n:08d} " + "x" * 40)
print("no end of a line", end="", flush=True)
until((folder / "go").exists)
(volume / "ballast").unlink()
until(lambda: "are missing here" in copied())
print(", that came later")
print("a whole line", flush=True)
until(lambda: "a whole line" in copied())
shutil.copy(volume / "worker-0.log", folder / "copied")
"""


def test_volume_has_room_again(run: Run) -> None:
    """When a full log volume has room again, the copy names its gap and continues with whole lines.
    The gap is reported once, also to the process that started the task.
    """
    run.program(ROOM_AGAIN, arguments=[str(run.folder)])
    task = run.task().start(prefix=in_a_volume(run, 3))
    assert task.event("copy")["problem"] == "No space left on device"
    (run.folder / "go").touch()
    message = task.wait()
    assert (message["cause"], message["uncopied"]) == ("Completed", "No space left on device")
    told = [report["problem"] for report in task.reports if report["event"] == "copy"]
    assert told == ["No space left on device", ""]
    copied = (run.folder / "copied").read_text().splitlines()
    (gap,) = [n for n, line in enumerate(copied) if line.startswith("tfcluster: ")]
    assert copied[gap + 1 :] == ["a whole line"]
    printed = task.output.splitlines()
    assert printed[: gap - 1] == copied[: gap - 1]
    said = [line for line in printed if line.startswith("tfcluster: the copy of this log")]
    assert len(said) == 2
    assert "goes on: " in said[1]
    missing = int(printed[-1].split()[-1])
    whole = [line for line in copied if len(line) == 49]
    assert missing == 40_001 - len(whole)


def test_a_copy_that_is_removed_begins_anew(run: Run) -> None:
    """If the copy of a log is removed, a new copy has the output from then on."""
    run.program(
        "import os, time\n"
        "copy = os.environ['TFCLUSTER_OUTPUT_DIR'] + '/worker-0.log'\n"
        "def until_copied(text):\n"
        "    while not (os.path.exists(copy) and text in open(copy).read()):\n"
        "        print(text, flush=True)\n"
        "        time.sleep(0.05)\n"
        "until_copied('before')\n"
        "os.unlink(copy)\n"
        "until_copied('after')\n"
    )
    task = run.task().start()
    assert task.wait()["cause"] == "Completed"
    assert "was stopped: its file was removed; training goes on" in task.output
    assert "after" in (run.output / "worker-0.log").read_text()


def test_hanging_volume(run: Run) -> None:
    """If the log volume hangs, the copy is given up, so that the task loses neither time nor
    lines.
    """
    os.mkfifo(run.output / "worker-0.log")
    run.program(MANY)
    task = run.task().start()
    assert task.wait()["cause"] == "Completed"
    lines = task.output.splitlines()
    assert sum("the volume does not answer" in line for line in lines) == 1
    assert lines[-1].endswith("worker-0.log: 200001")
    own = [line for line in lines if line.startswith("tfcluster")]
    assert [line for line in lines if line not in own] == EVERYTHING


def test_short_task_on_a_hanging_volume(run: Run) -> None:
    """A task that ends while its volume hangs first writes its report, and then says how many lines
    the log on the volume lacks.
    """
    os.mkfifo(run.output / "worker-0.log")
    run.program("print('only')")
    task = run.task().start()
    task.event("exit")
    assert task.process.poll() is None
    task.wait()
    assert task.output.endswith("worker-0.log: 1\n")


def noted(log: Path, script: str) -> None:
    """Run `script` in a process, to write the times of the lines of `log` as a task does. The
    script can use the runtime's module `output` and `times`, the `LineTimes` of this log.
    """
    head = "import sys; sys.path.insert(0, sys.argv[1])\nimport output\n"
    words = [sys.executable, "-c", f"{head}times = output.LineTimes(sys.argv[2])\n{script}"]
    runtime = ROOT / "tfcluster_magic" / "runtime"
    subprocess.run([*words, runtime, log], check=True, timeout=PATIENCE)


def test_times_of_pieces_that_were_queued_when_the_disk_filled_up(tmp_path: Path) -> None:
    """The times in a copy stay right if the disk fills up while several pieces of output are
    queued.
    """
    log = tmp_path / "worker-0.log"
    noted(
        log,
        "import resource, time\n"
        "def until(true):\n"
        "    while not true(): time.sleep(0.01)\n"
        "output.RETRY_SECONDS = (0.01, 0.01)\n"
        "copy = output.LogCopy(sys.argv[2], lambda: None)\n"
        "for n in range(5):\n"
        "    begun = output.now_ms()\n"
        "    until(lambda: output.now_ms() >= begun + output.TIMES_STEP)\n"
        "    copy.put(b'x' * 99 + b'\\n')\n"
        "most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (250, most))\n"
        "copy.start()\n"
        "until(lambda: copy.problem)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "until(lambda: not copy.problem)\n"
        "copy.put(b'later\\n')\n"
        "copy.close(60)\n",
    )
    lines = list(TaskLog("worker-0", [log]).read())
    assert [len(line.text) for line in lines[:3]] == [99, 99, 50]
    assert lines[-1].text == "later"
    times = [line.at for line in lines if line.at is not None]
    assert len(times) == len(lines) == 5
    assert times == sorted(times)
    assert len(set(times[:4])) == 4


def test_times_when_the_clock_steps_back(tmp_path: Path) -> None:
    """Output that is printed after the clock stepped back has the new time, not the last time
    before.
    """
    log = tmp_path / "worker-0.log"
    noted(log, "times.note(0, 50_000); times.note(10, 20_000); times.note(20, 21_000)")
    times = RecordedTimes(log)
    assert [times.at(offset) for offset in (5, 15, 25)] == [50.0, 20.0, 21.0]


def test_times_of_a_log_that_was_cut(tmp_path: Path) -> None:
    """A log that was cut keeps the times of its remaining lines."""
    log = tmp_path / "worker-0.log"
    noted(log, "for n in range(9): times.note(10 * n, 1000 * n + 1000)\ntimes.note(35, 20_000)")
    times = RecordedTimes(log)
    assert [times.at(offset) for offset in (5, 15, 25, 32, 36, 85)] == [1, 2, 3, 4, 20, 20]


def test_times_that_were_emptied_while_they_are_read(tmp_path: Path) -> None:
    """A follower gets all lines, and the later times, even if the file of times is emptied
    meanwhile.
    """
    log = tmp_path / "worker-0.log"
    log.write_text("one\n")
    noted(log, "times.note(0, 1000)")
    task = TaskLog("worker-0", [log])
    assert [line.at for line in task.read()] == [1]
    (file,) = (log.parent / TIMES_FOLDER).iterdir()
    file.write_bytes(b"")
    for text in ("two", "three"):
        with log.open("a") as printed:
            printed.write(f"{text}\n")
        assert [line.text for line in task.read()] == [text]
    noted(log, "times.note(14, 4000)")
    with log.open("a") as printed:
        printed.write("four\n")
    assert [(line.text, line.at) for line in task.read()] == [("four", 4)]


def test_times_while_their_disk_is_full(tmp_path: Path) -> None:
    """Lines whose times could not be written have no times, and later lines have times again."""
    log = tmp_path / "worker-0.log"
    noted(
        log,
        "import resource, time\n"
        "output.RETRY_SECONDS = (0.01, 0.01)\n"
        "times = output.LineTimes(sys.argv[2])\n"
        "times.note(0, 1000); times.note(10, 2000)\n"
        "most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40, most))  # half of the next one fits\n"
        "times.note(20, 3000); times.note(30, 4000)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))\n"
        "time.sleep(0.02)\n"
        "times.note(40, 5000)\n",
    )
    times = RecordedTimes(log)
    assert [times.at(offset) for offset in (5, 15, 25, 35, 45)] == [1, 2, None, None, 5]


def test_times_of_a_log_that_grows_for_ever(tmp_path: Path) -> None:
    """The recorded times take a bounded amount of space. The newest times stay exact; older times
    become less exact, but stay in order and are never too late.
    """
    log = tmp_path / "worker-0.log"
    count, most = 10_000, 256
    noted(
        log,
        f"output.MOST_RECORDS = {most}\n"
        f"for n in range({count}): times.note(10 * n, 1000 * n + 1000)\n",
    )
    (file,) = (log.parent / TIMES_FOLDER).iterdir()
    assert file.stat().st_size <= most * TIMES_RECORD.size
    times = RecordedTimes(log)
    told = [times.at(10 * n + 5) or 0.0 for n in range(count)]
    off = [n + 1 - at for n, at in enumerate(told)]
    assert told == sorted(told)
    assert not any(off[-most // 4 :])
    assert min(off) >= 0
    assert max(off) <= 4 * count / most


def test_gaps_in_the_times_of_a_log_that_grows_for_ever(tmp_path: Path) -> None:
    """If the times of some lines in the middle of a log are missing, a reader gets no time for
    these lines, unless the file of times was thinned so much that it no longer contains this gap.
    Times that jump back and forth take no more room than other times.
    """
    log = tmp_path / "worker-0.log"
    noted(
        log,
        "output.MOST_RECORDS = 64\n"
        "for n in range(1000): times.note(10 * n, 0 if 100 <= n < 110 else 1000 * n + 1000)\n",
    )
    times = RecordedTimes(log)
    assert [times.at(10 * n + 5) is None for n in (50, 104, 130)] == [False, True, False]
    noted(
        log,
        "output.MOST_RECORDS = 64\n"
        "for n in range(1000, 2000): times.note(10 * n, n % 2 * 10 ** 12)\n",
    )
    (file,) = (log.parent / TIMES_FOLDER).iterdir()
    assert file.stat().st_size <= 64 * TIMES_RECORD.size


def test_times_that_somebody_cut_before_they_are_thinned(tmp_path: Path) -> None:
    """If the file of times was truncated in the middle of a record, the copy of the log continues,
    and later lines get their times.
    """
    log = tmp_path / "worker-0.log"
    noted(
        log,
        "import os\n"
        "output.MOST_RECORDS = 64\n"
        "for n in range(64): times.note(10 * n, 1000 * n + 1000)\n"
        "os.truncate(times._path, 100)\n"
        "times.note(640, 65_000)\n",
    )
    times = RecordedTimes(log)
    assert [times.at(offset) for offset in (5, 55, 645)] == [1, 6, 65]


def test_times_that_are_read_while_they_are_thinned(tmp_path: Path) -> None:
    """A reader gets the right times even if the task thins the times meanwhile."""
    log = tmp_path / "worker-0.log"
    noted(log, "for n in range(6000): times.note(10 * n, 1000 * n + 1000)\n")
    times = RecordedTimes(log)
    assert times.at(10 * 4000 + 5) == 4001
    noted(log, "output.MOST_RECORDS = 6000\ntimes.note(60_000, 6_001_000)\n")
    told = [times.at(10 * n + 5) for n in range(4001, 6001)]
    assert told[-1] == 6001
    assert all(at is not None and n - 1 <= at <= n + 1 for n, at in enumerate(told, 4001))


def test_times_do_not_bring_a_removed_folder_back(tmp_path: Path) -> None:
    """An output folder that is removed while its task prints stays removed."""
    noted(tmp_path / "1" / "worker-0.log", "times.note(0, 1000)")
    assert not (tmp_path / "1").exists()
