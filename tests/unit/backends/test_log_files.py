"""Lines of log files that grow while they are read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tfcluster_magic.backends import log_files as logs


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    """The log of a task that prints faster than its lines are shown."""
    path = tmp_path / "worker-0.log"
    path.write_text("step\n" * 3)
    return path


def print_more(path: Path) -> None:
    """What the task does while a line is shown."""
    with path.open("a") as file:
        file.write("step\n" * 1000)


def test_a_task_that_never_stops_printing(chatty: Path) -> None:
    """Without following, the lines that are there are shown, and the command ends."""
    shown = 0
    for _ in logs.read_logs({"worker-0": [chatty]}, None, follow=False, ended=lambda: False):
        shown += 1
        assert shown < 100
        print_more(chatty)
    assert shown == 3


def test_a_chatty_task_leaves_others_their_turn(chatty: Path, tmp_path: Path) -> None:
    """While all tasks are followed, one that prints without end does not hide the others."""
    quiet = tmp_path / "worker-1.log"
    quiet.write_text("loss is NaN\n")
    places = {"worker-0": [chatty], "worker-1": [quiet]}
    lines = logs.read_logs(places, None, follow=True, ended=lambda: False)
    for line in islice(lines, 100):
        if line is not None and line.task == "worker-1":
            return
        print_more(chatty)
    raise AssertionError("worker-1 was never shown")


def test_many_lines_come_once_and_in_order(tmp_path: Path) -> None:
    """A log of several rounds is followed from its first to its last line, each of them once."""
    path = tmp_path / "worker-0.log"
    count = 3 * logs._ROUND // 10
    path.write_text("".join(f"{number:09}\n" for number in range(count)))
    ended = iter([False, False, True])
    lines = logs.read_logs({"worker-0": [path]}, None, follow=True, ended=lambda: next(ended))
    texts = [line.text for line in lines if line is not None]
    assert texts == [f"{number:09}" for number in range(count)]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
@pytest.mark.parametrize("text", ["a\n-\nb\n\n-\nc\n-\n", "a\n-\nb\n\nc", "-\n-\n", ""])
def test_the_last_lines_are_those_that_count(
    text: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is read from the last so many lines that count on, wherever its blocks are cut."""
    monkeypatch.setattr(logs, "_CHUNK", chunk)
    path = tmp_path / "worker-0.log"
    path.write_text(text)
    every = text.removesuffix("\n").split("\n") if text else []
    counted = [line for line in every if line != "-"]
    for tail in range(1, 6):
        read = logs.read_logs({"w": [path]}, tail, False, lambda: True, lambda line: line != "-")
        lines = [line.text for line in read if line is not None]
        assert lines == every[len(every) - len(lines) :]
        assert [line for line in lines if line != "-"] == counted[-tail:]
        assert tail > len(counted) or lines[0] != "-"
