"""The output of a task is returned once and completely, whatever its node did with the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.kube_server import KubeServer
from support.node_logs import NAMESPACE, NodeLog, put_pod

from tfcluster_magic.backends.base import LOOK_BEHIND
from tfcluster_magic.backends.kubernetes.pod_log import PodLog
from tfcluster_magic.errors import are_program_lines

Step = Callable[[NodeLog], object]
NUMBERS = [f"step {i}" for i in range(3000)]


@pytest.fixture
def server() -> Iterator[KubeServer]:
    running = KubeServer()
    yield running
    running.close()


def seen(log: PodLog) -> list[str]:
    """Read the log once, and return the texts of the new lines."""
    return [line.text for line in log.read()]


CASES: dict[str, tuple[list[Step], list[str]]] = {
    "one line after the other": (
        [lambda n: n.say("a"), lambda n: n.say("b", "c"), lambda n: n.say()],
        ["a", "b", "c"],
    ),
    "the same text again and again": (
        [lambda n: n.say("a", "a"), lambda n: n.say("a"), lambda n: n.say("a", "a")],
        ["a"] * 5,
    ),
    "lines with one time stamp, and further ones with it": (
        [lambda n: n.say("a", "a", every=0), lambda n: n.say("a", "b", every=0), lambda n: n.say()],
        ["a", "a", "a", "b"],
    ),
    "a line whose end comes later": (
        [lambda n: n.begin("50 %"), lambda n: n.end(" 100 %"), lambda n: n.say("done")],
        ["50 %", " 100 %", "done"],
    ),
    "a part of a line beside others with its stamp": (
        [
            lambda n: n.say("a", "50 %", every=0),
            lambda n: n.end(" 100 %"),
            lambda n: n.say("b", every=0),
        ],
        ["a", "50 %", " 100 %", "b"],
    ),
    "more lines at once than are asked for": (
        [lambda n: n.say("a"), lambda n: n.say(*NUMBERS, every=1), lambda n: n.say("z")],
        ["a", *NUMBERS, "z"],
    ),
    "many lines after a silence": (
        [lambda n: n.say("a"), *[lambda n: n.say()] * 3, lambda n: n.say(*NUMBERS, every=1)],
        ["a", *NUMBERS],
    ),
    "the clock stepped back by a second": (
        [lambda n: n.say("a"), lambda n: n.set_clock(-1.5).say("b"), lambda n: n.say("c")],
        ["a", "b", "c"],
    ),
    "the clock stepped back by a second, and came on": (
        [lambda n: n.say("a"), lambda n: n.set_clock(-2).say("b", "c", "d", every=700)],
        ["a", "b", "c", "d"],
    ),
    "the clock stepped back by an hour": (
        [
            lambda n: n.say("a", "b"),
            lambda n: n.set_clock(-3600).say("c"),
            lambda n: n.say(),
            lambda n: n.say("d"),
            lambda n: n.say(*NUMBERS, every=1),
        ],
        ["a", "b", "c", "d", *NUMBERS],
    ),
    "the node began a new file": (
        [lambda n: n.say("a", "b"), lambda n: n.rotate().say("c"), lambda n: n.say("d")],
        ["a", "b", "c", "d"],
    ),
    "the node began a new file after a silence": (
        [
            lambda n: n.say("a", "b"),
            *[lambda n: n.say()] * 2,
            lambda n: n.rotate().say("b"),
            lambda n: n.say("b"),
        ],
        ["a", "b", "b", "b"],
    ),
    "the container began anew, with an empty log": (
        [lambda n: n.say("a"), lambda n: n.rotate(), lambda n: n.say(), lambda n: n.say("a")],
        ["a", "a"],
    ),
    "nothing at first": (
        [lambda n: n.say(), lambda n: n.say(), lambda n: n.say("a")],
        ["a"],
    ),
}


@pytest.mark.parametrize(("steps", "given"), CASES.values(), ids=CASES.keys())
def test_each_line_comes_once(server: KubeServer, steps: list[Step], given: list[str]) -> None:
    """Each read returns exactly the new output: lines that an answer repeats are not returned
    again, and no line is lost because of its timestamp.
    """
    node = NodeLog()
    pod = put_pod(server, 0, node)
    log = PodLog(server.api(), NAMESPACE, "worker-0", None)
    found: list[str] = []
    for step in steps:
        step(node)
        log.update_pods([pod], 1)
        found += seen(log)
    found += seen(log) + seen(log)
    assert found == given


def test_the_last_lines_of_several_attempts(server: KubeServer) -> None:
    """The last lines come from the newest pod and, if more lines are requested, from the pod before
    it; new lines follow.
    """
    first, second = NodeLog(), NodeLog()
    first.say("a", "b", "c")
    second.say("d", "e", every=0)
    pods = [put_pod(server, 0, first, "Failed"), put_pod(server, 1, second)]
    for tail, wanted in ((0, []), (1, ["e"]), (3, ["c", "d", "e"]), (9, ["a", "b", "c", "d", "e"])):
        log = PodLog(server.api(), NAMESPACE, "worker-0", None)
        log.update_pods(pods, 2)
        log.seek_last(tail)
        assert seen(log) == wanted
        second.say("f", every=0)
        assert seen(log) == ["f"]
        second.lines.pop()


def no_dashes(texts: Sequence[str]) -> list[bool]:
    """Return which lines are not `-`."""
    return [text != "-" for text in texts]


def test_the_last_lines_are_those_that_count(server: KubeServer) -> None:
    """The number of last lines counts only lines that the filter keeps, in each attempt."""
    first, second = NodeLog(), NodeLog()
    first.say("a", "-", "b", "-", "-")
    second.say("c", *["-"] * 900, "d", "-", every=0)
    pods = [put_pod(server, 0, first, "Failed"), put_pod(server, 1, second)]
    for tail, begins in ((0, ""), (1, "d"), (2, "c"), (3, "b"), (4, "a"), (9, "a")):
        log = PodLog(server.api(), NAMESPACE, "worker-0", None, no_dashes)
        log.update_pods(pods, 2)
        log.seek_last(tail)
        lines = seen(log)
        assert lines[:1] == [*begins]
        assert [text for text in lines if text != "-"] == list("abcd")[4 - min(tail, 4) :]


@pytest.mark.parametrize("more", [3, LOOK_BEHIND + 3])
def test_a_protobuf_of_tensorflow_does_not_count(server: KubeServer, more: int) -> None:
    """Whether a line counts depends on the lines before it, which are requested, too."""
    node = NodeLog()
    first = "I0000 00:00:1795825530.912483   16221 a.cc:355] Options: goo.gle/debugstr  "
    lines = ["one", first, *['name: "x"'] * 20, "", *map(str, range(more))]
    node.say(*lines, every=0)
    log = PodLog(server.api(), NAMESPACE, "worker-0", None, are_program_lines)
    log.update_pods([put_pod(server, 0, node)], 1)
    log.seek_last(more + 1)
    assert seen(log) == lines


def test_a_quiet_task_costs_a_few_lines(server: KubeServer) -> None:
    """For a task that prints nothing, only the last lines are requested, not the whole log."""
    node = NodeLog()
    node.say(*NUMBERS, every=1)
    pod = put_pod(server, 0, node)
    log = PodLog(server.api(), NAMESPACE, "worker-0", None)
    log.update_pods([pod], 1)
    assert seen(log) == NUMBERS
    assert seen(log) == seen(log) == []
    del node.questions[:]
    assert seen(log) == []
    (question,) = node.questions
    assert int(question["tailLines"]) <= 5


def test_what_a_kubelet_says_is_no_output(server: KubeServer) -> None:
    """If a kubelet returns a message in place of a log, this message is the reason why the log
    cannot be read.
    """
    node = NodeLog()
    node.body = b"unable to retrieve container logs for containerd://1234"
    pod = put_pod(server, 0, node)
    log = PodLog(server.api(), NAMESPACE, "worker-0", None)
    log.update_pods([pod], 1)
    assert seen(log) == []
    assert log.problem is not None and "unable to retrieve" in log.problem.message
    node.body = None
    node.say("a")
    assert seen(log) == ["a"]
    assert log.problem is None


@pytest.mark.parametrize(
    ("before", "tail", "copied", "given"),
    [
        (["a", "b"], None, "a\nb\nc\nlast", ["a", "b", "c", "last"]),
        (["a", "b"], 1, "a\nb\nc\nlast", ["b", "c", "last"]),
        (["a", "50 %"], None, "a\n50 % 100 %\nlast\n", ["a", "50 %", " 100 %", "last"]),
        (["a", "50 %"], 1, "a\n50 % 100 %\nlast\n", ["50 %", " 100 %", "last"]),
        (["a", "b"], 0, "a\nb\nc\n", ["c"]),
        (["tfcluster: x", "b"], 2, "a\nb\nc\n", ["tfcluster: x", "b", "c"]),
        ([], None, "a\nb\n", ["a", "b"]),
        ([], 1, "a\nb\n", ["b"]),
    ],
)
def test_the_copy_has_what_a_pod_took_with_it(
    server: KubeServer,
    tmp_path: Path,
    before: list[str],
    tail: int | None,
    copied: str,
    given: list[str],
) -> None:
    """If a pod is deleted before its last lines were read, they are read from the copy, once."""
    node = NodeLog()
    node.say(*before)
    pod = put_pod(server, 0, node)
    file = tmp_path / "worker-0.log"
    log = PodLog(server.api(), NAMESPACE, "worker-0", file)
    log.update_pods([pod], 1)
    if tail is not None:
        log.seek_last(tail)
    found = seen(log)
    file.write_text(copied)
    log.update_pods([], 1)
    assert log.is_copied
    found += [line.text for line in log.read(last=True)]
    assert found == given
