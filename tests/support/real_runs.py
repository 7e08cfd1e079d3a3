"""Real runs for tests, observed from outside: records through the manager; processes, sockets and
control groups through the kernel.

The observations and decisions of every run are recorded. `close` replays each recording; the
lifecycle must then make the same decisions again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.project import ROOT
from support.recordings import keep
from tfcluster_magic.backends.local.supervisor import replay
from tfcluster_magic.output.report import headline
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import Phase, Status, TFCluster
from tfcluster_magic.spec.names import task_name

EXAMPLES = ROOT / "examples"
PATIENCE = 240.0
"""Timeout in seconds for any event here on a busy machine."""
SECRETS = {
    "JUPYTERHUB_API_TOKEN": "of-the-hub",
    "JPY_SESSION_NAME": "of-the-kernel",
    "JUPYTER_TOKEN": "of-the-server",
    "JUPYTER_TOKEN_FILE": "/of-the-server",
}
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


class Run:
    """One launched run."""

    def __init__(self, manager: ClusterManager, record: TFCluster) -> None:
        self.manager = manager
        self.name = record.metadata.name
        self.uid = record.metadata.uid
        counts = record.spec.replicas.counts
        self.tasks = [task_name(t, i) for t in counts for i in range(counts[t])]
        self.output = Path(record.status.paths["output"])
        self.folder = Path(record.status.paths["logs"]).parent

    # -- the record --------------------------------------------------------------------------------

    @property
    def record(self) -> TFCluster:
        return self.manager.status(self.name)

    @property
    def status(self) -> Status:
        return self.record.status

    def until(
        self, true: Callable[[Status], object], what: str, within: float = PATIENCE
    ) -> Status:
        """Return the first status for which a condition holds; the status is read at least every
        0.2 s.
        """
        deadline = time.monotonic() + within
        status = self.status
        for seen in self.manager.follow(self.name):
            status = seen.status if seen is not None else status
            if true(status):
                return status
            assert time.monotonic() < deadline, f"{what}: not within {within:g} s\n{self.story()}"
        raise AssertionError(f"{what}: it never came to that\n{self.story()}")

    def until_phase(self, phase: Phase) -> Status:
        return self.until(lambda status: status.phase is phase, phase.value)

    def until_released(self) -> Status:
        """Return the status once nothing is left of the run."""
        found = self.manager.wait(self.name, PATIENCE, until=Until.RELEASED)
        return found.status

    def until_logged(self, task: str, text: str) -> None:
        """Wait until a task has printed `text`."""
        deadline = time.monotonic() + PATIENCE
        for line in self.manager.logs(self.name, [task], follow=True):
            if line is not None and text in line.text:
                return
            assert time.monotonic() < deadline, f"{task} never said {text!r}\n{self.story()}"
        raise AssertionError(f"{task} never said {text!r}\n{self.story()}")

    def log(self, task: str) -> str:
        lines = self.manager.logs(self.name, [task])
        return "\n".join(line.text for line in lines if line is not None)

    def events(self) -> list[str]:
        return [event.message for event in self.status.events]

    def healing(self) -> list[str]:
        """Return the restarts in the record."""
        return [event.message for event in self.status.events if event.reason == "Healing"]

    def story(self) -> str:
        """Return all facts, for the message of a failed test."""
        parts = [headline(self.record), *self.events()]
        parts += [f"--- {task}\n{self.log(task)[-2500:]}" for task in self.tasks]
        return "\n".join(parts)

    # -- the kernel's view -------------------------------------------------------------------------

    def processes(self, task: str | None = None) -> list[psutil.Process]:
        """Return every process of the run, or of one of its tasks."""
        mark = {"TFCLUSTER_RUN_UID": self.uid} | ({"TFCLUSTER_TASK": task} if task else {})
        return list(_carrying(mark))

    def runtime_of(self, task: str) -> psutil.Process:
        """Return the process of the task's runtime, `task.py`."""
        return next(p for p in self.processes(task) if _is_runtime(p))

    def program_of(self, task: str) -> psutil.Process:
        """Return the process of the task's program, which is a child of the runtime's process."""
        runtime = self.runtime_of(task)
        return next(p for p in self.processes(task) if p.ppid() == runtime.pid)

    def supervisor(self) -> psutil.Process:
        return psutil.Process(self.runtime_of(self.tasks[0]).ppid())

    def control_groups(self) -> list[Path]:
        # os.walk ignores a control group of another process that is removed meanwhile
        walked = os.walk("/sys/fs/cgroup")
        return [Path(at, name) for at, below, _ in walked for name in below if self.uid in name]

    def assert_nothing_left(self) -> None:
        """Check that of a released run only the record is left: no process and no control group."""
        assert self.status.released_at is not None
        assert [p.cmdline() for p in self.processes()] == []
        assert self.control_groups() == []


