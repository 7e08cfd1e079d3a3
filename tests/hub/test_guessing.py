"""Password guessing and forged client addresses at a real hub, over HTTP."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests
from support.hub import ports
from support.hub.real_hub import RealHub, password
from support.hub.visitor import Visitor
from support.polling import wait_until

from tfcluster_magic.hub.auth import FILE, accounts
from tfcluster_magic.hub.auth.accounts import AccountStore

CONFIG = """
c.Authenticator.admin_users = {"ada"}
c.AccountsAuthenticator.tries_per_address = 3
"""
FORGED = "203.0.113.66"
FORGERIES = [
    {"X-Real-Ip": FORGED},
    {"X-Forwarded-For": FORGED},
    {"X-Forwarded-For": f"{FORGED}, 127.0.0.1"},
    {"Forwarded": f"for={FORGED};proto=https"},
    {"X-Real-Ip": FORGED, "X-Forwarded-For": FORGED, "X-Scheme": "https"},
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """Start a hub with its console and the accounts ada (an administrator), bob, cyd and dan."""
    (console,) = ports.free(1)
    environ = {"TFCLUSTER_HUB_CONSOLE_PORT": str(console)}
    people = ["ada", "bob", "cyd", "dan"]
    hub = RealHub(tmp_path_factory.mktemp("hub"), people, environ, more=CONFIG)
    try:
        hub.start()
        yield hub
    finally:
        hub.close()


@pytest.mark.parametrize("headers", FORGERIES, ids=str)
def test_an_address_that_a_client_claims_is_not_believed(
    hub: RealHub, headers: dict[str, str]
) -> None:
    """On its public port and on the port for notebooks, the hub logs the address of the connection,
    not the claimed one. It ignores a claimed `https` too: its cookie is not marked as secure.
    """
    for port in (hub.port, hub.hub_port):
        mark = f"{port}-{time.monotonic_ns()}"
        where = f"http://127.0.0.1:{port}{hub.base_url}hub/login?{mark}"
        answer = requests.get(where, headers=headers, timeout=120)
        assert answer.status_code == 200
        assert "(@127.0.0.1)" in _noted(hub, mark)
        assert "secure" not in answer.headers["Set-Cookie"].lower()


def test_the_proxys_path_is_told_to_nobody(hub: RealHub) -> None:
    """A guess at the proxy's secret path does not work, and no log or response shows that path."""
    made_up = "0" * 64
    where = f"http://127.0.0.1:{hub.hub_port}/{made_up}{hub.base_url}hub/login"
    answer = requests.get(where, headers={"X-Real-Ip": FORGED}, timeout=120)
    assert answer.url != where or answer.status_code == 404
    proxy = urlsplit(hub.url)
    for target in ("foo://h?x", "foo://h", "mailto://a?x"):
        with socket.create_connection((proxy.hostname, proxy.port), timeout=120) as asked:
            asked.sendall(f"GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
            said = b"".join(iter(lambda: asked.recv(65536), b""))
        assert said.startswith(b"HTTP/1.1 ")
        assert not re.search(rb"[0-9a-f]{64}", said.partition(b"\r\n\r\n")[0])
    assert not re.search(r"/(?!0{64})[0-9a-f]{64}", hub.log.read_text())
    assert FORGED not in hub.log.read_text()


def test_the_audit_log_names_where_a_request_came_from(hub: RealHub) -> None:
    """The audit log has the address of the connection, not the one that the client claims."""
    ada = hub.visitor("ada")
    found = wait_until(  # the console may still be starting
        lambda: re.search(r'data-xsrf="([^"]*)"', ada.get("services/admin/users").text),
        "the console's page",
        every=0.1,
    )
    body = {"until": time.time() + 3600, "reason": "a test", "quota": {"cpu": 2}}
    claims = {"X-XSRFToken": found.group(1), "Sec-Fetch-Mode": "cors", "X-Real-Ip": FORGED}
    answer = ada.session.put(
        f"{hub.url}services/admin/api/overrides/ada",
        json=body,
        headers={**claims, "X-Forwarded-For": FORGED},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in (hub.state / "audit.jsonl").read_text().splitlines()]
    assert {line["source"] for line in lines if line.get("what") == "override"} == {"127.0.0.1"}


def test_wrong_names_from_a_shared_address_refuse_nobody(hub: RealHub) -> None:
    """After wrong names from an address, another user at that address can sign in with a new
    browser.
    """
    for number in range(5):
        assert _status(Visitor(hub.url), f"made-up-{number}", "not this one") == 403
    assert _status(Visitor(hub.url), "bob", password("bob")) == 302


def test_whose_password_is_guessed_signs_in_where_they_did(hub: RealHub) -> None:
    """Ten wrong passwords block the sender's real address, but no browser that the owner has
    used.
    """
    hers, guessing = Visitor(hub.url), Visitor(hub.url)
    assert _status(hers, "cyd", password("cyd")) == 302
    for number in range(10):
        guessing.session.headers["X-Real-Ip"] = f"198.51.100.{number}"
        assert _status(guessing, "cyd", "not this one") == 403
    assert _status(guessing, "cyd", password("cyd")) == 429
    hers.get("hub/logout")
    assert _status(hers, "cyd", password("cyd")) == 302


def test_an_administrator_chooses_a_longer_password(hub: RealHub) -> None:
    """A new administrator with a short password sets a longer one at the next sign-in."""
    store = AccountStore(hub.state / FILE)
    store.redeem(store.invite("eve"), accounts.hash_password("nine-lamp"))
    eve, ada = Visitor(hub.url), hub.visitor("ada")
    wait_until(lambda: not store.resets(), "the hub has looked into the file")
    assert _status(eve, "eve", "nine-lamp") == 302
    eve.get("hub/logout")
    assert ada.ask("PATCH", "hub/api/users/eve", json={"admin": True}).status_code == 200

    answer = _signed_in(eve, "eve", "nine-lamp")

    assert answer.status_code == 302 and "/hub/set-password?code=" in answer.headers["Location"]
    assert eve.get("hub/home", allow_redirects=False).status_code == 302
    told = {"username": "eve", "password": "nine-lamp"}
    refused = requests.post(f"{hub.url}hub/api/users/eve/tokens", json={"auth": told}, timeout=120)
    assert refused.status_code == 403
    page = eve.session.get(f"http://127.0.0.1:{hub.port}{answer.headers['Location']}", timeout=120)
    assert "At least 12 characters of any kind, because this account" in page.text
    form = {"code": page.url.partition("code=")[2], "_xsrf": eve.xsrf("hub/set-password")}
    for chosen, status in (("ten-lamps!", 400), ("ten-lamps-lit", 302)):
        typed = {**form, "password": chosen, "again": chosen}
        done = eve.session.post(
            f"{hub.url}hub/set-password", data=typed, timeout=120, allow_redirects=False
        )
        assert done.status_code == status, done.text
    assert eve.get("hub/home", allow_redirects=False).status_code == 200
    assert _status(Visitor(hub.url), "eve", "nine-lamp") == 403


def _noted(hub: RealHub, mark: str) -> str:
    """Return the line of the hub's log about a request with this mark in its address."""

    def noted() -> list[str]:
        lines = hub.log.read_text().splitlines()
        return [one for one in lines if mark in one and "200 GET" in one]

    return wait_until(noted, hub.tail)[0]  # the line is written after the response


def _signed_in(visitor: Visitor, name: str, typed: str) -> requests.Response:
    visitor.get("hub/login")
    form = {"username": name, "password": typed, "_xsrf": visitor.xsrf("hub/login")}
    return visitor.session.post(
        f"{visitor.url}hub/login", data=form, timeout=120, allow_redirects=False
    )


def _status(visitor: Visitor, name: str, typed: str) -> int:
    return _signed_in(visitor, name, typed).status_code
