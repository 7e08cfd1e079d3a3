"""Messages about real failures, computed from the complete outputs of programs in
tests/data/failures.
"""

from __future__ import annotations

import importlib
import json
from types import ModuleType
from typing import Any

import msgspec
import pytest
from support.lifecycle_simulation import Story, spec_of
from support.project import DATA
from support.task_process import RUNTIME

from tfcluster_magic.lifecycle import messages
from tfcluster_magic.spec import Cause, Phase, Reason, Spec, TaskExit, TaskFailure

FOLDER = DATA / "failures"
FAILURES: dict[str, dict[str, Any]] = json.loads((FOLDER / "failures.json").read_text("utf-8"))
CRASHES = {128 + number: number for number in (4, 6, 11)}
PROJECT = "/home/ada/project"


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runtime's modules import each other, as in a task."""
    monkeypatch.syspath_prepend(str(RUNTIME))


def printed_errors() -> ModuleType:
    """Return the module of the runtime that reads a program's output."""
    return importlib.import_module("printed_errors")


def end_of(name: str, at: float = 1.0) -> TaskExit:
    """Return the end of a task that printed the recorded output `name`, as the runtime reports
    it.
    """
    how = FAILURES[name]
    cause = how.get("cause", "Error" if how["exit"] else "Completed")
    crash = CRASHES.get(how["exit"]) if cause == "Error" else None
    last = printed_errors().LastLines()
    output = FOLDER / f"{name}.txt"
    last.put(output.read_bytes() if output.exists() else b"epoch 1\n")
    told = last.report(cause, crash is not None, name.startswith("sh_"), PROJECT)
    told |= {"cause": cause, "finishedAt": at, "detail": how.get("detail", "")}
    told |= {"exitCode": None if crash else how["exit"], "signal": crash}
    return msgspec.convert(told, TaskExit)


def test_every_output_has_its_sentence() -> None:
    """Each recorded output is in the table of expected messages; at least forty failures are
    recorded.
    """
    outputs = {path.stem for path in FOLDER.glob("*.txt")}
    assert outputs - set(FAILURES) == set()
    assert sum(how["exit"] != 0 for how in FAILURES.values()) >= 40


@pytest.mark.parametrize("name", [n for n, how in FAILURES.items() if how["exit"]])
def test_a_failure_is_told_by_its_cause_and_what_to_do(name: str) -> None:
    """The message quotes the exception and names the line of the user's own program; for known
    exceptions, it also has advice. The loss of a peer is distinguished from a failure of the
    program itself.
    """
    how, ended = FAILURES[name], end_of(name)
    failure = TaskFailure(task="worker-0", attempt=1, exit=ended)
    advice = messages.error_hint(ended)
    assert messages.exit_message(failure, Spec()) == f"worker-0 {how['said']}"
    assert (advice.code if advice else None) == how.get("advice")
    assert ended.follows is how.get("follows", False)


@pytest.mark.parametrize("name", [n for n, how in FAILURES.items() if not how["exit"]])
def test_an_error_that_a_success_hides_is_a_warning(name: str) -> None:
    """If a task succeeds although a thread or process died, or a pipe hid an error, a warning says
    so. An end without an error causes no warning.
    """
    story = Story(spec_of(worker=1))
    story.tasks["worker-0"] = msgspec.structs.replace(story.tasks["worker-0"], exit=end_of(name))
    story.turn()
    assert story.status.phase is Phase.SUCCEEDED
    said = FAILURES[name]["said"]
    assert [text.partition(". ")[0] for text in story.status.warnings] == (
        [f"worker-0 {said}"] if said else []
    )


@pytest.mark.parametrize(
    ("ends", "reason", "culprit", "words"),
    [
        (
            {"worker-1": "mwms_steps_1", "worker-0": "mwms_steps_0"},
            Reason.PEER_FINISHED,
            "worker-1",
            (
                "worker-1 finished first, and worker-0 could not go on without it: "
                "UnavailableError: Collective ops is aborted by: Error reported from "
                "/job:worker/task:1"
            ),
        ),
        (
            {"worker-1": "mwms_loop_1", "worker-0": "mwms_loop_0"},
            Reason.PROGRAM_FAILED,
            "worker-0",
            "worker-0 crashed (SIGSEGV). worker-1 ended after it",
        ),
        (
            {"worker-0": "mwms_fit2_0", "worker-1": "mwms_fit2_1"},
            Reason.PROGRAM_FAILED,
            "worker-0",
            "(fit2.py, line 9). worker-1 failed in the same way",
        ),
        (
            {"worker-0": "mwms_fit3_0", "worker-1": "mwms_fit3_1"},
            Reason.PROGRAM_FAILED,
            "worker-0",
            "Keras 3 cannot fit() under this strategy",
        ),
        (
            {"worker-1": "coordination", "worker-0": "tf_disk_full"},
            Reason.PROGRAM_FAILED,
            "worker-0",
            "The disk is full",
        ),
        (
            {"worker-0": "grpc_unavailable", "worker-1": "cgroup_kill"},
            Reason.OOM_KILLED,
            "worker-1",
            "worker-1 ran out of memory",
        ),
    ],
)
def test_of_several_tasks_the_one_is_named_that_the_others_followed(
    ends: dict[str, str], reason: Reason, culprit: str, words: str
) -> None:
    """Tasks are judged in the order of their ends. A task that lost a peer is not blamed; a worker
    that finished while others still trained is blamed.
    """
    story = Story(spec_of(worker=2))
    for seconds, (task, name) in enumerate(ends.items()):
        ended = msgspec.structs.replace(end_of(name), finished_at=story.now)
        story.tasks[task] = msgspec.structs.replace(story.tasks[task], exit=ended)
        story.turn()
        story.passes(seconds + 1)
    story.passes(15)
    assert story.outcome == (Phase.FAILED, reason, culprit)
    assert words in story.status.message


def test_a_failure_of_its_own_shows_at_once() -> None:
    """An exception is shown as soon as its task has ended, although the cause of the run's failure
    is decided later.
    """
    story = Story(spec_of(worker=2))
    ended = end_of("tf_function")
    story.tasks["worker-0"] = msgspec.structs.replace(story.tasks["worker-0"], exit=ended)
    story.turn()
    assert (story.status.phase, story.status.reason) == (Phase.RUNNING, Reason.INVESTIGATING)
    assert "indices[0] = 99999 is not in [0, 10) (tf_function.py, line 6)" in story.status.message
    assert ended.cause is Cause.ERROR


def test_an_error_long_before_the_end_is_kept() -> None:
    """The report of a task's end says that a thread died, however much the program printed
    afterwards. If the program continued after an error, this error does not count as the cause of
    the program's end.
    """
    last = printed_errors().LastLines()
    last.put((FOLDER / "thread.txt").read_bytes())
    for step in range(20_000):
        last.put(f"step {step} loss 0.3 accuracy 0.9\n".encode())
    told = last.report("Completed", False, False, PROJECT)
    assert (told["hidden"], told["error"]) == ("thread", "OSError: queue is closed")
    went_on = printed_errors().LastLines()
    went_on.put((FOLDER / "logged.txt").read_bytes() + b"retry\nstep 4\nstep 5\nstep 6\nstep 7\n")
    assert "hidden" not in went_on.report("Completed", False, True, PROJECT)
