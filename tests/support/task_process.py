"""`runtime/task.py` in tests as the backends run it: a real process with its task.json."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.polling import wait_until
from support.project import ROOT

RUNTIME = ROOT / "tfcluster_magic" / "runtime"
PATIENCE = 180.0
# A process that outlives its parent and its session, keeps the pipe open and ignores SIGTERM.
STRAY = """
import os, signal, sys, time
def stray():
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open("stray.pid", "w").write(str(os.getpid()) + "\\n")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("stray.pid") or not open("stray.pid").read().endswith("\\n"):
        time.sleep(0.01)
"""


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def carrying(mark: str) -> list[int]:
    """Return the processes whose environment has this entry."""
    folders = [f for f in Path("/proc").glob("[0-9]*") if mark in _environment(f)]
    return [int(f.name) for f in folders if alive(int(f.name))]


def _environment(folder: Path) -> list[str]:
    try:
        return (folder / "environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


class TaskProcess:
    """One task's process, with its reports, log and termination message."""

    def __init__(self, folder: Path, task: str, config: dict[str, Any]) -> None:
        self.folder = folder
        self.task = task
        self.config = config
        self.log = folder / f"{task}.stdout"
        self.exit_file = folder / f"{task}.exit.json"
        self.reports: list[dict[str, Any]] = []
        self.started = [str(RUNTIME / "task.py")]
        self._read = -1
        self._rest = b""
        self.process: subprocess.Popen[bytes]

    @property
    def command(self) -> list[str]:
        return [
            sys.executable,
            "-S",
            "-E",
            *self.started,
            self._config_file(),
            self.task,
        ]

    def _config_file(self) -> str:
        path = self.folder / f"{self.task}.task.json"
        path.write_text(json.dumps(self.config))
        return str(path)

    def start(
        self, env: dict[str, str] | None = None, prefix: list[str] | None = None, **popen: Any
    ) -> TaskProcess:
        self._read, write = os.pipe()
        own = {
            "TFCLUSTER_REPORT_FD": str(write),
            "TFCLUSTER_TERMINATION_LOG": str(self.exit_file),
            "TFCLUSTER_RUN_UID": self.config["uid"],
            "TFCLUSTER_ATTEMPT": "1",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*(prefix or []), *self.command],
                env={**os.environ, **own, **(env or {})},
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                **{"stdout": log, "stderr": subprocess.STDOUT, **popen},
            )
        os.close(write)
        return self

    def hear(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return the reports so far, after waiting at most this long for another."""
        while select.select([self._read], [], [], seconds)[0]:
            data = os.read(self._read, 65536)
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            assert all(len(line) < 4096 for line in lines)
            self.reports += [json.loads(line) for line in lines]
            seconds = 0.0
        return self.reports

    def event(self, name: str) -> dict[str, Any]:
        """Return the first report of this event."""

        def found() -> dict[str, Any] | None:
            return next((r for r in self.hear(0.05) if r["event"] == name), None)

        report: dict[str, Any] = wait_until(found, f"the report {name!r}")
        return report

    def wait(self) -> dict[str, Any]:
        """Wait for the end of the process, and return the termination message."""
        self.process.wait(PATIENCE)
        self.hear()
        message: dict[str, Any] = json.loads(self.exit_file.read_text())
        return message

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        """End all processes of the task."""
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait()
            os.close(self._read)
        for pid in carrying(f"TFCLUSTER_RUN_UID={self.config['uid']}"):
            if pid != os.getpid():
                os.kill(pid, 9)


class Run:
    """A run of TFCluster in a folder, with methods that make programs and tasks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.code = folder / "program"
        self.code.mkdir()
        self.tasks: list[TaskProcess] = []
        self.config: dict[str, Any] = {
            "version": 1,
            "cluster": "digits",
            "run": 2,
            "name": "digits-2",
            "uid": f"{folder.name}-{os.getpid()}",
            "mode": "between-graph",
            "server": "native",
            "counts": {"worker": 2, "ps": 1},
            "addresses": {
                "ps": ["127.0.0.1:4001"],
                "worker": ["127.0.0.1:4002", "127.0.0.1:4003"],
            },
            "program": None,
            "env": {},
            "threads": {},
            "dataDir": str(folder / "data"),
            "outputDir": str(self.output),
            "resumeFrom": None,
            "grace": 10.0,
            "loopback": None,
        }

    def program(self, text: str, name: str = "train.py", **more: Any) -> Run:
        (self.code / name).write_text(text)
        program = {"dir": str(self.code), "entrypoint": name, "arguments": [], "flags": []}
        self.config["program"] = {**program, "serves": False, "workingDir": None, **more}
        return self

    def stray(self) -> int:
        """Return the process that STRAY's `stray()` left behind."""
        return int(wait_until((self.output / "stray.pid").read_text, "the stray"))

    def task(self, name: str = "worker-0") -> TaskProcess:
        self.tasks.append(TaskProcess(self.folder, name, self.config))
        return self.tasks[-1]


@contextmanager
def new_run(folder: Path) -> Iterator[Run]:
    """Yield a new run in `folder`; end the processes of all its tasks afterwards."""
    run = Run(folder)
    try:
        yield run
    finally:
        for task in run.tasks:
            task.end()
