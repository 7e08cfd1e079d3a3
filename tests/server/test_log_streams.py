"""Logs that are followed over HTTP: closed or slow browsers, hanging volumes, and the end of a
stream.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.blocking_file import Blocking
from support.polling import wait_until_async
from support.server.calls import SLEEP, Api, Launch, assert_problem
from support.server.log_items import items, lines
from tornado.simple_httpclient import HTTPStreamClosedError

from tfcluster_magic.backends.base import LogLine
from tfcluster_magic.server import log_streams, logs
from tfcluster_magic.server.log_streams import (
    LOOK_UP,
    MOST_CHARACTERS_AROUND,
    LogStreams,
    NumberedLine,
    Search,
    around,
)
from tfcluster_magic.server.service import Service
from tfcluster_magic.spec import TFCluster

FEW = 1 << 20
"""If this process reads at most this many bytes in 1.5 seconds, it is not reading the log."""


def reading() -> int:
    return sum(t.name == "tfcluster-logs" for t in threading.enumerate())


def log_of(run: TFCluster, task: str = "worker-0") -> Path:
    return Path(run.status.paths["logs"]) / f"{task}.log"


class Browser:
    """A connection from which a test reads only a part of the answer, as a browser may do."""

    def __init__(self, port: int, path: str, token: str, small: bool = False) -> None:
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(90)
        ask = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: token {token}\r\n\r\n"
        )
        self.socket.sendall(ask.encode())

    async def until(self, words: bytes) -> bytes:
        """Return all data that arrives, up to and including the bytes `words`."""
        got = bytearray()
        while words not in got[-70_000:]:
            piece = await asyncio.to_thread(self.socket.recv, 65536)
            assert piece, got[-500:]
            got += piece
        return bytes(got)


@pytest.fixture
def browse(
    http_server: Any, jp_http_port: int, jp_base_url: str, jp_serverapp: Any
) -> Callable[..., Browser]:
    """Return a function that opens a path below the API."""

    def open_path(path: str, **how: Any) -> Browser:
        token = jp_serverapp.identity_provider.token
        return Browser(jp_http_port, f"{jp_base_url}tfcluster/api/{path}", token, **how)

    return open_path


async def test_followed_to_the_end(
    launch: Launch, browse: Callable[..., Browser], tmp_path: Path
) -> None:
    """Lines arrive as they are printed, and the stream ends with the run."""
    text = """
import os, time
for i in range(3):
    print("line", i, flush=True)
    while not os.path.exists(f"{folder}/{i}"):
        time.sleep(0.02)
"""
    await launch(text.replace("{folder}", str(tmp_path)))
    browser = browse("clusters/digits/logs?follow=1")
    for i in range(3):
        came = await browser.until(f'"line {i}"'.encode())
        assert f"line {i + 1}".encode() not in came
        (tmp_path / str(i)).touch()
    await browser.until(b'{"end":true}')
    browser.socket.close()


async def test_a_browser_that_goes(
    service: Service, launch: Launch, browse: Callable[..., Browser]
) -> None:
    """When the browser closes a followed log, reading stops."""
    await launch()
    browser = browse("clusters/digits/logs?follow=1")
    await browser.until(b'"up"')
    assert reading() == 1
    browser.socket.close()
    await wait_until_async(lambda: reading() == 0, "the log is still read")


async def test_a_browser_that_is_slow(
    service: Service, ended: Launch, browse: Callable[..., Browser]
) -> None:
    """A log is read no faster than the browser receives it, the event loop stays free, and every
    line arrives.
    """
    run = await ended()
    log = log_of(run)
    count = 400_000
    log.write_text("".join(f"line {i:060}\n" for i in range(count)))
    size = log.stat().st_size
    browser = browse("clusters/digits/logs", small=True)
    await browser.until(b"line")
    begun = before = bytes_read()
    await asyncio.sleep(1.5)
    while bytes_read() - before > FEW:  # until all buffers between the log and the browser are full
        before = bytes_read()
        await asyncio.sleep(1.5)
    assert before - begun < size / 2, "it is read although nobody takes it"
    rest = await browser.until(b'"end":true')
    assert f"line {count - 1:060}".encode() in rest
    browser.socket.close()


def bytes_read() -> int:
    """Return the bytes that this process has read so far."""
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


async def test_a_volume_that_hangs(api: Api, ended: Launch) -> None:
    """While a volume hangs, the stream says that the log cannot be read."""
    run = await ended("print('hello')")
    blocking = Blocking(log_of(run))
    try:
        answer = await api("GET", "clusters/digits/logs?tail=1")
        assert_problem(answer, 503, "could not be read")
    finally:
        blocking.end()
    assert lines(items(await api("GET", "clusters/digits/logs"))) == [("worker-0", "hello")]


async def test_a_volume_that_hangs_takes_one_reader(
    api: Api, ended: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one reader waits for a hanging log, no matter how often a page retries; other logs are
    read meanwhile.
    """
    monkeypatch.setattr(log_streams, "HANGS_AFTER", 0.1)
    run = await ended("print('hello')")
    await ended("print('other')", name="other")
    blocking = Blocking(log_of(run))
    try:
        assert_problem(await api("GET", "clusters/digits/logs?tail=1"), 503, "could not be read")
        await asyncio.sleep(0.2)
        for _ in range(3):
            answer = await api("GET", "clusters/digits/logs?tail=1")
            # refused at once, because the first read still hangs
            assert_problem(answer, 503, "storage with the logs")
        assert reading() == 1
        others = items(await api("GET", "clusters/other/logs"))
        assert lines(others) == [("worker-0", "other")]
    finally:
        blocking.end()
    await wait_until_async(lambda: reading() == 0)
    assert lines(items(await api("GET", "clusters/digits/logs"))) == [("worker-0", "hello")]


