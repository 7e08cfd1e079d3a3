"""Fixtures for a real Jupyter server with the extension and its own folders, in the process of the
tests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403 - fixtures and hooks, for this folder only
from support.server.calls import SLEEP, Answer, Api, Ask, Events, Launch
from tornado.httpclient import HTTPResponse
from traitlets.config import Config

from tfcluster_magic.runs.manager import Until
from tfcluster_magic.server.service import Service
from tfcluster_magic.spec import TFCluster


@pytest.fixture
def jp_server_config() -> Config:
    """Enable the extension, as its file in jupyter_server_config.d does."""
    return Config({"ServerApp": {"jpserver_extensions": {"tfcluster_magic.server": True}}})


@pytest.fixture
def jp_home_dir(own_folders: Any) -> Any:
    """Use the test's own home folder, which `own_folders` makes."""
    return own_folders / "home"


@pytest.fixture
def service(jp_serverapp: Any) -> Iterator[Service]:
    """Yield the shared state of the server's routes; after the test, end its runs."""
    found: Service = jp_serverapp.web_app.settings["tfcluster"]
    yield found
    for run in found.manager.list(all_runs=True):
        found.manager.stop(run.metadata.name, "the test is over")
        found.manager.wait(run.metadata.name, until=Until.RELEASED)


@pytest.fixture
def ask(jp_fetch: Ask) -> Ask:
    """Return a function that requests a route below `tfcluster`; its argument `to` is a literal
    path.
    """

    async def ask(to: str, method: str = "GET", data: Any = None, **words: Any) -> HTTPResponse:
        body = None if data is None else json.dumps(data)
        words = {"raise_error": False, "request_timeout": 60, **words}
        return await jp_fetch("tfcluster", to, method=method, body=body, **words)

    return ask


@pytest.fixture
def api(jp_fetch: Any, service: Service) -> Api:
    """Return a function that calls a route with a method, a path and a JSON body."""

    async def call(
        method: str, path: str, body: Any = None, raw: bytes | None = None, **more: Any
    ) -> Answer:
        path, _, query = path.partition("?")
        params = [tuple(pair.split("=")) for pair in query.split("&")] if query else []
        sent = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        if method in ("POST", "PUT", "PATCH") and sent is None:
            sent = b""
        answer = await jp_fetch(
            *("tfcluster", "api", *path.split("/")),
            method=method,
            body=sent,
            params=params,
            raise_error=False,
            request_timeout=120,
            **more,
        )
        kind = answer.headers.get("Content-Type", "")
        return Answer(answer.code, kind, answer.body.decode(), answer)

    return call


@pytest.fixture
def launch(service: Service) -> Launch:
    """Return a function that launches the text of a program through the manager, as a client
    outside of the server would.
    """

    async def start(text: str = SLEEP, name: str = "digits", **options: Any) -> TFCluster:
        wish = {"cell": text, "name": name, "workers": 1, "grace": "1s", **options}
        return await asyncio.to_thread(service.manager.launch, **wish)

    return start


@pytest.fixture
def ended(service: Service, launch: Launch) -> Launch:
    """Return a function that launches a program's text and waits until the run has ended
    completely.
    """

    async def start(text: str = "pass", **options: Any) -> TFCluster:
        run = await launch(text, **options)
        name = run.metadata.name
        return await asyncio.to_thread(service.manager.wait, name, until=Until.RELEASED)

    return start


@pytest.fixture
def page(
    jp_ws_fetch: Any, jp_fetch: Any, service: Service
) -> Iterator[Callable[[], Awaitable[Events]]]:
    """Return a function that opens the stream of events as a page does."""
    sockets = []

    async def open_page() -> Events:
        socket = await jp_ws_fetch("api", "events", "subscribe")
        sockets.append(socket)
        # after this answer, the server has opened its side of the socket
        await jp_fetch("api", "status")
        service.start()
        return Events(socket)

    yield open_page
    for socket in sockets:
        socket.close()
