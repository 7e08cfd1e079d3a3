"""The cost of the server extension and the delay of its events, on a real Jupyter server."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from playwright.sync_api import sync_playwright
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

import tfcluster_magic
from tests.support.ui.lab_server import LabServer
from tools.browser import find as find_chromium

from . import by_hand
from .processes import cpu_seconds, until
from .product import Workbench, workbench
from .rows import Row, bounded

BUILT = Path(tfcluster_magic.__file__).parent / "labextension"
RUNS = 200
CHANGES = 10
"""Number of times per second that each run changes."""


def push(quick: bool) -> list[Row]:
    """Measure the delay from a change of a run's record to its event, with 200 other, quiet
    runs.
    """
    with _server() as (bench, server):
        late = asyncio.run(server.delays(bench, 20 if quick else 200))
    p95 = quantiles(late, n=20)[-1]
    return [bounded("lab_push", "s (p95)", [p95], at_most=0.5, baseline=late)]


def load(quick: bool) -> list[Row]:
    """Measure the server's CPU time while 200 runs change ten times a second, and while none
    changes.
    """
    seconds = 5.0 if quick else 20.0
    with _server() as (bench, server):
        still, _ = asyncio.run(server.watched(bench, seconds, changing=0))
        busy, told = asyncio.run(server.watched(bench, seconds, changing=RUNS))
    note = f"{RUNS} runs, and a page listens"
    more = f"{note}; each changes up to {CHANGES} times a second; {told:.0f} events a second"
    return [
        bounded("lab_still", "% of a core", [still], at_most=5.0, note=note),
        bounded("lab_busy", "% of a core", [busy], at_most=50.0, note=more),
    ]


def idle(quick: bool) -> list[Row]:
    """Count the requests a minute that a page with an open sidebar sends while nothing happens."""
    minutes = 1.5 if quick else 5.0
    asked: list[str] = []
    with workbench() as bench, sync_playwright() as playwright:
        assets = bench.folder / "labextensions"
        shutil.copytree(BUILT, assets / "tfcluster-labextension")
        server = LabServer(bench.folder / "lab", assets)
        server.start()
        try:
            path = find_chromium()
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"{server.url}lab?token={server.token}&reset")
            page.wait_for_function("() => window.jupyterapp !== undefined")
            page.evaluate("async () => { await window.jupyterapp.restored; }")
            page.evaluate("() => window.jupyterapp.commands.execute('tfcluster:open-sidebar')")
            page.wait_for_timeout(15_000)  # do not count the requests of the page's start
            page.on("request", lambda request: asked.append(request.url))
            page.wait_for_timeout(minutes * 60_000)
            browser.close()
        finally:
            server.close()
    ours = [url for url in asked if "/tfcluster/" in url]
    return [bounded("lab_idle_requests", "a minute", [len(ours) / minutes], at_most=2.0)]


class _Server:
    """A Jupyter server with the extension, in its own process."""

    def __init__(self, bench: Workbench) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.token = secrets.token_hex(16)
        folders = {
            f"JUPYTER_{kind}_DIR": str(bench.folder / "jupyter" / kind.lower())
            for kind in ("CONFIG", "DATA", "RUNTIME")
        }
        options = {
            "ServerApp.jpserver_extensions": '{"tfcluster_magic.server": True}',
            "ServerApp.port": self.port,
            "ServerApp.open_browser": False,
            "ServerApp.root_dir": bench.folder,
            "IdentityProvider.token": self.token,
        }
        command = [sys.executable, "-m", "jupyter_server", "--allow-root"]
        self.process = subprocess.Popen(
            [*command, *(f"--{key}={value}" for key, value in options.items())],
            env={**bench.env, **folders},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def get(self, path: str) -> Any:
        """Return the JSON response of a route."""
        headers = {"Authorization": f"token {self.token}"}
        request = HTTPRequest(f"http://127.0.0.1:{self.port}/{path}", headers=headers)
        return json.loads((await AsyncHTTPClient().fetch(request)).body)

    async def page(self) -> WebSocketClientConnection:
        """Open the event stream as a page does, and wait until the server knows all runs."""
        while True:
            try:
                listed = await self.get("tfcluster/api/clusters?all=1")
                break
            except (OSError, HTTPClientError):
                await asyncio.sleep(0.1)  # the server is starting
        assert len(listed["runs"]) == RUNS + 1
        url = f"ws://127.0.0.1:{self.port}/api/events/subscribe?token={self.token}"
        events = await websocket_connect(url)
        while (await self.get("tfcluster/api/clusters"))["sequence"] <= RUNS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # each run is reported once, when it is found
        return events

    async def delays(self, bench: Workbench, count: int) -> list[float]:
        """Change a run `count` times, and return how many seconds after each change its event
        arrived.
        """
        events = await self.page()
        file = _status(bench, 1)
        found = []
        for number in range(count):
            await asyncio.sleep(random.uniform(0.3, 0.7))  # changes come at any time between polls
            word = f"change {number}"
            began = time.monotonic()
            _change(file, word)
            while True:
                event = json.loads(await events.read_message() or "null")
                if event["run"] and event["run"]["cluster"]["status"]["message"] == word:
                    break
            found.append(time.monotonic() - began)
        return found

    async def watched(self, bench: Workbench, seconds: float, changing: int) -> tuple[float, float]:
        """Return the server's CPU time in percent of a core, and the events per second."""
        events = await self.page()
        told = 0

        async def listen() -> None:
            nonlocal told
            while await events.read_message() is not None:
                told += 1

        listening = asyncio.create_task(listen())
        writer = subprocess.Popen(  # noqa: ASYNC220 - Popen returns at once
            [
                sys.executable,
                "-m",
                "benchmarks.lab",
                str(bench.folder),
                str(changing),
                str(seconds + 2),
            ]
        )
        while changing and not told:  # noqa: ASYNC110 - `listen` changes `told`
            await asyncio.sleep(0.05)  # the writer is starting
        before, first = cpu_seconds(self.process.pid), told
        await asyncio.sleep(seconds)  # the interval that is measured
        spent, count = cpu_seconds(self.process.pid) - before, told - first
        events.close()
        await listening
        writer.wait()
        return spent / seconds * 100, count / seconds


