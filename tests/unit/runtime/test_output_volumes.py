"""What a task does while the volume of its output is full, hangs, or loses its copy."""

from __future__ import annotations

import os
from pathlib import Path

from support.printing_task import EVERYTHING, MANY, run
from support.task_process import Run

__all__ = ["run"]  # a fixture, as if written here


def test_full_volume(run: Run) -> None:
    """A full log volume stops the copy, which the log says once, and nothing else."""
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
    """When the log volume fills up, the copy holds what fitted and the rest is counted."""
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
    """A command that runs another one with its log folder on a file system of this size."""
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
    """When a full log volume has room again the copy says what it misses and goes on, with whole
    lines; that is said once, also to whoever started the task.
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
    """Who removes the copy of a log has a new one of what is printed from then on."""
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
    """A log volume that does not answer costs neither time nor lines: the copy is given up."""
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
    """A task that ends while its volume hangs reports first, then says what the copy misses."""
    os.mkfifo(run.output / "worker-0.log")
    run.program("print('only')")
    task = run.task().start()
    task.event("exit")
    assert task.process.poll() is None
    task.wait()
    assert task.output.endswith("worker-0.log: 1\n")
