"""The records of all runs as folders: `<state>/runs/<cluster>/<n>/`, one for each run.

Promises that a folder with a readable `record.json` is a run and that everything else (half-made,
foreign, newer) is passed over; that the names and numbers of two launches never meet (both hold the
launch lock); and that whoever holds a run's `lock` is the only one who writes its status. It never
starts or ends a process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ... import names, paths
from ...errors import BackendUnavailable
from ...i18n import _
from ...models import Metadata, Model, Phase, Reason, Spec, Status, Stop, TFCluster, to_json
from .. import files, naming
from ..naming import expired
from . import launch_lock

if TYPE_CHECKING:
    from .hours import Book


class Record(Model, frozen=True):
    """What never changes about a run; written once, and last: with it the run exists."""

    metadata: Metadata
    spec: Spec


class RunFolder:
    """One run's folder and the files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / "record.json"
        self.status_file = path / "status.json"
        self.stop_file = path / "stop.json"
        self.task_file = path / "task.json"
        self.gpus_file = path / "gpus.json"
        self.cgroup_file = path / "cgroup"
        self.control = path / "control"
        self.lock_file = path / "lock"
        self.supervisor_log = path / "supervisor.log"
        self.decisions_file = path / "decisions.jsonl"
        self.program = path / "program"
        self.tasks = path / "tasks"

    def load(self) -> TFCluster | None:
        """The run as it is on disk, a stop request included; None when this is not a run."""
        record = files.read(self.record_file, Record)
        if record is None:
            return None
        status = files.read(self.status_file, Status) or self._unreadable()
        stop = files.read(self.stop_file, Stop)
        spec = replace(record.spec, stop=stop) if stop is not None else record.spec
        return TFCluster(metadata=record.metadata, spec=spec, status=status)

    def _unreadable(self) -> Status:
        """In place of a status that is damaged; the launch has left where the output lies."""
        described = files.read(self.task_file, dict[str, object]) or {}
        paths = {"output": str(described.get("outputDir", "")), "logs": str(self.tasks)}
        return Status(
            phase=Phase.STARTING,
            reason=Reason.STARTING,
            message=_("Its status cannot be read."),
            paths={what: where for what, where in paths.items() if where},
        )

    @property
    def is_damaged(self) -> bool:
        """Whether the status cannot be read."""
        return files.read(self.status_file, Status) is None

    def write_status(self, status: Status) -> None:
        """Replace the status; only for the holder of the run's lock. Raises OSError."""
        files.write(self.status_file, to_json(status))

    def clear(self) -> None:
        """Remove what writers that were killed left beside their files; all of them are gone."""
        beside = (".status.json.*", ".task.json.*", "tasks/*.exit.json.*")
        for left in [path for pattern in beside for path in self.path.glob(pattern)]:
            with contextlib.suppress(OSError):
                left.unlink()

    def lock(self) -> int | None:
        """Take the run's lock without waiting: its descriptor, or None while a supervisor lives.

        The lock belongs to the open file, so a child that inherits the descriptor holds it, too.
        """
        try:
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def wake(self, line: bytes = b"\n") -> bool:
        """Make the supervisor look again; False when there is none that listens."""
        try:
            fd = os.open(self.control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(fd, line)
            return True
        except OSError:
            return False  # full: it has enough to wake up for
        finally:
            os.close(fd)


@lru_cache(maxsize=1000)
def _folder(runs_dir: Path, cluster: str, run: int) -> RunFolder:
    """Names only, so that it can be kept: a watch asks for each five times a second."""
    return RunFolder(runs_dir / cluster / str(run))


class Store:
    """All runs of one user on this machine."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.runs_dir = state_dir / "runs"

    def folder(self, cluster: str, run: int) -> RunFolder:
        """The folder of one run, whether it exists or not."""
        return _folder(self.runs_dir, cluster, run)

    def numbers(self, cluster: str) -> list[int]:
        """The run numbers of a cluster that have a folder, newest first."""
        return sorted(naming.numbers(self.runs_dir / cluster), reverse=True)

    def folders(self) -> Iterator[RunFolder]:
        """Every folder that may be a run. Raises BackendUnavailable."""
        try:
            clusters = sorted(os.listdir(self.runs_dir))
        except FileNotFoundError:
            return
        except OSError as error:
            raise BackendUnavailable(
                _("cannot read the state folder {state_dir}: {why}").format(
                    state_dir=self.state_dir, why=error.strerror
                )
            ) from None
        for cluster in clusters:
            if names.is_valid(cluster):
                for run in self.numbers(cluster):
                    yield self.folder(cluster, run)

    def launch_lock(self) -> AbstractContextManager[None]:
        """One launch, deletion or sweep at a time, across all processes of the user.

        Raises:
            BackendUnavailable: another one does not come to its end.
            TFClusterError: the state folder cannot be written.
        """
        paths.private(self.runs_dir)
        return launch_lock.held(self.state_dir)

    def allocate(self, cluster: str, log_dir: Path) -> tuple[int, RunFolder]:
        """Make the folder of the next run, under the launch lock.

        A number whose logs still lie in `log_dir` is not given again. Raises OSError.
        """
        used = [0, *naming.numbers(self.runs_dir / cluster), *naming.numbers(log_dir / cluster)]
        paths.private(self.runs_dir / cluster)
        run = max(used) + 1
        while True:
            folder = self.folder(cluster, run)
            try:
                folder.path.mkdir(mode=0o700)
                return run, folder
            except FileExistsError:
                run += 1  # something foreign of that name
            except FileNotFoundError:
                paths.private(folder.path.parent)  # a launch that is undone took it, empty

    def commit(self, folder: RunFolder, metadata: Metadata, spec: Spec) -> None:
        """Make the run exist. Raises OSError."""
        files.write(folder.record_file, to_json(Record(metadata=metadata, spec=spec)), durable=True)

    def remove(self, folder: RunFolder) -> None:
        """Remove a run's folder, so that no reader ever sees half of it; its hours are kept."""
        if (cluster := folder.load()) is not None:
            self.book.put(cluster, self.uids)
        hidden = folder.path.with_name(f".removed-{folder.path.name}-{os.getpid()}")
        try:
            os.rename(folder.path, hidden)
        except OSError:
            hidden = folder.path
        files.remove_tree(hidden)
        with contextlib.suppress(OSError):
            folder.path.parent.rmdir()

    @cached_property
    def book(self) -> Book:
        """The ledger of their hours."""
        from .hours import Book  # supervisors remove nothing, and stay small

        return Book(self.state_dir)

    def uids(self) -> set[str]:
        """The runs that have a record."""
        records = (files.read(folder.record_file, Record) for folder in self.folders())
        return {record.metadata.uid for record in records if record is not None}

    def undo(self, folder: RunFolder, log_dir: Path) -> None:
        """Remove what a launch made; its output folder, while nothing is in it."""
        # First, for a sweep finds only what has a folder here.
        files.remove_empty(log_dir / folder.path.parent.name / folder.path.name)
        self.remove(folder)

    def sweep(self, log_dir: Path, now: float | None = None) -> None:
        """Remove, under the launch lock, what nobody needs: ended runs past their `keepFor`, and
        leftovers of launches and deletions that were killed half-way.
        """
        moment = time.time() if now is None else now
        for folder in list(self.folders()):
            cluster = folder.load()
            if cluster is None:
                if not folder.record_file.exists() and _is_ours(folder):
                    self.undo(folder, log_dir)
            elif expired(cluster, moment):
                self.remove(folder)
        for hidden in self.runs_dir.glob("*/.removed-*"):
            files.remove_tree(hidden)
        for left in self.runs_dir.iterdir():
            if names.is_valid(left.name):
                with contextlib.suppress(OSError):  # there are runs in it
                    left.rmdir()


def _is_ours(folder: RunFolder) -> bool:
    """Whether a folder without a record is all that a launch left, which takes its lock first."""
    if not folder.lock_file.exists():
        return not os.listdir(folder.path)
    fd = folder.lock()
    if fd is None:
        return False
    os.close(fd)
    return True
