"""A real `make run` for tests, started without make: hub, proxy and notebooks, and their visitors.

It has a free port and its own folders (state, workspace, Jupyter's settings) below one folder.
`close` ends all its processes. `Visitor` is a browser without a page: cookies, forms and the hub's
API.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tfcluster_magic.hub.auth.system_accounts import owner
from tfcluster_magic.runs.manager import ClusterManager
from tfcluster_magic.spec import TFCluster

from ..polling import wait_until
from . import ports
from .visitor import BROWSER_ACCEPT

ROOT = Path(__file__).parents[3]
OWNER = owner()
PASSWORD = "eight letters"
START = 150.0
"""Seconds until the hub answers on a busy machine."""
DROPPED = ("TFCLUSTER_", "JUPYTER", "JPY_", "XDG_", "PYTEST_", "DISPLAY", "WAYLAND_", "OIDC_")
LAB_CONFIG = """\
c.LabApp.expose_app_in_browser = True
c.ServerApp.terminals_enabled = {terminals}
"""


class Hub:
    """The processes that `make run` starts.

    Args:
        folder: the parent of all its folders.
        base_url: with slashes at both ends.
        environment: further variables of `make run`.
        terminals: whether notebooks have terminals.
    """

    prefix: Sequence[str] = ()
    """A command that starts the hub: the command of the hub is appended to it as arguments."""

    def __init__(
        self,
        folder: Path,
        base_url: str = "/",
        environment: dict[str, str] | None = None,
        *,
        terminals: bool = False,
    ) -> None:
        self.folder = folder
        self.base_url = base_url
        (self.port,) = ports.free(1)
        self.root = folder / "workspace"
        self.state = folder / "state"
        self._more = environment or {}
        self.process: subprocess.Popen[str] | None = None
        self.told = ""
        self.manager = ClusterManager(
            state_dir=str(self.state),
            data_dir=str(self.root / "data"),
            log_dir=str(self.root / "log"),
        )
        config = folder / "config" / "jupyter_lab_config.py"
        config.parent.mkdir(parents=True)
        config.write_text(LAB_CONFIG.format(terminals=terminals))

    @property
    def url(self) -> str:
        """The URL, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}{self.base_url.rstrip('/')}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the hub's environment; a shell with these variables sees the same runs."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
        folders = {
            "HOME": "home",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "TFCLUSTER_STATE_DIR": "state",
        }
        return {
            **kept,
            **{name: str(self.folder / where) for name, where in folders.items()},
            "LANGUAGE": "en",
            "TFCLUSTER_LANGUAGE": "en",
            **self._more,
        }

    # -- the process -------------------------------------------------------------------------------

    def start(self) -> str:
        """Start the hub and wait until it prints that it is ready; return its output."""
        assert self.process is None, "it runs"
        (self.folder / "home").mkdir(exist_ok=True)
        out = self.folder / "told.txt"
        with out.open("w") as told:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, str(ROOT / "tools/hub.py"), *self._words()],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                text=True,
            )
        self.until(
            lambda: "End: Ctrl-C" in out.read_text() or self.process.poll() is not None,
            "ready",
            START,
        )
        self.told = out.read_text()
        assert "End: Ctrl-C" in self.told, f"{self.told}\n{self.said()}"
        return self.told

    def _words(self) -> list[str]:
        words = ["--workspace", str(self.root), "--port", str(self.port)]
        return [*words, "--base-url", self.base_url]

    @property
    def link(self) -> str:
        """The link for the owner that the hub printed when it started."""
        found = re.search(r"http://\S+/hub/set-password\?code=\S+", self.told)
        assert found, f"no link:\n{self.told}"
        return found.group()

    def end(self, number: signal.Signals = signal.SIGINT) -> str:
        """End the hub as Ctrl-C does; return all its output."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        told = (self.folder / "told.txt").read_text()
        assert code == 0, f"exit code {code}:\n{told}"
        return told

    def processes(self, of: str) -> list[psutil.Process]:
        """Return the hub's processes with this text in their command line."""
        mark = f"TFCLUSTER_STATE_DIR={self.state}".encode()
        return [p for p in psutil.process_iter() if _carries(p.pid, mark) and of in _command(p)]

    def one(self, of: str) -> psutil.Process:
        """Return the hub's only process with this text in the command line."""
        found = self.processes(of)
        assert len(found) == 1, found
        return found[0]

    def close(self) -> None:
        """End all processes, and check that none is left."""
        if self.process is not None:
            self.end()
        for run in self.manager.list(all_runs=True):
            self.manager.stop(run.metadata.name, "the test is over")
        deadline = time.monotonic() + 90
        while (left := self.processes("")) and time.monotonic() < deadline:
            time.sleep(0.05)  # poll: no signal reports the end of processes that are not children
        for process in left:
            process.kill()
        assert not left, f"the hub left processes behind: {left}\n{self.said()}"

    def said(self) -> str:
        """Return the end of the hub's log."""
        log = self.state / "hub" / "hub.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-40:]) if log.exists() else ""

    def until(self, condition: Callable[[], object], what: str, within: float = 120.0) -> None:
        """Wait until a condition holds."""
        wait_until(condition, lambda: f"{what}\n{self.said()}", within)

    def launch(self, program: str, name: str, **options: Any) -> TFCluster:
        """Write a program's text to a file and launch it, as a shell on the same machine does."""
        file = self.folder / f"{name}.py"
        file.write_text(program)
        with pytest.MonkeyPatch.context() as patch:
            for key, value in {**self.environment, "TFCLUSTER_HOME": str(self.root)}.items():
                if key.startswith("TFCLUSTER_"):
                    patch.setenv(key, value)
            return self.manager.launch(str(file), [], name=name, grace=2.0, **options)

    # -- accounts ----------------------------------------------------------------------------------

    def accounts(self, *words: str) -> str:
        """Run `python -m tfcluster_magic.hub accounts WORDS`; return its output. Users who are
        invited here need no system account.
        """
        more = ["--without-notebook"] if words[0] == "invite" else []
        done = subprocess.run(
            [sys.executable, "-m", "tfcluster_magic.hub", "accounts", *words, *more],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + (done.stderr if done.returncode else "")

    def visitor(self, name: str | None = None, password: str = PASSWORD) -> Visitor:
        """Return a visitor with their own browser, signed in if there is a name."""
        visitor = Visitor(self)
        if name is not None:
            answer = visitor.sign_in(name, password)
            assert answer.status_code == 302, answer.text
        return visitor

    def owner_signs_in(self) -> Visitor:
        """Open the link that the hub printed at its first start, and set the owner's password to
        PASSWORD; return the owner, who is then signed in.
        """
        visitor = Visitor(self)
        assert visitor.set_password(self.link).status_code == 302
        return visitor


class Visitor:
    """The cookies of a browser, and its requests to a hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.session = requests.Session()
        self.session.headers.update({"Accept": BROWSER_ACCEPT, "Sec-Fetch-Mode": "navigate"})

    def get(self, path: str, **words: Any) -> requests.Response:
        """Get a page of the hub, by its path below /hub or by its URL."""
        return self.session.get(self._at(path), timeout=120, **words)

    def submit(self, path: str, form: dict[str, str], page: str = "") -> requests.Response:
        """Fill in a form at `page` (or `path` without it) and send it. Redirects (302) are not
        followed.
        """
        seen = self.get(page or path)
        found = re.search(r'name="_xsrf" value="([^"]*)"', seen.text)
        assert found, seen.text
        words = {**form, "_xsrf": found.group(1)}
        return self.session.post(self._at(path), data=words, timeout=120, allow_redirects=False)

    def sign_in(self, name: str, password: str) -> requests.Response:
        """Sign in on the hub's own page."""
        return self.submit("login", {"username": name, "password": password})

    def set_password(
        self, link: str, password: str = PASSWORD, again: str | None = None
    ) -> requests.Response:
        """Set a password on the page to which a link with a code leads."""
        code = link.partition("code=")[2]
        form = {"code": code, "password": password, "again": again or password}
        return self.submit("set-password", form, link)

    def api(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Call the hub's API as its own pages do."""
        token = re.search(r'xsrf_token: "([^"]*)"', self.get("home").text)
        headers = {"X-XSRFToken": token.group(1) if token else "", "Sec-Fetch-Mode": "cors"}
        return self.session.request(
            method, self._at(f"api/{path}"), json=body, headers=headers, timeout=120
        )

    def notebook(self) -> str:
        """Start the visitor's notebook; return its address, without a slash at the end."""
        name = OWNER
        where = f"{self.hub.url}/user/{name}"
        self.get("spawn")

        def ready() -> bool:
            servers = self.api("GET", f"users/{name}").json()["servers"]
            return bool(servers.get("", {}).get("ready"))

        self.hub.until(ready, f"a notebook of {name}", 180)
        assert self.get(f"{where}/lab").status_code == 200
        return where

    @property
    def signed_in(self) -> bool:
        """Return whether the hub recognises the visitor."""
        return self.get("home", allow_redirects=False).status_code == 200

    def _at(self, path: str) -> str:
        return path if path.startswith("http") else f"{self.hub.url}/hub/{path}"


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
