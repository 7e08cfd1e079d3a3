"""Messages for users."""

from __future__ import annotations

import ast
import json
import string
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.project import DATA, ROOT

from tfcluster_magic.i18n import language
from tfcluster_magic.lifecycle import messages
from tfcluster_magic.lifecycle.messages import english, exit_message
from tfcluster_magic.spec import (
    Cause,
    Event,
    Program,
    ProgramKind,
    Reason,
    Spec,
    TaskExit,
    TaskFailure,
)
from tfcluster_magic.spec.message_table import TEXTS


def failure(*lines: str, cause: Cause = Cause.ERROR, **how: object) -> TaskFailure:
    how = {"exit_code": 1} | how
    task_exit = TaskExit(cause=cause, finished_at=0, last_lines=lines, **how)
    return TaskFailure(task="worker-0", attempt=1, exit=task_exit)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("ModuleNotFoundError: No module named 'foo'", "`python -m pip install foo`"),
        ("tensorflow...UnknownError: Could not start gRPC server", "a port that is taken"),
        ("run.sh: line 3: nvcc: command not found", "There is no command nvcc"),
        ("run.sh: line 1: exec: nvcc: not found", "There is no command nvcc"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("ValueError: Attempt to convert a value (PerReplica:{", "TF_USE_LEGACY_KERAS=1"),
        ("ValueError: There is no id for task_type 'ps' in cluster_spec", "without --ps"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "TFCLUSTER_OUTPUT_DIR"),
        ("train.py: error: unrecognized arguments: --epoch 3", "does not know --epoch 3"),
    ],
)
def test_known_errors_come_with_what_to_do(line: str, advice: str) -> None:
    """A common error is explained in the record's message."""
    message = english(messages.failed(Reason.PROGRAM_FAILED, failure(line), (), Spec(), "digits-2"))
    assert advice in message
    assert message.endswith("Output of worker-0: `tfcluster logs digits-2 worker-0`.")


@pytest.mark.parametrize(
    ("lines", "flags", "word"),
    [
        (["usage: a.py [-h]", "a.py: error: unrecognized arguments: --log-dir=/x"], ["log-dir"], 1),
        (
            ["a.py: error: unrecognized arguments: --job_name=ps --log-dir=/x"],
            ["job_name", "log-dir"],
            0,
        ),
        (["a.py: error: argument -j/--job_name: invalid choice: 'chief'"], ["job_name"], 0),
        (["Usage: a.py [OPTIONS]", "Error: No such option: --data_dir"], ["data_dir"], 1),
        (["Error: Invalid value for '--data_dir': '/d' does not exist."], ["data_dir"], 1),
        (["a.py: error: no such option: --data_dir"], ["data_dir"], 1),
        (["FATAL Flags parsing error:", "  Unknown command line flag 'data_dir'"], ["data_dir"], 1),
        (["  flag --task_index=x: invalid literal for int()"], ["task_index"], 0),
        (["getopt.GetoptError: option --job_name not recognized"], ["job_name"], 0),
        (["ERROR: Could not consume arg: --data_dir=/d"], ["data_dir"], 1),
        (["run.sh: unrecognized option '--data_dir=/d'"], ["data_dir"], 1),
    ],
)
def test_a_flag_that_we_passed_is_not_the_users_fault(
    lines: list[str], flags: list[str], word: int
) -> None:
    """A program that fails because of an inferred flag gets the command that omits the flag."""
    taken = ("job_name", "task_index", "data_dir", "log-dir", "output_dir")
    program = Program(
        kind=ProgramKind.FILE, source="a.py", entrypoint="a.py", sha256="0" * 64, flags=taken
    )
    message = english(
        messages.failed(Reason.PROGRAM_FAILED, failure(*lines), (), Spec(program=program), "a-2")
    )
    assert f"TFCluster passed {', '.join('--' + flag for flag in flags)}, which" in message
    assert f"`tfcluster rerun a-2 --pass-flags {('none', 'addresses')[word]}`" in message
    told = msgspec.structs.replace(program, arguments=[f"--{flag}" for flag in flags])
    own = messages.failed(Reason.PROGRAM_FAILED, failure(*lines), (), Spec(program=told), "a-2")
    assert "TFCluster passed" not in english(own)


def test_a_syntax_error_comes_with_its_place() -> None:
    """A program with a syntax error fails with the file and the line."""
    ended = failure(error="SyntaxError: '(' was never closed", file="main.py", line=12)
    message = english(messages.failed(Reason.PROGRAM_FAILED, ended, (), Spec(), "digits-2"))
    assert "SyntaxError: '(' was never closed (main.py, line 12)." in message


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        (
            failure(cause=Cause.KILLED, signal=9, detail="killed by SIGKILL from outside"),
            "worker-0 was killed from outside (SIGKILL)",
        ),
        (
            failure(exit_code=None, signal=11, detail="ended by SIGSEGV"),
            "worker-0 crashed (SIGSEGV)",
        ),
    ],
)
def test_what_was_said_is_not_said_again(ended: TaskFailure, sentence: str) -> None:
    """The message about the end of a task does not repeat the detail of its exit if both say the
    same.
    """
    assert exit_message(ended, Spec()) == sentence


