"""Logs of runs on Kubernetes: many tasks, unreadable tasks, servers that are down, last lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.kube_server import KubeServer, Refusal
from support.kubernetes_backend import backend
from support.node_logs import NAMESPACE, NodeLog, put_pod, put_run
from support.recorded_pods import recorded

from tfcluster_magic.backends.base import LogLine
from tfcluster_magic.backends.kubernetes import log_following
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.backends.kubernetes.log_following import (
    LONGEST_PAUSE,
    MOST_CHARACTERS,
    PATIENCE,
    REQUESTS_PER_SECOND,
    PollSchedule,
    RunLogs,
    TimeSorter,
)
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import Api, ApiError, path
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.spec import TaskState


@pytest.fixture
def server() -> Iterator[KubeServer]:
    running = KubeServer()
    yield running
    running.close()


class Together:
    """A gate that lets requests pass in groups of `size`: each request waits until its group is
    full.

    An incomplete group passes after a while, because the reader's last requests may be fewer than
    `size`.
    """

    def __init__(self, size: int) -> None:
        self.groups = 0
        self._size, self._here = size, 0
        self._told = threading.Condition()

    def wait(self) -> None:
        """Wait until the group is full, but at most two seconds."""
        with self._told:
            self._here += 1
            group = self.groups
            if self._here < self._size and self._told.wait_for(lambda: self.groups > group, 2):
                return
            self._here, self.groups = 0, self.groups + 1
            self._told.notify_all()


class TogetherLog(NodeLog):
    """A log whose node answers the first request only when a group of requests has come."""

    def __init__(self, together: Together) -> None:
        super().__init__()
        self._together = together

    def __call__(self, query: Mapping[str, str]) -> bytes:
        if not self.questions:
            self._together.wait()
        return super().__call__(query)


def reader(server: KubeServer, workers: int, folder: Path | None = None) -> RunLogs:
    tasks = [f"worker-{i}" for i in range(workers)]
    return RunLogs(server.api(), put_run(server), tasks, folder)


def texts(lines: Iterator[LogLine | None]) -> list[tuple[str, str]]:
    return [(line.task, line.text) for line in lines if line is not None]


@pytest.mark.parametrize("follow", [True, False])
def test_the_last_lines_of_200_tasks_come_soon(server: KubeServer, follow: bool) -> None:
    """Many tasks are read at the same time: the last lines of 200 tasks come in at most a quarter
    of the time that reading one task after the other takes.
    """
    together = Together(8)
    for worker in range(200):
        log = TogetherLog(together)
        log.say("a", "b")
        put_pod(server, worker, log)
    read = reader(server, 200)
    seen: list[tuple[str, str]] = []
    for line in read.follow(1) if follow else read.once(1):
        seen += [(line.task, line.text)] if line else []
        if len(seen) == 200:
            break
    assert sorted(seen) == sorted((f"worker-{i}", "b") for i in range(200))
    assert together.groups <= 50


def test_lines_wait_for_the_answers_of_other_tasks() -> None:
    """Lines of all tasks are sorted by time, although the tasks are read one after the other. A
    line waits for other tasks at most PATIENCE seconds.
    """
    sorter = TimeSorter(2)
    sorter.put(0, [LogLine("worker-0", "2", 12.0), LogLine("worker-0", "4", 14.0)], 20.0, 20.1)
    assert [line.text for line in sorter.due(20.2)] == []
    sorter.put(1, [LogLine("worker-1", "1", 11.0), LogLine("worker-1", "3", 13.0)], 20.2, 20.3)
    sorter.put(0, [], 20.4, 20.5)
    # worker-1 was last polled before its line 1 came at 20.3
    assert [line.text for line in sorter.due(20.6)] == []
    sorter.put(1, [], 20.5, 20.6)
    assert [line.text for line in sorter.due(20.7)] == ["1", "2", "3", "4"]
    sorter.put(0, [LogLine("worker-0", "5", 15.0)], 21.0, 21.1)
    assert [line.text for line in sorter.due(21.2)] == []
    assert [line.text for line in sorter.due(21.2 + PATIENCE)] == ["5"]
    # lines of one task keep their order although its clock stepped back
    sorter.put(0, [LogLine("worker-0", "7", 9.0)], 30.0, 30.0)
    sorter.put(1, [LogLine("worker-1", "6", 14.5)], 30.0, 30.0)
    assert [line.text for line in sorter.rest()] == ["6", "7"]


def test_a_backlog_that_waits_for_other_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of one task that wait for other tasks are returned, the earliest first, before they
    fill the memory.
    """
    monkeypatch.setattr(log_following, "MOST_WAITING", 1000)
    sorter, given = TimeSorter(2), 0
    for part in range(6):
        lines = [LogLine("worker-0", "x", 1.0 + 500 * part + n) for n in range(500)]
        sorter.put(0, lines, 20.0 + part / 10, 20.0 + part / 10)
        for line in sorter.due(20.0 + part / 10):
            given += 1
            assert line.at == float(given)
    assert given == 2000
    assert len(list(sorter.rest())) == 1000
    long = "x" * (MOST_CHARACTERS // 100)
    sorter.put(0, [LogLine("worker-0", long)] * 150, 30.0, 30.0)
    assert len(list(sorter.due(30.0))) == 50


def test_quiet_tasks_are_asked_seldom() -> None:
    """Following 600 tasks takes at most 40 requests a second. A quiet task is read every 8 s; once
    it prints again, it is read sooner.
    """
    turns, asked, now = PollSchedule(600), 0, 0.0
    while now < 60:
        due = turns.due(now, 16)
        asked += len(due)
        for each in due:
            turns.answered(each, now, found=True, behind=False)
        now += 0.02
    assert 600 < asked <= 600 + 60 * REQUESTS_PER_SECOND
    few, looks = PollSchedule(4), []
    for tick in range(6000):
        now = tick / 100
        for each in few.due(now, 16):
            looks += [now] if each == 3 else []
            few.answered(each, now, found=each == 3 and now > 30, behind=False)
    quiet = [at for at in looks if at < 30]
    assert len(quiet) < 10
    assert max(b - a for a, b in pairwise(looks)) <= LONGEST_PAUSE + 0.1
    late = [at for at in looks if at > 40]
    assert max(b - a for a, b in pairwise(late)) < 1.1


def test_a_task_whose_pod_changed_is_asked_at_once() -> None:
    """When a pod starts or ends, its log is read soon, even if the task was quiet for long or if
    the pod changed during a request.
    """
    turns = PollSchedule(1)
    for now in (0.0, 10.0, 20.0, 30.0):
        assert turns.due(now, 1) == [0]
        turns.answered(0, now, found=False, behind=False)
    assert turns.due(31.0, 1) == []
    turns.wake(0)
    assert turns.due(31.0, 1) == [0]
    turns.wake(0)
    turns.answered(0, 31.1, found=False, behind=False)
    assert turns.due(31.1, 1) == [0]


def test_more_that_is_there_is_read_at_once() -> None:
    """A task whose lines were not all read is read again without a delay, after the others."""
    turns = PollSchedule(3)
    assert turns.due(0.0, 2) == [0, 1]
    assert turns.due(0.0, 2) == [2]
    turns.answered(0, 1.0, found=True, behind=True)
    turns.answered(1, 0.5, found=True, behind=True)
    assert turns.due(1.0, 2) == [1, 0]


def test_a_task_that_cannot_be_read_hides_no_other_and_is_named(server: KubeServer) -> None:
    """If the node of one task does not answer, all other tasks are shown, and a line names the
    missing task and the reason.
    """
    for worker in range(3):
        log = NodeLog()
        log.say(f"hello from {worker}")
        put_pod(server, worker, log)
    server.refuses = lambda _method, where: (
        Refusal(500, "InternalError", "dial tcp 10.0.0.7:10250: connect: connection refused")
        if where.endswith("worker-1/log")
        else None
    )
    told = texts(reader(server, 3).once(None))
    assert told[:2] == [("worker-0", "hello from 0"), ("worker-2", "hello from 2")]
    ((task, sentence),) = told[2:]
    assert task == "worker-1"
    assert sentence.startswith("tfcluster: worker-1 cannot be read: ")
    assert "connection refused" in sentence


def test_no_task_can_be_read(server: KubeServer) -> None:
    """If no task can be read, the reader raises an error; it does not return an empty log."""
    put_pod(server, 0, NodeLog())
    server.refuses = lambda _method, where: (
        Refusal(503, "ServiceUnavailable") if where.endswith("/log") else None
    )
    with pytest.raises(ApiError):
        list(reader(server, 1).once(None))


def test_following_says_when_the_server_is_away_and_goes_on(
    server: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the API server does not answer, a follower gets one message, then `None` repeatedly.
    When the server answers again, the follower gets every line.
    """
    monkeypatch.setattr(log_following, "REPORT_AFTER", 0.3)
    log = NodeLog()
    log.say("a")
    put_pod(server, 0, log)
    lines = reader(server, 1).follow(None)
    told: list[str] = []
    words = 0  # the number of `None` that the follower yields while the server does not answer
    for line in lines:
        told += [line.text] if line else []
        words += line is None and server.refuses("", "") is not None
        if told == ["a"]:
            server.refuses = lambda _method, _where: Refusal(503, "ServiceUnavailable", "starting")
        if len(told) == 2 and words > 2:
            server.refuses, words = lambda _method, _where: None, 0
            log.say("b")
        if "b" in told and len(told) == 4:
            put_run(server, "Succeeded")
    assert told[0] == "a"
    assert told[1].startswith("tfcluster: worker-0 cannot be read: the API server ")
    assert "starting" in told[1]
    assert sorted(told[2:]) == ["b", "tfcluster: all tasks can be read again"]


def end_while_followed(server: KubeServer, folder: Path | None) -> list[str]:
    """Follow the log of a run whose pod is deleted before its last line was read; return the lines
    that the follower gets.
    """
    log = NodeLog()
    log.say("a")
    put_pod(server, 0, log)
    told: list[str] = []
    for line in reader(server, 1, folder).follow(5):
        if line and line.text == "a":
            server.remove(path("pods", NAMESPACE, "digits-1-worker-0"))
            threading.Timer(0.5, lambda: put_run(server, "Succeeded")).start()
        told += [line.text] if line else []
    return told


def test_the_last_lines_of_a_pod_that_went_are_in_the_copy(
    server: KubeServer, tmp_path: Path
) -> None:
    """A follower gets the lines of a deleted pod from the copy in /log."""
    (tmp_path / "worker-0.log").write_text("a\nb\nno newline")
    assert end_while_followed(server, tmp_path) == ["a", "b", "no newline"]


def test_last_lines_that_nobody_has_are_told(server: KubeServer) -> None:
    """Without /log, a follower gets a message that the last lines may be missing, and where the log
    is.
    """
    first, second = end_while_followed(server, None)
    assert first == "a"
    assert second.startswith("tfcluster: the last lines of worker-0 may be missing")
    assert "/log/digits/1" in second


def test_following_a_run_that_has_ended_shows_its_last_lines(server: KubeServer) -> None:
    """Following a finished run returns the requested last lines, and ends."""
    log = NodeLog()
    log.say("a", "b", "c")
    put_pod(server, 0, log, "Succeeded")
    read = reader(server, 1)
    put_run(server, "Succeeded")
    assert texts(read.follow(2)) == [("worker-0", "b"), ("worker-0", "c")]


def test_all_tasks_are_seen_with_one_request(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any number of tasks, one request returns their nodes and states; their last lines come
    from the mounted log volume.
    """
    output = tmp_path / "log" / "digits" / "1"
    output.mkdir(parents=True)
    (output / "worker-1.log").write_text("first\nlast\n")
    written = {
        "metadata": {"uid": "1"},
        "spec": {"mode": "InGraph", "replicas": {"worker": {"count": 600}}},
        "status": {"phase": "Running", "paths": {"output": str(output)}},
    }
    run = custom_resource.read(server.put(path("tfclusters", NAMESPACE, "digits-1"), written))
    for index, name in enumerate(("running", "starting", "succeeded")):
        pod = recorded(name, index=index)
        pod["metadata"]["labels"] |= {labels.NAME: "digits-1", labels.UID: "1"}
        server.put(path("pods", NAMESPACE, f"digits-1-worker-{index}"), pod)
    reached = backend(server, tmp_path, monkeypatch)
    sent: list[str] = []
    send = Api._send

    def count(api: Api, method: str, where: str, *more: Any, **words: Any) -> Any:
        sent.append(f"{method} {where}")
        return send(api, method, where, *more, **words)

    monkeypatch.setattr(Api, "_send", count)
    seen = reached.observe_tasks(run)
    assert sent == [f"GET {path('pods', NAMESPACE)}"]
    assert len(seen) == 600
    assert [each.state for each in seen[:4]] == [
        TaskState.RUNNING,
        TaskState.STARTING,
        TaskState.SUCCEEDED,
        None,
    ]
    assert all(each.node and each.since for each in seen[:3])
    assert (seen[3].node, seen[3].since, seen[1].line) == ("", None, None)
    monkeypatch.setattr(KubernetesBackend, "mounts", True)
    line = reached.observe_tasks(run)[1].line
    assert line is not None
    assert line.text == "last"
