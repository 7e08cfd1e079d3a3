"""Stacks of a hanging program, and processes that cannot show their stacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, alive, new_run

from tfcluster_magic.errors import Conflict
from tfcluster_magic.usage.stacks import PROBLEMS, ask, kept, stack_text

QUICK = {"TFCLUSTER_IDLE_SAMPLE": "0.2"}
DEADLOCK = """
import os, threading
first, second = threading.Lock(), threading.Lock()
def other():
    with second:
        met.wait()
        first.acquire()  # other waits here
met = threading.Barrier(2)
threading.Thread(target=other, name="other").start()
with first:
    met.wait()
    open("locked", "w").close()
    second.acquire()  # main waits here
"""
FAMILY = """
import signal, subprocess, sys, time
number = signal.SIGRTMAX - 7
head = "import signal, time; "
tail = "; print('up', flush=True); time.sleep(600)"
busy = "import threading; threading.Thread(target=lambda: all(True for _ in iter(int, 1))).start()"
others = [
    subprocess.Popen(["sleep", "600"]),
    *(
        subprocess.Popen([sys.executable, *how, "-c", head + change + tail])
        for how, change in (
            (["-I"], "pass"),
            ([], f"signal.signal({number}, signal.SIG_DFL)"),
            ([], f"signal.pthread_sigmask(signal.SIG_BLOCK, [{number}])"),
            ([], busy),
        )
    ),
]
open("pids", "w").write(" ".join(str(each.pid) for each in others) + " .")
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; afterwards end its processes."""
    with new_run(tmp_path) as made:
        yield made


def test_a_deadlock_names_the_lines_that_wait(run: Run) -> None:
    """Every thread of a hanging program shows its line, and the program continues unchanged."""
    run.program(DEADLOCK)
    task = run.task().start(QUICK)
    wait_until((run.output / "locked").exists, "the deadlock")
    source = DEADLOCK.splitlines()
    for _time in range(2):
        (found,) = ask("digits-1", str(run.output), ["worker-0"], within=120).tasks
        (process,) = found.processes
        for mark in ("main waits here", "other waits here"):
            line = next(number for number, text in enumerate(source, 1) if mark in text)
            assert f", line {line} in " in process.stack
        assert process.stack.count("most recent call first") == 2
    assert task.process.poll() is None
    assert [each.name for each in (run.output / ".tfcluster-stacks").iterdir()] == []


def test_processes_that_cannot_show_their_stack_are_left_alone(run: Run) -> None:
    """A request for stacks ends no process, and for each process without a stack, the answer has
    the reason.
    """
    task = run.program(FAMILY).task().start(QUICK)
    wait_until(lambda: task.output.count("up") == 4, "the processes")
    path = run.output / "pids"
    wait_until(lambda: path.exists() and path.read_text().endswith("."), "their numbers")
    pids = [int(number) for number in path.read_text().split()[:-1]]
    stacks = ask("digits-1", str(run.output), ["worker-0"], within=120)
    (found,) = stacks.tasks
    problems = {each.pid: each.problem for each in found.processes}
    told = ["NotPython", "NoHook", "HandlerReplaced", "NoAnswer", "Busy"]
    assert [problems[pid] for pid in pids] == told
    assert all(map(alive, pids))
    assert told == list(PROBLEMS)
    text = stack_text(stacks)
    assert all(words in text for words in PROBLEMS.values())
    assert "most recent call first" in text


def test_a_costly_sample_delays_no_answer(run: Run) -> None:
    """A long pause between samples does not delay the next check for requests."""
    slow = run.output.parent / "slow.py"
    slow.write_text(
        f"import runpy, sys; sys.path.insert(0, {str(RUNTIME)!r})\n"
        "import usage; usage.MOST_SHARE = 1e-9; usage.LONGEST = 1e6\n"
        f"runpy.run_path({str(RUNTIME / 'task.py')!r}, run_name='__main__')\n"
    )
    task = run.program("import time; open('up', 'w').close(); time.sleep(600)").task()
    task.started = [str(slow)]
    task.start(QUICK)
    samples = run.output / ".tfcluster-usage" / "worker-0.jsonl"
    wait_until(samples.exists, "the first sample")
    wait_until((run.output / "up").exists, "the program")
    (found,) = ask("digits-1", str(run.output), ["worker-0"], within=60).tasks
    assert [each.problem for each in found.processes] == [""]
    # only the header and the first sample are written: the next sample comes much later
    assert len(samples.read_bytes().splitlines()) == 2


def test_a_task_that_does_not_run_gives_no_answer(tmp_path: Path) -> None:
    """If no answer comes, the caller gets the reason, and the request is removed."""
    found = ask("digits-1", str(tmp_path), ["worker-0"], within=0.3)
    assert "worker-0 did not answer" in stack_text(found)
    assert list((tmp_path / ".tfcluster-stacks").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(Conflict, match="cannot be written"):
        ask("digits-1", str(tmp_path / "file"), ["worker-0"])


@pytest.fixture
def task_side(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield the runtime's module `stacks`, imported as in a task."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(RUNTIME))
    import stacks as module  # type: ignore[import-not-found, unused-ignore]

    yield module
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_request_that_cannot_be_answered_is_not_repeated(
    task_side: ModuleType, tmp_path: Path
) -> None:
    """If the volume accepts no answer, the request is dropped, so that processes are not signalled
    again every two seconds.
    """
    folder, number = tmp_path / ".tfcluster-stacks", "0" * 32
    # A folder at the path of the answer makes writing fail.
    (folder / f"worker-0.{number}.json").mkdir(parents=True)
    (folder / f"worker-0.{number}.ask").touch()
    task_side.answer(str(tmp_path), "worker-0", list)
    assert [each.name for each in folder.iterdir()] == [f"worker-0.{number}.json"]


def test_each_of_several_requests_is_answered(task_side: ModuleType, tmp_path: Path) -> None:
    """Two concurrent requests for one task both get an answer."""
    folder = tmp_path / ".tfcluster-stacks"
    with ThreadPoolExecutor() as pool:
        asked = [
            pool.submit(ask, "digits-1", str(tmp_path), ["worker-0"], within=60) for _ in range(2)
        ]
        wait_until(lambda: len(list(folder.glob("worker-0.*.ask"))) == 2, "the requests")
        task_side.answer(str(tmp_path), "worker-0", list)
        assert all(each.result().tasks[0].at is not None for each in asked)
    assert list(folder.iterdir()) == []


def test_a_look_answers_few_requests_and_removes_old_answers(
    task_side: ModuleType, tmp_path: Path
) -> None:
    """At each check, a task answers only a few requests and removes old answers. So a folder full
    of requests neither keeps the task busy nor fills up with answers.
    """
    folder = tmp_path / ".tfcluster-stacks"
    folder.mkdir()
    old = folder / f"worker-0.{'f' * 32}.json"
    old.touch()
    os.utime(old, (0, 0))
    task_side.answer(str(tmp_path), "worker-0", list)
    assert not old.exists()
    for number in range(6):
        (folder / f"worker-0.{number:032x}.ask").touch()
    (folder / f"worker-01.{0:032x}.ask").touch()  # a request for another task
    task_side.answer(str(tmp_path), "worker-0", list)
    names = [each.name for each in folder.iterdir()]
    assert sum(name.endswith(".json") for name in names) == 4
    assert sum(name.endswith(".ask") for name in names) == 3


def test_a_link_in_place_of_the_folder_is_not_followed(
    task_side: ModuleType, tmp_path: Path
) -> None:
    """A program cannot redirect requests or answers to another folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".tfcluster-stacks").symlink_to(elsewhere)
    with pytest.raises(Conflict, match="cannot be written"):
        ask("digits-1", str(tmp_path), ["worker-0"], within=0.3)
    (elsewhere / f"worker-0.{'0' * 32}.ask").touch()
    task_side.answer(str(tmp_path), "worker-0", list)
    assert [each.suffix for each in elsewhere.iterdir()] == [".ask"]