def test_log_noise_is_not_the_reason() -> None:
    """The line that a message quotes is the exception, not a log line of TensorFlow or a caret
    below code.
    """
    ended = failure(
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    boom()",
        "    ^^^^^^",
        "ValueError: bad shape",
        "2026-11-01 10:00:00.1: I tensorflow/core/x.cc:1] chatter",
        "",
    )
    assert exit_message(ended, Spec()) == (
        "worker-0 failed with exit code 1: ValueError: bad shape"
    )


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (failure(cause=Cause.KILLED, signal=9), "killed from outside (SIGKILL)"),
        (failure(cause=Cause.KILLED, detail="killed by SIGTERM from outside"), "(SIGTERM)"),
        (failure(cause=Cause.ERROR, exit_code=None, signal=11), "crashed (SIGSEGV)"),
        (failure(cause=Cause.OOM), "ended, because this machine ran out of memory"),
        (failure(cause=Cause.NOT_STARTED, detail="no bash"), "could not be started: no bash"),
        (failure(cause=Cause.LOST), "was lost"),
    ],
)
def test_every_kind_of_end_has_its_words(ended: TaskFailure, words: str) -> None:
    """The messages distinguish a kill, a crash and a lack of memory."""
    assert words in exit_message(ended, Spec())


def test_long_lists_are_shortened() -> None:
    """A message shows the first five of 600 task names and the number of the others."""
    names = [f"worker-{i}" for i in range(600)]
    assert messages.shorten(names) == (
        "worker-0, worker-1, worker-2, worker-3, worker-4 and 595 more"
    )


@pytest.mark.parametrize(
    ("task", "checkpoint", "words"),
    [
        ("ps-0", "model.ckpt-278", "training resumes from the checkpoint at step 278."),
        ("ps-0", "ckpt-3", "training resumes from its checkpoint ckpt-3."),
        (
            "ps-0",
            None,
            (
                "no checkpoint was found, so training starts from the beginning unless the program "
                "saved its state elsewhere."
            ),
        ),
        ("worker-0", "model.ckpt-278", "training resumes from the checkpoint at step 278."),
        ("worker-1", "model.ckpt-278", "the others go on meanwhile."),
    ],
)
def test_a_restart_says_what_becomes_of_training(
    task: str, checkpoint: str | None, words: str
) -> None:
    """The message of a restart says whether training continues or resumes, and from which
    checkpoint.
    """
    lost = TaskFailure(task=task, attempt=1, exit=TaskExit(cause=Cause.LOST, finished_at=0))
    message = english(messages.healing(lost, False, 1, checkpoint, Spec()))
    assert message == f"{task} was lost. It is restarted (1 of 3 times); {words}"


def test_a_checkpoint_that_nobody_could_look_for_is_not_denied() -> None:
    """If the run's folder is not visible, the message of a restart does not say that there is no
    checkpoint.
    """
    lost = failure(cause=Cause.LOST)
    unseen = english(messages.healing(lost, True, 1, "", Spec()))
    assert "training resumes from its newest checkpoint, if it saves any" in unseen
    denied = english(messages.healing(lost, True, 1, None, Spec()))
    assert "no checkpoint was found" in denied


SAMPLES: list[dict[str, Any]] = json.loads((DATA / "messages.json").read_text("utf-8"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["en"][:40])
def test_codes_become_sentences_in_the_readers_language(sample: dict[str, Any]) -> None:
    """The codes in a record become English or Chinese messages; an unknown code is shown as stored.
    For JupyterLab, labextension/test/messages.test.ts tests the same samples.
    """
    stored = {"at": 0, "reason": "", "message": "", **sample}
    event = msgspec.convert(
        {k: v for k, v in stored.items() if k in Event.__struct_fields__}, Event
    )
    for tag in ("en", "zh_CN"):
        with language(tag):
            assert messages.shown(event) == sample[tag]


@pytest.mark.parametrize(
    ("code", "params"),
    [
        ("IdleTimeout", {"time": 1e400, "since": 0}),
        ("IdleTimeout", {"time": 1, "since": 1e300}),
        ("TasksFinished", {"tasks": [{"code": "Room", "params": {}}] * 3}),
        ("TasksRunning", {"count": "many"}),
        ("Clauses", {"parts": 7}),
    ],
)
def test_values_of_any_kind_are_told(code: str, params: dict[str, Any]) -> None:
    """A message in a hand-written record may have values of a wrong type or size; it is shown
    without an error.
    """
    told = {
        "at": 0,
        "reason": "",
        "message": "stored",
        "messages": [{"code": code, "params": params}],
    }
    assert messages.shown(msgspec.convert(told, Event))


def _messages_in_code() -> Iterator[tuple[str, str, set[str] | None]]:
    """Yield each `Message("Code", {...})` in the package: its place, its code, and the names of its
    values, or `None` if these are not literal.
    """
    for path in sorted((ROOT / "tfcluster_magic").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id != "Message" or not isinstance(node.args[0], ast.Constant):
                continue
            given: set[str] | None = set()
            if len(node.args) > 1:
                values = node.args[1]
                keys = values.keys if isinstance(values, ast.Dict) else None
                given = (keys and {k.value for k in keys if isinstance(k, ast.Constant)}) or None
            yield f"{path.name}:{node.lineno}", str(node.args[0].value), given


def _places(code: str) -> set[str]:
    """Return the names of the placeholders in the text that TEXTS has for a message code."""
    text = TEXTS[code]
    forms = (text,) if isinstance(text, str) else text
    names = {name for form in forms for _t, name, _f, _c in string.Formatter().parse(form) if name}
    return names | ({"count"} if len(forms) > 1 else set())


def test_every_message_has_a_text_and_its_values() -> None:
    """TEXTS has a text for each message code that the package uses, with a placeholder for each of
    its values, and no text that is not used.
    """
    used = set()
    for where, code, given in _messages_in_code():
        assert code in TEXTS, where
        used.add(code)
        if given is not None:
            assert given == _places(code), where
    written = "".join(
        path.read_text("utf-8") for path in sorted((ROOT / "tfcluster_magic").rglob("*.py"))
    )
    unused = {code for code in TEXTS.keys() - used if written.count(f'"{code}"') < 2}
    assert unused == set()
