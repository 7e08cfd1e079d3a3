"""A real OpenID Connect provider for tests: dex, as a process on this machine.

It has users with groups, a client for one hub, and a clock that tests can set forward. Its process
ends when the tests end and close its standard input.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest
import requests
from kubenode import build, modules

from ..polling import wait_until

SECRET = "the secret of the hub"
START = 30.0


class Provider:
    """dex with these users (name: groups); the password of each is `password(name)`. It listens on
    a free port of 127.0.0.1 or at a given address. The address is also its issuer.
    """

    def __init__(
        self,
        folder: Path,
        people: Mapping[str, Sequence[str]],
        callback: str,
        *,
        address: str = "",
        issuer: str = "",
    ) -> None:
        self.address = address or _free_address()
        self.issuer = issuer or f"http://{self.address}/dex"
        self.clock, self.log = folder / "clock", folder / "provider.log"
        self.settings = folder / "provider.json"
        client = {"id": "hub", "name": "the hub", "secret": SECRET, "redirectURIs": [callback]}
        persons = {
            name: {"password": password(name), "email": f"{name}@example.org", "groups": groups}
            for name, groups in people.items()
        }
        whole = {"issuer": self.issuer, "clients": [client], "people": persons}
        self.settings.write_text(json.dumps({**whole, "clock": str(self.clock)}))
        self.program = build.build(["dex"], quiet=True)["dex"]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Return the hub's variables for this provider."""
        return {
            "TFCLUSTER_HUB_SIGN_IN": "oidc",
            "OIDC_ISSUER": self.issuer,
            "OIDC_CLIENT_ID": "hub",
            "OIDC_CLIENT_SECRET": SECRET,
            "OIDC_USERNAME_CLAIM": "name",
        }

    def start(self) -> None:
        """Start the provider, and wait for its metadata."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command(),
                env={},  # no variable of a test may reach the process, which several tests share
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
            )
        process = self.process

        def answers() -> bool:
            assert process.poll() is None, self.log.read_text()
            return self.answers()

        wait_until(answers, self.log.read_text, START)

    def command(self) -> list[str]:
        """Return the provider's command line."""
        return [str(self.program), str(self.settings), self.address]

    def answers(self) -> bool:
        """Return whether the provider's metadata is available."""
        try:
            url = f"{self.issuer}/.well-known/openid-configuration"
            return requests.get(url, timeout=2).status_code == 200
        except requests.RequestException:
            return False

    def put_forward(self, span: str) -> None:
        """Set the provider's clock ahead by a time span, such as `40m`."""
        beside = self.clock.with_suffix(".new")
        beside.write_text(span)
        beside.replace(self.clock)  # atomic, so that readers always see a whole file

    def stop(self) -> None:
        """End the provider."""
        if self.process and self.process.stdin:
            self.process.stdin.close()
            self.process.wait(20)


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def password(name: str) -> str:
    """Return a user's password at the provider."""
    return f"what {name} knows"


def needs_dex() -> None:
    """Skip the test, with the reason, if dex is missing and cannot be built."""
    if not build.is_built(modules.known()["dex"]) and shutil.which("go") is None:
        pytest.skip("dex, the OpenID Connect provider of the tests, is built with Go: not on PATH")


def fill_in(session: requests.Session, page: requests.Response, name: str, typed: str) -> str:
    """Fill in the provider's password page; return the URL to which it redirects, empty if the page
    asks again.
    """
    found = re.search(r'<form[^>]*action="([^"]*)"', page.text)
    assert found, page.text
    target = urljoin(page.url, unescape(found[1]))
    words = {"login": name, "password": typed}
    answer = session.post(target, data=words, allow_redirects=False, timeout=30)
    while "Location" in answer.headers:
        target = urljoin(answer.url, answer.headers["Location"])
        if "/hub/" in target:
            return target
        answer = session.get(target, allow_redirects=False, timeout=30)
    return ""
