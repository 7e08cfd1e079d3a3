"""A password reset on a real hub with a running notebook ends all access."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
import requests
import websocket
from support.hub.real_hub import RealHub, password
from support.hub.visitor import Visitor
from support.polling import wait_until

from tfcluster_magic.hub.auth import FILE
from tfcluster_magic.hub.auth.accounts import AccountStore

OWN_TOKEN = "JUPYTERHUB_API_TOKEN"


class Thief:
    """Everything that an intruder could take from ada's browser and notebook."""

    def __init__(self, hub: RealHub) -> None:
        self.hub = hub
        self.browser = hub.visitor("ada")
        self.own = self.browser.spawn()
        self.notebook = _notebook(hub)
        self.tokens = {"of the notebook": self.notebook.environ()[OWN_TOKEN]}
        self.tokens["made in the browser"] = self._made("POST", self.browser.ask)
        self.tokens["made with a token"] = self._by_token(self.tokens["made in the browser"])
        note = f"Server at {hub.base_url}user/ada/"
        self.tokens["called as the notebook's"] = self._made("POST", self.browser.ask, note)
        self.socket = self.browser.socket(f"{self.own}/api/events/subscribe")

    def _made(self, method, ask, note="a test") -> str:
        answer = ask(method, "hub/api/users/ada/tokens", json={"note": note})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def _by_token(self, token: str) -> str:
        def ask(method: str, path: str, **words: object) -> requests.Response:
            return self.get(path, token, method, **words)

        return self._made("POST", ask)

    def get(self, path: str, token: str, method: str = "GET", **words) -> requests.Response:
        headers = {"Authorization": f"token {token}"}
        return requests.request(
            method,
            self.hub.url + path,
            headers=headers,
            timeout=120,
            allow_redirects=False,
            **words,
        )

    def ways_in(self) -> set[str]:
        """Return the stolen credentials that still work."""
        found = set()
        if self.browser.get("hub/home", allow_redirects=False).status_code == 200:
            found.add("session")
        if self.browser.get(f"{self.own}/api/contents", allow_redirects=False).status_code == 200:
            found.add("session at the notebook")
        for name, token in self.tokens.items():
            if self.get("hub/api/users/ada/tokens", token).status_code == 200:
                found.add(f"token {name}, at the hub")
            if self.get("hub/api/users/ada/tokens", token, "POST", json={}).status_code == 201:
                found.add(f"token {name}, makes another")
            if self.get(f"{self.own}/api/contents", token).status_code == 200:
                found.add(f"token {name}, at the notebook")
        return found

    def socket_ends(self) -> bool:
        """Wait for the notebook's websocket to close, and return whether it did."""
        self.socket.settimeout(120)
        try:
            while self.socket.recv_data()[0] != websocket.ABNF.OPCODE_CLOSE:
                pass  # skip other messages
        except websocket.WebSocketConnectionClosedException:
            pass
        self.socket.shutdown()
        return True


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """Start a hub with the account `ada`."""
    hub = RealHub(tmp_path_factory.mktemp("hub"), ["ada"])
    try:
        hub.start()
        yield hub
    finally:
        hub.close()


def test_a_reset_ends_whatever_is_signed_in(hub: RealHub) -> None:
    """When the reset link is printed, all access to the hub and to a notebook ends: sessions,
    tokens, tokens that were made with these tokens, and open websockets. The notebook keeps its
    kernel. The old password is invalid. A reset while the hub is down takes effect before the hub
    answers again.
    """
    thief = Thief(hub)
    kernel = thief.browser.kernel(thief.own)
    thief.browser.execute(thief.own, kernel, "kept = 7")
    assert {"session", "token made with a token, makes another"} < thief.ways_in()

    link = _reset(hub)

    assert thief.ways_in() == set()
    assert thief.socket_ends()
    assert _status(hub, password("ada")) == 403

    ada = _redeemed(hub, link, "another password")
    assert thief.ways_in() == set()
    assert _status(hub, "another password") == 302
    assert ada.get(f"{thief.own}/lab").status_code == 200
    assert ada.execute(thief.own, kernel, "print(kept)") == "7\n"
    assert thief.notebook.is_running() and _notebook(hub) == thief.notebook
    activity = {"last_activity": "2026-01-01T00:00:00Z", "servers": {}}
    path, own = "hub/api/users/ada/activity", thief.tokens["of the notebook"]
    assert thief.get(path, own, "POST", json=activity).status_code == 200
    known = [name for name, text in thief.tokens.items() if thief.get("hub/api/user", text).ok]
    assert known == ["of the notebook"]

    hub.stop(signal.SIGKILL)
    _end_proxy(hub)
    link = _reset(hub)
    hub.start()

    assert ada.get("hub/home", allow_redirects=False).status_code == 302
    contents = f"{thief.own}/api/contents"
    wait_until(  # the hub applies the reset some time after its start, which no event reports
        lambda: ada.get(contents, allow_redirects=False).status_code != 200,
        "the notebook lets no visitor in",
        every=0.1,
    )
    assert thief.ways_in() == set()
    assert AccountStore(hub.state / FILE).password("ada") is None


def _notebook(hub: RealHub) -> psutil.Process:
    (found,) = [one for one in hub.processes() if "jupyterhub.singleuser" in one.cmdline()]
    return found


def _end_proxy(hub: RealHub) -> None:
    """End the proxy, which outlives a killed hub; `make run` would end it too."""
    for one in hub.processes():
        with suppress(psutil.NoSuchProcess):  # the process has ended, or is a zombie
            if any("configurable-http-proxy" in word for word in one.cmdline()):
                one.kill()
                one.wait(60)


def _reset(hub: RealHub) -> str:
    command = [sys.executable, "-m", "tfcluster_magic.hub", "accounts", "--state", str(hub.state)]
    done = subprocess.run(
        [*command, "--url", hub.url, "reset", "ada"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _redeemed(hub: RealHub, link: str, chosen: str) -> Visitor:
    visitor = Visitor(hub.url)
    visitor.name = "ada"
    assert visitor.session.get(link, timeout=120).status_code == 200
    form = {"code": link.partition("code=")[2], "password": chosen, "again": chosen}
    form["_xsrf"] = visitor.xsrf("hub/set-password")
    answer = visitor.session.post(
        f"{hub.url}hub/set-password", data=form, timeout=120, allow_redirects=False
    )
    assert answer.status_code == 302, answer.text
    return visitor


def _status(hub: RealHub, typed: str) -> int:
    visitor = Visitor(hub.url)
    visitor.get("hub/login")
    form = {"username": "ada", "password": typed, "_xsrf": visitor.xsrf("hub/login")}
    answer = visitor.session.post(
        f"{hub.url}hub/login", data=form, timeout=120, allow_redirects=False
    )
    return answer.status_code