class Runs:
    """Runs in their own folders. They are launched in an environment like a notebook's, which has
    secrets of the hub and the kernel. `close` ends the remaining runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manager = ClusterManager(
            state_dir=str(folder / "state"),
            log_dir=str(folder / "log"),
            data_dir=str(folder / "data"),
        )
        self.environment = {
            **SECRETS,
            "TFCLUSTER_HOME": str(folder),
            "TFCLUSTER_STATE_DIR": str(folder / "state"),
            "TFCLUSTER_RECORD": "1",
        }
        self.runs: list[Run] = []
        self._sources = 0

    def launch(self, program: str | Path | Mapping[str, str] | None, *words: str, **options) -> Run:
        """Launch a file, a program's text, a folder by its files' texts, or servers (None)."""
        where = program if program is None else str(self.file(program))
        options = {"grace": 3.0, **options}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            record = self.manager.launch(where, words, **options)
        run = Run(self.manager, record)
        self.runs.append(run)
        return run

    def adopt(self, ref: str) -> Run:
        """Return a run that was launched elsewhere with this environment."""
        run = Run(self.manager, self.manager.status(ref))
        self.runs.append(run)
        return run

    def say(self, word: str) -> None:
        """Create an empty file `word` in the data folder, for which a test's program waits."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / word).touch()

    def file(self, program: str | Path | Mapping[str, str]) -> Path:
        """Return the path of a program; write it first if it is given as text."""
        if isinstance(program, Path):
            return program
        self._sources += 1
        folder = self.folder / "source" / str(self._sources)
        folder.mkdir(parents=True)
        files = {"train.py": program} if isinstance(program, str) else program
        for name, text in files.items():
            (folder / name).write_text(text)
        return folder / "train.py" if isinstance(program, str) else folder

    def close(self) -> None:
        """End every run that was not deleted; check that nothing is left and that recordings
        replay.
        """
        known = {record.metadata.uid for record in self.manager.list(all_runs=True)}
        here = [run for run in self.runs if run.uid in known]
        for run in here:
            self.manager.stop(run.name, "the test is over")
        for run in here:
            run.until_released()
            run.assert_nothing_left()
            recording = (run.folder / "decisions.jsonl").read_bytes().splitlines()
            for step, today in replay(recording):
                assert today == step.decision
            keep(run.name, recording, self.folder)


@contextmanager
def runs_in(folder: Path) -> Iterator[Runs]:
    """Yield runs below `folder`; end and check them afterwards."""
    runs = Runs(folder)
    try:
        yield runs
    finally:
        runs.close()


def _carrying(mark: Mapping[str, str]) -> Iterator[psutil.Process]:
    marks = {f"{name}={value}".encode() for name, value in mark.items()}
    for pid in psutil.pids():
        # the process has ended, or belongs to another user
        with contextlib.suppress(OSError, psutil.Error):
            if marks <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _is_runtime(process: psutil.Process) -> bool:
    return any(word.endswith("/runtime/task.py") for word in process.cmdline())


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    """Return (address, port) of all listening sockets of a process, by /proc/net/tcp and tcp6."""
    connections = process.net_connections(kind="tcp")
    return {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


def environment_of(process: psutil.Process) -> dict[str, str]:
    """Return the environment with which a process was started."""
    raw = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in raw if b"=" in entry)


def kill(process: psutil.Process) -> None:
    """End a process from outside, as the kernel or an administrator does."""
    os.kill(process.pid, 9)
