"""The target of attacks: a hub as `make run` opens it, and runs in their own state folders.

All files are below one folder, all servers listen only on loopback, and `close` ends all processes.
The hub has two users: its owner, who has a notebook, and `guest`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import requests
from support.hub.make_run import OWNER, PASSWORD, Hub
from support.hub.visitor import Visitor
from support.polling import wait_until
from support.task_process import carrying

GUEST = "guest"
TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:\s+.*\n)*.*\n.*\n")
"""A traceback in a log, with the lines after it, which usually name the request."""
OURS = "/tfcluster_magic/"
"""The folder of the product's code: a traceback that this code causes has the path of one of its
files. Other tracebacks are ignored, because JupyterHub logs one whenever it answers 400.
"""
PATIENCE = 120.0
"""Timeout in seconds of each wait here, long enough for a busy machine."""


class Target:
    """The hub and the state folders that are attacked; the hub is started when it is first needed.

    Args:
        folder: the parent of the folders of the hub and of the runs.
    """

    def __init__(self, folder: Path, hub: Hub | None = None) -> None:
        self.folder = folder
        self._hub = hub
        self._made = ExitStack()
        self._states = 0

    def close(self) -> None:
        """End everything that was started."""
        self._made.close()

    # -- the hub -----------------------------------------------------------------------------------

    @cached_property
    def hub(self) -> Hub:
        """A hub whose owner has set the password PASSWORD."""
        hub = self._hub
        if hub is None:
            where = self.folder / "hub"
            where.mkdir()
            hub = Hub(where)
            self._made.callback(hub.close)
            hub.start()
        if "/set-password?" in hub.told:
            # If a test has used the link before, it is refused; the owner then has a password
            # already.
            hub.visitor().set_password(hub.link)
        return hub

    @property
    def url(self) -> str:
        """The hub's address, with a trailing slash."""
        return f"{self.hub.url}/"

    @cached_property
    def owner(self) -> Visitor:
        """The owner, an administrator, with a running notebook."""
        visitor = self.signed_in(OWNER)
        visitor.spawn()
        return visitor

    @property
    def own(self) -> str:
        """The path of the owner's notebook, without leading and trailing slashes."""
        return f"user/{self.owner.name}"

    @cached_property
    def guest(self) -> Visitor:
        """A user with an account but without rights or a notebook."""
        return self.newcomer(GUEST)

    def signed_in(self, name: str, password: str = PASSWORD) -> Visitor:
        """Return the user called `name`, signed in with a new browser."""
        visitor = Visitor(self.url)
        visitor.sign_in(name, password)
        return visitor

    def newcomer(self, name: str, password: str = PASSWORD) -> Visitor:
        """Invite a user, and return the user with a signed-in browser."""
        link = self.hub.accounts("invite", name).strip()
        answer = self.hub.visitor().set_password(link, password)
        assert answer.status_code == 302, answer.text
        return self.signed_in(name, password)

    def signed_in_again(self) -> Visitor:
        """Return the owner in another browser, with the notebook open."""
        visitor = self.signed_in(OWNER)
        answer = visitor.get(f"{self.own}/lab")
        assert answer.status_code == 200, f"{answer.status_code} {answer.url}"
        return visitor

    def recover(self) -> None:
        """Wait until hub and notebook are back after a kill; start them if they stay down."""
        hub = self.hub
        assert hub.process is not None
        with suppress(subprocess.TimeoutExpired):
            # If the hub was not killed, this raises TimeoutExpired, and the hub is not started. If
            # it was killed, its notebook has ended too.
            hub.process.wait(0.5)
            hub.process = None
            hub.start()
        self.until(self._serves, "the owner has a notebook again")

    def _serves(self) -> bool:
        try:
            self.owner.spawn()
            where = f"{self.own}/tfcluster/api/clusters"
            return bool(self.owner.get(where).status_code == 200)
        except (AssertionError, requests.RequestException, KeyError):
            return False

    def stranger(self) -> Visitor:
        """Return a visitor who has not signed in, on the sign-in page."""
        visitor = Visitor(self.url)
        visitor.get("hub/login")
        return visitor

    @property
    def doors(self) -> dict[str, tuple[int, str]]:
        """Return, for each server, its HTTP port and the path on it that belongs to the owner."""
        hub_port, _proxy, console = json.loads((self.hub.state / "hub" / "ports.json").read_text())
        return {
            "front": (self.hub.port, f"/{self.own}"),
            "hub": (hub_port, "/hub"),
            "notebook": (self._notebook_port(), f"/{self.own}"),
            "console": (console, "/services/admin"),
        }

    def _notebook_port(self) -> int:
        routes = self.owner.ask("GET", "hub/api/proxy").json()
        return int(urlsplit(routes[f"/{self.own}/"]["target"]).port or 0)

    def listening(self, door: str) -> psutil.Process:
        """Return the process behind a port."""
        port = self.doors[door][0]
        for process in self.hub.processes(""):
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN and one.laddr.port == port:
                    return process
        raise AssertionError(f"nobody listens at the door {door}")

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Check that during the block no server of the hub logs a traceback, and that all of them
        answer.
        """
        log = self.hub.state / "hub" / "hub.log"
        before = log.stat().st_size
        yield
        answer = self.owner.ask("GET", "hub/api/user")
        assert answer.status_code == 200, f"the hub does not serve its owner: {answer.status_code}"
        answer = self.owner.get(f"{self.own}/tfcluster/api/clusters")
        assert answer.status_code == 200, f"the notebook does not answer: {answer.status_code}"
        with log.open("rb") as file:
            file.seek(before)
            said = file.read().decode(errors="replace")
        found = [one for one in TRACEBACK.findall(said) if OURS in one]
        assert not found, f"a server logged a traceback of ours: {found[0][-1500:]}"

    # -- runs --------------------------------------------------------------------------------------

    @contextmanager
    def state(self) -> Iterator[Path]:
        """Make a folder with a state folder and a home, and point the environment variables to
        them.

        At the end, check that no process uses the state folder any more.
        """
        self._states += 1
        folder = self.folder / f"state-{self._states}"
        own = {
            "HOME": folder / "home",
            "TFCLUSTER_HOME": folder / "tfcluster",
            "TFCLUSTER_STATE_DIR": folder / "state",
        }
        for made in (folder, own["HOME"], own["TFCLUSTER_HOME"]):
            made.mkdir()
        before = {name: os.environ.get(name) for name in own}
        os.environ.update({name: str(path) for name, path in own.items()})
        try:
            yield folder
            self.until(lambda: not self._left(folder), "no process of the runs is left")
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
            for pid in self._left(folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _left(self, folder: Path) -> list[int]:
        found = carrying(f"TFCLUSTER_STATE_DIR={folder / 'state'}")
        return [pid for pid in found if pid != os.getpid()]

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until a condition is true."""
        wait_until(true, what, PATIENCE)