async def test_a_download_that_is_cut_does_not_look_whole(
    api: Api, service: Service, ended: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unexpected read error, the browser sees a broken download."""
    await ended("print('hello')")

    def breaks(*_: Any, **__: Any) -> Iterator[LogLine | None]:
        yield LogLine("worker-0", "hello")
        yield None
        raise ZeroDivisionError

    monkeypatch.setattr(service.manager.backend, "logs", breaks)
    with pytest.raises(HTTPStreamClosedError):
        await api("GET", "clusters/digits/logs?download=1")


async def test_a_sign_of_life(
    launch: Launch, browse: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is printed, the stream sends heartbeats, so that no proxy closes it."""
    monkeypatch.setattr(logs, "HEARTBEAT", 0.5)
    await launch()
    browser = browse("clusters/digits/logs?follow=1")
    await browser.until(b"{}\n")
    browser.socket.close()


async def test_a_run_that_is_deleted_while_it_is_read(
    api: Api, launch: Launch, browse: Callable[..., Browser]
) -> None:
    """A deletion by another client ends the stream, with the reason or with the run's end."""
    await launch()
    browser = browse("clusters/digits/logs?follow=1")
    await browser.until(b'"up"')
    assert (await api("DELETE", "clusters/digits")).status in (202, 204)
    rest = await browser.until(b"0\r\n\r\n")
    assert b'"end":true' in rest or b"there is no run digits-1" in rest
    await wait_until_async(lambda: reading() == 0)
    browser.socket.close()


async def test_too_many_at_once(
    api: Api, service: Service, launch: Launch, browse: Callable[..., Browser]
) -> None:
    """The number of logs that are read at the same time is limited. A further reader gets an error
    that says so, and may retry.
    """
    service.streams = LogStreams(most=1)
    await launch(SLEEP)
    browser = browse("clusters/digits/logs?follow=1")
    await browser.until(b'"up"')
    assert_problem(await api("GET", "clusters/digits/logs"), 503, "1 logs are already open")
    browser.socket.close()
    await wait_until_async(lambda: reading() == 0)
    assert (await api("GET", "clusters/digits/logs")).status == 200


def test_a_search_looks_up_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search notices within seconds that its browser has gone, even among lines without a match;
    earlier matches have already been sent.
    """
    now = [0.0]
    monkeypatch.setattr(log_streams, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow_lines() -> Iterator[LogLine | None]:
        for n in range(1000):
            now[0] += 0.01
            yield LogLine("worker-0", "found" if n == 0 else "x")

    for part in (
        Search("found", ["worker-0"])(slow_lines()),
        around(slow_lines(), "worker-0", 999, 1),
    ):
        begun = now[0]
        looks = [now[0] - begun for line in part if line is None]
        assert len(looks) >= 30
        assert max(b - a for a, b in pairwise([0.0, *looks])) <= LOOK_UP + 0.011


def test_lines_around_one_are_bounded_in_size() -> None:
    """The lines around a line are limited in size: next to a line of several megabytes fewer lines
    are returned, but the line itself always is.
    """
    long = "x" * (MOST_CHARACTERS_AROUND // 8)
    every = [LogLine("worker-0", f"{n} {long}") for n in range(100)]
    given = [line for line in around(every, "worker-0", 50, 60) if line is not None]
    numbers = [int(line.text.split()[0]) for line in given]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert 46 <= numbers[0] < 50 < numbers[-1] <= 54
    huge = [LogLine("worker-0", long * 10), LogLine("worker-0", long * 10)]
    assert list(around(huge, "worker-0", 1, 60)) == [
        NumberedLine("worker-0", long * 10, None, number) for number in (0, 1)
    ]


async def test_the_end_of_the_server(
    service: Service, launch: Launch, browse: Callable[..., Browser]
) -> None:
    """When the extension stops, no log is read any longer."""
    await launch()
    browser = browse("clusters/digits/logs?follow=1")
    await browser.until(b'"up"')
    await service.stop()
    await wait_until_async(lambda: reading() == 0)
    browser.socket.close()
