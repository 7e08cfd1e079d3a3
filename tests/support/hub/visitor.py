"""A user's browser without a screen: cookies, XSRF tokens, and the requests of a page."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import urlsplit

import requests
import websocket

from ..polling import wait_until

READY = 150.0
"""Seconds until a notebook answers on a busy machine."""


BROWSER_ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
"""The header Accept with which a browser requests a page."""


class Visitor:
    """A user's browser for one hub; `url` is the hub's base URL, with a slash at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = ""
        self.session = requests.Session()
        self.session.headers["Accept"] = BROWSER_ACCEPT

    def get(self, path: str, **words: Any) -> requests.Response:
        """Send a GET below the base URL."""
        return self.session.get(self.url + path, timeout=120, **words)

    def xsrf(self, path: str) -> str:
        """Return the XSRF token for a path, from the cookie with the longest path that matches."""
        asked = urlsplit(self.url + path).path
        found = [one for one in self.session.cookies if one.name == "_xsrf"]
        fits = [one for one in found if asked.startswith(one.path)]
        return str(max(fits, key=lambda one: len(one.path)).value) if fits else ""

    def ask(self, method: str, path: str, **words: Any) -> requests.Response:
        """Send a request as a page's script does."""
        headers = {"X-XSRFToken": self.xsrf(path), **words.pop("headers", {})}
        return self.session.request(method, self.url + path, headers=headers, timeout=120, **words)

    def sign_in(self, name: str, password: str, following: str = "hub/home") -> requests.Response:
        """Sign in on the hub's own page."""
        self.get("hub/login")
        typed = {"username": name, "password": password, "_xsrf": self.xsrf("hub/login")}
        target = urlsplit(self.url).path + following
        answer = self.session.post(
            f"{self.url}hub/login", params={"next": target}, data=typed, timeout=120
        )
        assert answer.status_code == 200, f"{answer.status_code} {answer.url}"
        self.name = name.lower()
        return answer

    def spawn(self, server: str = "") -> str:
        """Start a notebook and sign in there; return its path below the base URL, without a final
        slash.
        """
        where = f"hub/api/users/{self.name}/server" + (f"s/{server}" if server else "")
        answer = self.ask("POST", where)
        # 400: the notebook is already running
        assert answer.status_code in {201, 202, 400}, answer.text
        wait_until(
            lambda: (self.servers().get(server) or {}).get("ready"),
            f"a notebook of {self.name}",
            READY,
            every=0.1,
        )
        own = f"user/{self.name}" + (f"/{server}" if server else "")
        answer = self.get(f"{own}/lab")
        assert answer.status_code == 200, f"{answer.status_code} {answer.url}"
        return own

    def servers(self) -> dict[str, Any]:
        """Return the user's notebooks from the hub."""
        answer = self.ask("GET", f"hub/api/users/{self.name}")
        answer.raise_for_status()
        return dict(answer.json()["servers"])

    def socket(self, path: str, **words: Any) -> websocket.WebSocket:
        """Open a websocket as a page does."""
        parts = urlsplit(self.url + path)
        fits = [one for one in self.session.cookies if parts.path.startswith(one.path)]
        return websocket.create_connection(
            (self.url + path).replace("http", "ws", 1),
            cookie="; ".join(f"{one.name}={one.value}" for one in fits),
            origin=words.pop("origin", f"{parts.scheme}://{parts.netloc}"),
            timeout=120,
            **words,
        )

    def run(self, own: str, code: str) -> str:
        """Run code in a new kernel of a notebook, and end the kernel; return the output with
        errors.
        """
        kernel = self.kernel(own)
        said = self.execute(own, kernel, code)
        self.ask("DELETE", f"{own}/api/kernels/{kernel}")
        return said

    def kernel(self, own: str) -> str:
        """Start a kernel of a notebook."""
        answer = self.ask("POST", f"{own}/api/kernels", json={"name": "python3"})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def execute(self, own: str, kernel: str, code: str) -> str:
        """Run code in a running kernel; return the output with errors."""
        message, out = uuid.uuid4().hex, []
        channel = self.socket(f"{own}/api/kernels/{kernel}/channels")
        asked = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        header = {"msg_id": message, "msg_type": "execute_request", "session": message}
        header |= {"username": self.name, "version": "5.3", "date": ""}
        whole = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell"}
        channel.send(json.dumps({**whole, "content": {**asked, "user_expressions": {}}}))
        while True:
            said = json.loads(channel.recv())
            if said["parent_header"].get("msg_id") != message:
                continue
            content = said["content"]
            if said["msg_type"] == "stream":
                out.append(content["text"])
            elif said["msg_type"] == "error":
                out.append(f"{content['ename']}: {content['evalue']}\n")
            elif content.get("execution_state") == "idle":
                break
        channel.close()
        return "".join(out)
