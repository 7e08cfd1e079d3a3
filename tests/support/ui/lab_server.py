"""A real JupyterLab for browser tests, in its own process, and the runs on the same machine.

It has its own folders (settings, state, workspace), and the extension as built when the tests
began, so that a rebuild changes nothing. After `clean` no run, kernel, TensorBoard or setting of a
test is left, and after `close` no process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import TFCluster

from ..polling import wait_until
from . import workspace

BIN = Path(sys.executable).parent
START = 90.0
"""Seconds until JupyterLab answers on a busy machine."""
DROPPED = ("TFCLUSTER_", "JUPYTER", "JPY_", "XDG_", "PYTEST_")


class LabServer:
    """JupyterLab on a free port of this machine, which it keeps when it restarts.

    Args:
        folder: the parent of all its folders.
        assets: folder of the built labextension.
        base_url: with slashes at both ends.
        python: the interpreter of Jupyter's environment; the tests' own by default.
        program: `jupyterlab` or `notebook`.
    """

    def __init__(
        self,
        folder: Path,
        assets: Path,
        base_url: str = "/a/b/",
        python: Path = Path(sys.executable),
        program: str = "jupyterlab",
    ) -> None:
        self.folder = folder
        self.assets = assets
        self.base_url = base_url
        self.python = python
        self.program = program
        self.token = "of-the-browser-tests"
        self.port = _free_port()
        self.root = folder / "workspace"
        self.state = folder / "state"
        self.settings = folder / "settings"
        self.limits = folder / "limits.json"  # the hub's limits for its user
        self.enabled = True  # whether the server extension is on
        self._process: subprocess.Popen[bytes] | None = None
        self.manager = ClusterManager(
            state_dir=str(self.state),
            data_dir=str(self.root / "data"),
            log_dir=str(self.root / "log"),
        )
        workspace.prepare(self.root)
        self.limits.write_text("{}")

    # -- the server --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL, with a slash at the end."""
        return f"http://127.0.0.1:{self.port}{self.base_url}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the Lab's environment; a shell with these variables sees the same runs."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
        folders = {
            "HOME": "home",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "TFCLUSTER_STATE_DIR": "state",
            "TFCLUSTER_HOME": "workspace",
            "TFCLUSTER_LIMITS": self.limits.name,
        }
        return {
            **kept,
            **{name: str(self.folder / where) for name, where in folders.items()},
            "JUPYTER_PREFER_ENV_PATH": "0",  # search the folders above before Python's own
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "LANGUAGE": "en",
        }

    def start(self) -> None:
        """Start the Lab, on its earlier port, and wait until it answers."""
        assert self._process is None, "it runs"
        (self.folder / "home").mkdir(exist_ok=True)
        named = self.folder / "config" / "jupyter_server_config.d" / "tfcluster_magic.json"
        named.parent.mkdir(parents=True, exist_ok=True)
        extensions = {"tfcluster_magic.server": self.enabled}
        named.write_text(json.dumps({"ServerApp": {"jpserver_extensions": extensions}}))
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process = self._process

        def answers() -> bool:
            assert process.poll() is None, f"JupyterLab ended:\n{self.said()}"
            return self._answers()

        wait_until(answers, lambda: f"JupyterLab:\n{self.said()}", START)

    def _command(self) -> list[str]:
        return [
            str(self.python),
            "-X",
            "faulthandler",  # for the signal in `stop`
            "-m",
            self.program,
            "--no-browser",
            "--expose-app-in-browser",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self.port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.base_url={self.base_url}",
            f"--ServerApp.root_dir={self.root}",
            "--ServerApp.terminals_enabled=False",
            f"--IdentityProvider.token={self.token}",
            f"--LabServerApp.extra_labextensions_path={self.assets}",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.news_url=None",
            *(["--allow-root"] if os.getuid() == 0 else []),
        ]

    def revive(self) -> None:
        """Start the Lab if it has been stopped."""
        if self._process is None:
            self.start()

    def stop(self) -> None:
        """End the Lab; kernels end with it, and runs continue."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            # SIGABRT makes the server print the stack of each thread
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()
            # Jupyter Server may hang with these messages if a page was still loading. Without them
            # the fault is the product's.
            known = "in _shutdown" in self.said() and "anyio/_backends" in self.said()
            assert known, f"JupyterLab did not end in 30 s:\n{self.said()}"
        finally:
            self._process = None

    @property
    def log(self) -> Path:
        """The file of the Lab's output."""
        return self.folder / "lab.log"

    def said(self) -> str:
        """Return the last lines of the Lab's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def _answers(self) -> bool:
        try:
            return bool(self.ask("GET", "api/status"))
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to `<base_url><path>` with the token; return the answer's JSON."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    # -- runs, by code and a shell -----------------------------------------------------------------

    def launch(self, program: str | None = None, *arguments: str, **options: Any) -> TFCluster:
        """Launch as code on the same machine does; `program` is a path in the workspace."""
        where = None if program is None else str(self.root / program)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                if name.startswith("TFCLUSTER_"):
                    patch.setenv(name, value)
            return self.manager.launch(where, list(arguments), **{"grace": 2.0, **options})

    def shell(self, *words: str) -> str:
        """Run `tfcluster WORDS` as a shell on the same machine does; return its output."""
        done = subprocess.run(
            [str(BIN / "tfcluster"), *words],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def delete(self, name: str) -> None:
        """Delete a run with its output once it has ended."""
        self.manager.wait(name, 180, until=Until.RELEASED)
        self.manager.delete(name, with_logs=True)

    # -- the end of a test, and of all tests -------------------------------------------------------

    def clean(self) -> None:
        """End what a test started and reset its settings."""
        if self._process is not None:
            for session in self.ask("GET", "api/sessions"):
                self._forget(f"api/sessions/{session['id']}")
            for board in self._boards():
                self._forget(f"tfcluster/api/tensorboards/{board['id']}")
        self.delete_all()
        for file in self.settings.rglob("*.jupyterlab-settings"):
            file.unlink()
        self.limits.write_text("{}")

    def delete_all(self) -> None:
        """End and delete every run with its output."""
        runs = self.manager.list(all_runs=True)
        for run in runs:
            self.manager.stop(run.metadata.name, "the test is over")
        for run in runs:
            self.delete(run.metadata.name)
        # This file keeps the used run numbers; without it, each test's runs count from 1 again.
        (self.state / "hours.json").unlink(missing_ok=True)
        shutil.rmtree(self.root / "log", ignore_errors=True)

    def _boards(self) -> list[dict[str, Any]]:
        try:
            answer = self.ask("GET", "tfcluster/api/tensorboards")
        except urllib.error.HTTPError as error:
            if error.code != 404:  # 404: the extension is off
                raise
            return []
        boards: list[dict[str, Any]] = answer["tensorboards"]
        return boards

    def _forget(self, path: str) -> None:
        try:
            self.ask("DELETE", path)
        except urllib.error.HTTPError as error:
            if error.code != 404:  # what `path` names has ended meanwhile
                raise

    def close(self) -> None:
        """End all processes, and check that none is left."""
        try:
            self.clean()
        finally:
            self.stop()
        left = self._left(patience=10.0)
        for process in left:
            process.kill()
        assert not left, f"JupyterLab left processes behind: {left}"

    def _left(self, patience: float) -> list[psutil.Process]:
        mark = f"TFCLUSTER_STATE_DIR={self.state}".encode()
        deadline = time.monotonic() + patience
        while found := [p for p in psutil.process_iter() if _carries(p.pid, mark)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)  # poll: no signal reports the end of processes that are not children
        return found


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended, or belongs to another user
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