def test_stacks_of_a_stall_are_taken_once_and_kept(run: Run) -> None:
    """If a program does nothing for long, its stacks are taken without a request, once for each
    stall. They outlive the task and say since when the program stood still.
    """
    task = run.program(DEADLOCK).task().start(QUICK)
    wait_until(lambda: bool(kept("digits-1", str(run.output), ["worker-0"]).tasks), "the stacks")
    path = run.output / ".tfcluster-stacks" / "worker-0.stalled.json"
    before = path.stat().st_mtime_ns
    answer = ask("digits-1", str(run.output), ["worker-0"], within=120)
    assert answer.tasks[0].processes, "requests are still answered"
    assert path.stat().st_mtime_ns == before, "it is still the same stall"
    task.process.terminate()
    task.wait()
    stacks = kept("digits-1", str(run.output), ["ps-0", "worker-0"])
    (found,) = stacks.tasks
    assert found.since is not None and found.at is not None
    assert found.at - found.since >= 0.9
    assert "most recent call first" in found.processes[0].stack
    assert "worker-0 has done nothing since 2" in stack_text(stacks)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"at": 1e400, "since": 0, "processes": []}'])
def test_what_a_program_puts_in_place_of_kept_stacks_is_left_out(
    tmp_path: Path, content: bytes
) -> None:
    """A file in the place of stored stacks is ignored if it does not hold stacks."""
    folder = tmp_path / ".tfcluster-stacks"
    folder.mkdir()
    (folder / "worker-0.stalled.json").write_bytes(content)
    (folder / "worker-1.stalled.json").symlink_to("/dev/zero")
    assert kept("digits-1", str(tmp_path), ["worker-0", "worker-1"]).tasks == ()
