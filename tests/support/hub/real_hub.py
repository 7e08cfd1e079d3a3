"""A real hub for tests: the product's configuration, its proxy, and notebooks, as processes.

It has its own folders and ports, and users with passwords; `close` leaves nothing. With `several`,
users without system accounts have notebooks. These run under the tests' uid, each with its own
home; `SEVERAL` is the configuration for this.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import requests

from tfcluster_magic.hub.auth import FILE, accounts
from tfcluster_magic.hub.auth.accounts import AccountStore
from tfcluster_magic.hub.embedded import proxy_command

from ..polling import wait_until
from . import ports
from .visitor import Visitor

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "hub_config" / "jupyterhub_config.py"
PROXY_LINE = re.compile(r"\S+ \[ConfigProxy\]|[ \t]+(at|errno|code|syscall|address|port)\b|\}$")
START = 180.0
"""Seconds until the hub answers on a busy machine."""
DROPPED = ("TFCLUSTER_", "JUPYTER", "JPY_", "XDG_", "PYTEST_", "CONFIGPROXY_", "OIDC_")
SEVERAL = """
from jupyterhub.spawner import SimpleLocalProcessSpawner
from tfcluster_magic.hub import notebook
from tfcluster_magic.hub.local_servers import QueuedSpawner
class Several(QueuedSpawner, SimpleLocalProcessSpawner):
    pass
c.JupyterHub.spawner_class = Several
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.SimpleLocalProcessSpawner.ip = "127.0.0.1"
c.SimpleLocalProcessSpawner.cmd = notebook.command()
c.SimpleLocalProcessSpawner.args = ["--workspace=~/tfcluster"]
c.SimpleLocalProcessSpawner.term_timeout = 8
"""


class RealHub:
    """A hub on free ports of this machine, which it keeps when it restarts.

    Args:
        folder: the parent of all its folders.
        people: the users with an account; the password of each is `password(name)`.
        environ: further variables of the hub.
        more: lines of configuration after the product's.
        several: true if all users have notebooks, false if only the user who runs the tests has
            one.
    """

    def __init__(
        self,
        folder: Path,
        people: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        more: str = "",
        base_url: str = "/tf/",
        several: bool = True,
    ) -> None:
        self.folder, self.base_url = folder, base_url
        self.state, self.homes, self.log = folder / "hub", folder / "homes", folder / "hub.log"
        for made in (self.state, self.homes, folder / "home"):
            made.mkdir(parents=True, mode=0o700)
        self.port, self.hub_port, self.proxy_port = ports.free(3)
        self.url = f"http://127.0.0.1:{self.port}{base_url}"
        self.environ = dict(environ or {})
        self.config = folder / "config.py"
        text = SEVERAL.format(homes=str(self.homes)) if several else ""
        self.config.write_text(f"load_subconfig({str(CONFIG)!r})\n{text}\n{more}\n")
        self.process: subprocess.Popen[bytes] | None = None
        self._seen: dict[int, psutil.Process] = {}
        store = AccountStore(self.state / FILE)
        for name in people:
            store.redeem(store.invite(name), accounts.hash_password(password(name)))

    def start(self) -> None:
        """Start the hub, and wait until it answers through its proxy."""
        kept = {key: text for key, text in os.environ.items() if not key.startswith(DROPPED)}
        env = {
            **kept,
            "HOME": str(self.folder / "home"),
            "TFCLUSTER_LANGUAGE": "en",
            "TFCLUSTER_HOME": str(self.folder / "home" / "tfcluster"),
            "TFCLUSTER_STATE_DIR": str(self.folder / "state"),
            "TFCLUSTER_HUB_STATE": str(self.state),
            "TFCLUSTER_HUB_PORT": str(self.port),
            "TFCLUSTER_HUB_HUB_PORT": str(self.hub_port),
            "TFCLUSTER_HUB_PROXY_PORT": str(self.proxy_port),
            "TFCLUSTER_HUB_BASE_URL": self.base_url,
            "TFCLUSTER_HUB_PROXY": shlex.join(proxy_command()),
            "JUPYTERHUB_ACTIVITY_INTERVAL": "2",
            **self.environ,
        }
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.config)],
                cwd=self.state,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        process = self.process

        def answers() -> bool:
            assert process.poll() is None, f"the hub ended:\n{self.tail()}"
            return self.answers()

        wait_until(answers, lambda: f"a hub:\n{self.tail()}", START, every=0.1)

    def answers(self) -> bool:
        """Return whether the hub answers through its proxy."""
        try:
            return requests.get(f"{self.url}hub/health", timeout=20).status_code == 200
        except requests.RequestException:
            return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the hub with a signal and return its exit status; its notebooks may continue."""
        assert self.process
        self.processes()
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        """End all processes."""
        if self.process:
            self.stop()
        left = [one for one in self._seen.values() if one.is_running()]
        for one in left:
            one.kill()
        psutil.wait_procs(left, timeout=120)

    def processes(self) -> list[psutil.Process]:
        """Return the processes below the hub: proxy, notebooks, services."""
        if self.process and self.process.poll() is None:
            found = psutil.Process(self.process.pid).children(recursive=True)
            self._seen.update({one.pid: one for one in found})
        return [one for one in self._seen.values() if one.is_running()]

    def visitor(self, name: str) -> Visitor:
        """Return a signed-in visitor."""
        made = Visitor(self.url)
        made.sign_in(name, password(name))
        return made

    def tail(self, lines: int = 40) -> str:
        """Return the end of the hub's log without the proxy's lines: each request adds ten of them
        while the hub starts.
        """
        said = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in said if not PROXY_LINE.match(line)][-lines:])


def password(name: str) -> str:
    """Return a user's password in the tests."""
    return f"the password of {name}"