@contextmanager
def _server() -> Iterator[tuple[Workbench, _Server]]:
    with workbench() as bench:
        clock = str(by_hand.PROGRAMS / "clock.py")
        options = ["--workers", "1", "--ps", "0", "--name", "bench", "--wait"]
        bench.tfcluster("launch", *options, clock, "--", "1")
        run = bench.folder / "state" / "runs" / "bench" / "1"
        record = json.loads((run / "record.json").read_text())
        for number in range(2, RUNS + 2):
            copy = run.with_name(str(number))
            shutil.copytree(run, copy, ignore=shutil.ignore_patterns("control"))
            uid = f"{record['metadata']['uid']}-{number}"
            metadata = {**record["metadata"], "name": f"bench-{number}", "run": number, "uid": uid}
            (copy / "record.json").write_text(json.dumps({**record, "metadata": metadata}))
        server = _Server(bench)
        try:
            yield bench, server
        finally:
            server.process.terminate()
            until("the end of the server", lambda: server.process.poll() is not None)


def _status(bench: Workbench, number: int) -> Path:
    return bench.folder / "state" / "runs" / "bench" / str(number) / "status.json"


def _change(file: Path, word: str) -> None:
    status = json.loads(file.read_bytes())
    beside = file.with_name("beside")
    beside.write_text(json.dumps({**status, "message": word}))
    beside.replace(file)


def _keep_changing(folder: str, runs: int, seconds: float) -> None:
    """Change the status files of `runs` runs, `CHANGES` times a second each, as their supervisors
    would. `watched` calls this function in a separate process.
    """
    files = [
        Path(folder, "state", "runs", "bench", str(n), "status.json") for n in range(1, runs + 1)
    ]
    began, turn = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        for file in files:
            _change(file, f"turn {turn}")
        turn += 1
        time.sleep(max(0.0, turn / CHANGES - now))  # wait for the next turn's time


if __name__ == "__main__":
    _keep_changing(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
