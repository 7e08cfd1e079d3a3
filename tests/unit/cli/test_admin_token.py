"""Servers to which `tfcluster admin` sends the token that the hub has for shells on this
machine.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from support.http_listener import Listener

from tfcluster_magic.cli.admin.hub_api import HubAPI
from tfcluster_magic.errors import NotAllowed, UsageError

TOKEN = "hush"


class Web(Listener):
    """A server that answers every request, and records its Authorization header."""

    def __init__(self) -> None:
        self.told: list[str | None] = []
        super().__init__(_Answer)


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Web)
        self.server.told.append(self.headers["Authorization"])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


@pytest.fixture
def web() -> Iterator[Web]:
    """Yield a web server of this account."""
    web = Web()
    yield web
    web.end()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this account's hub, with its token."""
    monkeypatch.setenv("TFCLUSTER_STATE_DIR", str(tmp_path))
    (hub := tmp_path / "hub").mkdir()
    (hub / "shell_token").write_text(TOKEN)
    return hub


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a socket to another account")
def test_another_account_at_the_hubs_address_gets_nothing(folder: Path) -> None:
    """The token is not sent to another account that listens at a killed hub's address."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        os.fchown(stranger.fileno(), 65534, -1)
        port = stranger.getsockname()[1]
        (folder / "url").write_text(f"http://127.0.0.1:{port}/tf")
        for environ in ({}, {"TFCLUSTER_HUB_TOKEN": "mine"}):
            with pytest.raises(NotAllowed, match=r"another account.*uid 65534"):
                HubAPI.of(None, None, environ).ask("GET", "clusters")
            taken, _address = stranger.accept()
            with taken:
                assert taken.recv(1) == b""


def test_without_a_word_of_the_kernel_nothing_is_sent(
    folder: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the kernel does not name the listener's account, the user is told to name a hub and a
    token.
    """
    monkeypatch.setattr("tfcluster_magic.runtime.sockets.TABLES", ("/proc/none",))
    (folder / "url").write_text(f"http://127.0.0.1:{web.server_port}")
    with pytest.raises(NotAllowed, match="--token-file"):
        HubAPI.of(None, None, {}).ask("GET", "clusters")
    assert web.told == []


@pytest.mark.parametrize("host", ["127.0.0.1", "hub.localhost"])
def test_no_proxy_gets_the_token(
    folder: Path, web: Web, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests to the hub of this machine use no proxy, whatever the environment says."""
    proxy = Web()
    try:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        monkeypatch.delenv("no_proxy", raising=False)
        (folder / "url").write_text(f"http://{host}:{web.server_port}")
        assert HubAPI.of(None, None, {}).ask("GET", "clusters") == {}
    finally:
        proxy.end()
    assert (web.told, proxy.told) == ([f"Bearer {TOKEN}"], [])


@pytest.mark.parametrize("url", ["http://hub.example.com", "https://hub.localhost:8888"])
def test_the_token_leaves_this_machine_to_nobody(folder: Path, url: str) -> None:
    """For a hub with a host name or TLS, the user needs their own token."""
    (folder / "url").write_text(url)
    with pytest.raises(UsageError, match="/hub/token"):
        HubAPI.of(None, None, {})
    assert not HubAPI.of(None, None, {"TFCLUSTER_HUB_TOKEN": "mine"}).own
