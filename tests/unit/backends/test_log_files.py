"""Lines of log files that grow during reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from support.blocking_file import Blocking
from support.polling import wait_until

from tfcluster_magic import state_files
from tfcluster_magic.backends import log_files as logs
from tfcluster_magic.errors import are_program_lines


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    """Write the log of a task that prints faster than its lines are shown."""
    path = tmp_path / "worker-0.log"
    path.write_text("step\n" * 3)
    return path


def print_more(path: Path) -> None:
    """Add a thousand lines to the log, as the task does while one line is shown."""
    with path.open("a") as file:
        file.write("step\n" * 1000)


def test_a_task_that_never_stops_printing(chatty: Path) -> None:
    """Without following, the existing lines are shown, and the command ends."""
    shown = 0
    for _ in logs.read_logs({"worker-0": [chatty]}, None, follow=False, ended=lambda: False):
        shown += 1
        assert shown < 100
        print_more(chatty)
    assert shown == 3


def test_a_chatty_task_leaves_others_their_turn(chatty: Path, tmp_path: Path) -> None:
    """While all tasks are followed, a task that prints continuously does not hide the other
    tasks.
    """
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
    """A log of several blocks is followed from its first to its last line, and each line comes
    once.
    """
    path = tmp_path / "worker-0.log"
    count = 12 * logs._CHUNK // 10
    path.write_text("".join(f"{number:09}\n" for number in range(count)))
    ended = iter([False, False, True])
    lines = logs.read_logs({"worker-0": [path]}, None, follow=True, ended=lambda: next(ended))
    texts = [line.text for line in lines if line is not None]
    assert texts == [f"{number:09}" for number in range(count)]


def no_dashes(texts: Sequence[str]) -> list[bool]:
    """Return which lines are not `-`."""
    return [text != "-" for text in texts]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
@pytest.mark.parametrize("text", ["a\n-\nb\n\n-\nc\n-\n", "a\n-\nb\n\nc", "-\n-\n", ""])
def test_the_last_lines_are_those_that_count(
    text: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requested number of last lines counts only lines that the filter keeps, wherever the log
    is divided into blocks.
    """
    monkeypatch.setattr(logs, "_CHUNK", chunk)
    path = tmp_path / "worker-0.log"
    path.write_text(text)
    every = text.removesuffix("\n").split("\n") if text else []
    counted = [line for line in every if line != "-"]
    for tail in range(1, 6):
        read = logs.read_logs({"w": [path]}, tail, False, lambda: True, no_dashes)
        lines = [line.text for line in read if line is not None]
        assert lines == every[len(every) - len(lines) :]
        assert [line for line in lines if line != "-"] == counted[-tail:]
        assert tail > len(counted) or lines[0] != "-"


DUMP = [
    "I0000 00:00:1795825530.912483   16221 eager_service_impl.cc:355] Options: goo.gle/debugstr  ",
    "device_count {",
    '  key: "CPU"',
    "}",
    "",
]


