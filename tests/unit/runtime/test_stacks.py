"""Stacks of a running program: of one that hangs, and of processes that cannot show theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.polling import wait_until
from support.task_process import RUNTIME, Run, alive, new_run

from tfcluster_magic.errors import Conflict
from tfcluster_magic.usage.stacks import PROBLEMS, ask, stack_text

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
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        yield made


def test_a_deadlock_names_the_lines_that_wait(run: Run) -> None:
    """Every thread of a program that hangs shows its line, and the program goes on as before."""
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
    """No process is ended by the request, and each says why it has no stack."""
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


def test_a_task_that_does_not_run_gives_no_answer(tmp_path: Path) -> None:
    """Whoever asks is told so, and leaves no request behind for the next attempt."""
    found = ask("digits-1", str(tmp_path), ["worker-0"], within=0.3)
    assert "worker-0 did not answer" in stack_text(found)
    assert list((tmp_path / ".tfcluster-stacks").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(Conflict, match="cannot be written"):
        ask("digits-1", str(tmp_path / "file"), ["worker-0"])


def test_a_request_that_cannot_be_answered_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process gets its signal every two seconds because a volume takes no answer."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(RUNTIME))
    import stacks  # type: ignore[import-not-found, unused-ignore]

    folder = tmp_path / ".tfcluster-stacks"
    (folder / "worker-0.json").mkdir(parents=True)  # stands where the answer is written
    (folder / "worker-0.ask").write_text("0" * 32)
    stacks.answer(str(tmp_path), "worker-0", [])
    assert [each.name for each in folder.iterdir() if not each.is_dir()] == []
    for name in set(sys.modules) - before:
        del sys.modules[name]