@pytest.mark.parametrize("count", [0, 1, logs.LOOK_BEHIND // 5, logs.LOOK_BEHIND])
def test_a_protobuf_of_tensorflow_does_not_count(tmp_path: Path, count: int) -> None:
    """The lines after a log line of TensorFlow that announces a protobuf are not among the last
    lines, although they count if a program prints them. Thousands of lines are judged in parts.
    """
    path = tmp_path / "ps-0.log"
    path.write_text("\n".join(["one", *DUMP[1:], "two", *DUMP * count, ""]))
    for tail, first in ((1, "two"), (2, ""), (3, "}"), (5, "device_count {"), (6, "one")):
        read = logs.read_logs({"ps-0": [path]}, tail, False, lambda: True, are_program_lines)
        texts = [line.text for line in read if line is not None]
        assert texts[0] == first
        assert sum(are_program_lines(texts)) == tail
    found = logs.last_lines({"ps-0": [path]}, are_program_lines)["ps-0"].text
    assert found == ("two" if count < logs.LOOK_BEHIND else "")


def noted(log: Path, *times: tuple[int, int]) -> None:
    """Write the file with the times of a log's lines; `times` are pairs of a line's offset in the
    log and its time in milliseconds.
    """
    folder = log.parent / logs.TIMES_FOLDER
    folder.mkdir(exist_ok=True)
    (folder / log.name).write_bytes(b"".join(logs.TIMES_RECORD.pack(*each) for each in times))


def test_tasks_are_merged_by_time(tmp_path: Path) -> None:
    """Lines of tasks are sorted by time; a line without a time stays with its task."""
    first, second, old = (tmp_path / f"{name}.log" for name in ("a", "b", "c"))
    first.write_text("1\n3\n5\nhalf")
    noted(first, (0, 1000), (2, 3000), (4, 2000), (6, 6000))
    second.write_text("2\n4\n")
    noted(second, (0, 2500), (2, 5500))
    old.write_text("nobody knows\n")
    places = {"a": [first], "b": [second], "c": [old]}
    found = [each for each in logs.read_logs(places, None, False, lambda: True) if each]
    # the clock of `a` stepped back before its third line, but the third still follows the second
    assert [line.text for line in found] == ["nobody knows", "1", "2", "3", "5", "4", "half"]
    assert [line.at for line in found] == [None, 1.0, 2.5, 3.0, 2.0, 5.5, 6.0]


def test_a_log_that_grows_has_times(tmp_path: Path) -> None:
    """While a log is followed, each new line has its noted time."""
    path = tmp_path / "a.log"
    path.write_text("1\n")
    noted(path, (0, 1000))
    log = logs.TaskLog("a", [path])
    assert [line.at for line in log.read()] == [1.0]
    path.write_text("1\n2\n3\n")
    noted(path, (0, 1000), (2, 2000), (4, 4000))
    assert [line.at for line in log.read()] == [2.0, 4.0]


def test_the_last_line_of_each_task(tmp_path: Path) -> None:
    """For each task, the last line that the filter keeps is returned with its time. If the filter
    drops all lines, the text is empty. A task without output has no last line.
    """
    printed = {
        "a": b"one\ntwo\n\n",
        "b": b"three\nI remark\n",
        "c": b"I remark\nI again",
        "d": b"",
        "e": b"x" * 100_000 + b"\nfour\n",
    }
    for task, text in printed.items():
        (tmp_path / f"{task}.log").write_bytes(text)
    noted(tmp_path / "a.log", (0, 1000), (6, 2000))
    places = {task: [tmp_path / "gone.log", tmp_path / f"{task}.log"] for task in [*printed, "f"]}
    found = logs.last_lines(places, lambda texts: [not t.startswith("I ") for t in texts])
    assert {task: line.text for task, line in found.items()} == {
        "a": "two", "b": "three", "c": "", "e": "four",
    }  # fmt: skip
    assert found["a"].at == 2.0
    assert found["b"].at is None
    assert logs.last_lines({}) == {}


def test_last_lines_of_logs_that_hang(tmp_path: Path) -> None:
    """However often the last lines are requested, at most one reader thread waits for each hanging
    log, and the number of waiting threads for each folder is limited. Other logs are read
    meanwhile; hanging logs are read again once they recover.
    """
    places = {f"worker-{n}": [tmp_path / f"worker-{n}.log"] for n in range(3)}
    for task, (path,) in places.items():
        path.write_text(f"{task} is up\n")

    def readers() -> int:
        return sum("tfcluster-reader" in each.name for each in threading.enumerate())

    blocking = Blocking(tmp_path / "worker-1.log")
    try:
        assert logs.last_lines(places).keys() == {"worker-0", "worker-2"}
        began = time.monotonic()
        for _ in range(3):
            assert logs.last_lines(places).keys() == {"worker-0", "worker-2"}
        assert readers() == 1
        assert time.monotonic() - began < state_files.READ_WITHIN
        assert all(each.daemon for each in threading.enumerate() if "tfcluster-reader" in each.name)
    finally:
        blocking.end()
    wait_until(lambda: readers() == 0)
    assert logs.last_lines(places)["worker-1"].text == "worker-1 is up"
