"""Records of all runs as folders, `<state>/runs/<cluster>/<n>/`, and the launch lock.

A folder with a `record.json` is a run; the run counts as damaged if the record is unreadable. All
other folders (incomplete or foreign) are ignored. Every launch, every deletion, and every removal
of expired runs (`Store.sweep`) holds the launch lock, so that two launches never get the same name
or number. Waiting for this lock is bounded, and the kernel releases the lock when its holder dies.
Only the holder of a run's `lock` writes the run's status.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, astuple, replace

from ... import paths, state_files
from ...errors import BackendUnavailable, TFClusterError
from ...i18n import _
from ...lifecycle import messages
from ...spec import (
    Annotations,
    Message,
    Metadata,
    Model,
    Note,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    Stop,
    TaskType,
    TFCluster,
    names,
    to_json,
)
from .. import run_names
from ..run_names import is_record_expired
from . import processes

if TYPE_CHECKING:
    from .hours_file import HoursFile

LOCK_TIMEOUT = 60.0
"""Maximum seconds that a launch waits for the lock; other launches hold the lock for a fraction of
a second.
"""


@contextlib.contextmanager
def hold_launch_lock(state_dir: Path) -> Iterator[None]:
    """Hold the launch lock of a state folder.

    Raises:
        BackendUnavailable: another process has held the lock for LOCK_TIMEOUT seconds.
        TFClusterError: the state folder cannot be written.
    """
    try:
        fd = state_files.lock_file(state_dir / "launch.lock")
    except OSError as error:
        raise TFClusterError(
            _(
                "cannot write in the state folder {state_dir}: {why}; "
                "make it writable, or name another folder in TFCLUSTER_STATE_DIR"
            ).format(state_dir=state_dir, why=error.strerror)
        ) from None
    try:
        _take_lock(fd, LOCK_TIMEOUT, state_dir)
        yield
    finally:
        os.close(fd)


def _take_lock(fd: int, seconds: float, state_dir: Path) -> None:
    """Take the lock, and write our pid into it for processes that wait."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                pid = os.pread(fd, 20, 0).decode("ascii", "replace") or "unknown"
                raise BackendUnavailable(
                    _(
                        "another launch or deletion (process {pid}) has not ended for {seconds:g} "
                        "s: find out what it waits for or end it, then try again"
                    ).format(pid=pid, seconds=seconds)
                ) from None
            time.sleep(0.01)  # the kernel's own wait for a lock has no timeout
        except OSError as error:
            raise TFClusterError(
                _(
                    "the state folder {state_dir} is on a volume without locks ({why}): "
                    "name another folder in TFCLUSTER_STATE_DIR"
                ).format(state_dir=state_dir, why=error.strerror)
            ) from None
    with contextlib.suppress(OSError):  # the disk is full, and the pid is not needed
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)


# -- records ---------------------------------------------------------------------------------------

SPARES = 4
"""Number of files with reserved space, one for each file that a run must write on a full disk: the
stop request, and the status at the stop, at the end, and after the clean-up.
"""
MOST_TASKS = 100_000
_UID_PREFIX = "uid-"
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


class Record(Model, frozen=True):
    """The constant facts of a run. The record is written once, as the last step of a launch. From
    then on the run exists.
    """

    metadata: Metadata
    spec: Spec


class RunFolder:
    """One run's folder and the files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / "record.json"
        self.status_file = path / "status.json"
        self.stop_file = path / "stop.json"
        self.annotations_file = path / "annotations.json"
        self.note_file = path / "note.json"  # notes written by an earlier version
        self.task_file = path / "task.json"
        self.gpus_file = path / "gpus.json"
        self.cgroup_file = path / "cgroup"
        self.control = path / "control"
        self.lock_file = path / "lock"
        self.supervisor_log = path / "supervisor.log"
        self.decisions_file = path / "decisions.jsonl"
        self.program = path / "program"
        self.tasks = path / "tasks"
        self.spares = tuple(path / f"spare-{number}" for number in range(SPARES))

    def load(self) -> TFCluster | None:
        """Return the run on disk, with any stop request; None if this is not a run. A run with an
        unreadable record or status has the reason RecordDamaged.
        """
        try:
            record = self.load_record()
        except FileNotFoundError:
            return None
        except state_files.Unreadable as why:
            return self._damaged(why)
        status = self._status() or self._unknown_status(
            state_files.read(self.task_file, dict[str, Any])
        )
        stop = state_files.read(self.stop_file, Stop)
        spec = replace(record.spec, stop=stop) if stop is not None else record.spec
        metadata = replace(record.metadata, **asdict(self.load_annotations()))
        return TFCluster(metadata=metadata, spec=spec, status=status)

    def load_annotations(self) -> Annotations:
        """Return the annotations of the run; empty if unreadable."""
        found = state_files.read(self.annotations_file, Annotations)
        return found or Annotations(note=state_files.read(self.note_file, Note) or "")

    def load_record(self) -> Record:
        """Return the record, which never changes. Raises FileNotFoundError, Unreadable."""
        record = state_files.load(self.record_file, Record)
        self._check(record)
        return record

    def _check(self, record: Record) -> None:
        """Raise Unreadable if the record belongs to another run, or has a uid that could act as a
        glob pattern.
        """
        told, place = record.metadata, self.path.parts[-2:]
        name = names.run_name(told.cluster, told.run)
        if (told.cluster, str(told.run)) != place or told.name != name:
            raise state_files.Unreadable(
                _("it is the record of {name}").format(name=told.name[:64])
            )
        if not _UID.fullmatch(told.uid):
            raise state_files.Unreadable(_("its uid is not valid"))

    def _status(self) -> Status | None:
        """Return the status, with the current path of the run's logs; None if the status is
        unreadable, invalid, or names the output folder of another run.
        """
        status = state_files.read(self.status_file, Status)
        if status is None or not _is_sound(status):
            return None
        output = status.paths.get("output", "")
        if output and not self._is_own_output(output):
            return None
        return replace(status, paths={**status.paths, "logs": str(self.tasks)})

    def _is_own_output(self, output: str) -> bool:
        """Return whether an output folder belongs to this run. `delete --with-logs` must not remove
        any other folder.
        """
        is_own = output.startswith("/") and output.split("/")[-2:] == list(self.path.parts[-2:])
        return is_own and "\0" not in output

    def _unknown_status(self, described: dict[str, Any] | None) -> Status:
        """Return a status that is shown instead of a damaged one. The output folder comes from
        `described`, the content of the task file that the launch wrote.
        """
        told = (described or {}).get("outputDir", "")
        output = told if isinstance(told, str) and self._is_own_output(told) else ""
        paths = {"output": output, "logs": str(self.tasks)}
        damaged = Message("StatusDamaged", {"path": str(self.status_file)})
        status = Status(
            phase=Phase.STARTING,
            reason=Reason.RECORD_DAMAGED,
            paths={what: where for what, where in paths.items() if where},
        )
        return messages.with_messages(status, damaged)

    def _damaged(self, why: state_files.Unreadable) -> TFCluster:
        """Return a run with an unreadable record, assembled from its other files."""
        cluster, run = self._place
        status = self._status() or self._unknown_status(
            state_files.read(self.task_file, dict[str, Any])
        )
        desired = {t: c.desired for t, c in status.counts.items()} or self._counts_by_log()
        found = _stat_or_none(self.path)
        metadata = Metadata(
            name=names.run_name(cluster, run),
            cluster=cluster,
            run=run,
            uid=next(iter(self.uids()), f"damaged-{found.st_ino if found else 0}"),
            created_at=found.st_mtime if found else 0.0,
            **asdict(self.load_annotations()),
        )
        return TFCluster(
            metadata=metadata,
            spec=Spec(
                replicas=ReplicaSet(**{"worker": Replicas(count=0), **_replicas(desired)}),
                stop=state_files.read(self.stop_file, Stop),
            ),
            status=self._with_damage(status, why),
        )

    def with_record_problem(self, status: Status) -> Status:
        """Add the problems of the record to a status."""
        try:
            self.load_record()
        except FileNotFoundError:
            return status
        except state_files.Unreadable as why:
            return self._with_damage(status, why)
        return status

    def _with_damage(self, status: Status, why: state_files.Unreadable) -> Status:
        name, ended = names.run_name(*self._place), status.released_at is not None
        damaged = messages.record_damaged(str(self.record_file), str(why), name, ended=ended)
        return messages.with_messages(replace(status, reason=Reason.RECORD_DAMAGED), damaged)

    @property
    def _place(self) -> tuple[str, int]:
        return self.path.parent.name, int(self.path.name)

    def _counts_by_log(self) -> dict[str, int]:
        """Return how many tasks of each type have left a log."""
        found: dict[str, int] = {}
        for log in self.tasks.glob("*.log"):
            with contextlib.suppress(ValueError):
                task_type, index = names.parse_task(log.stem)
                found[task_type.value] = max(found.get(task_type.value, 0), min(index + 1, 1000))
        return found

    def write_uid(self, uid: str) -> None:
        """Store the uid as a file name, which survives damage to file contents. Raises OSError."""
        state_files.write(self.path / f"{_UID_PREFIX}{uid}", b"")

    def uids(self) -> set[str]:
        """Return every uid that processes of this run may carry.

        If the record is damaged, uids come from a file's name, the description of the tasks, and
        their processes. A damaged folder may be the copy of another run and name the uid of that
        run, so uids in the intact records of other folders are left out.
        """
        with contextlib.suppress(FileNotFoundError, state_files.Unreadable):
            return {self.load_record().metadata.uid}
        told = {mark.name.removeprefix(_UID_PREFIX) for mark in self.path.glob(f"{_UID_PREFIX}*")}
        told |= processes.uids_of(self.tasks)
        told.add(str((state_files.read(self.task_file, dict[str, Any]) or {}).get("uid", "")))
        return {uid for uid in told if _UID.fullmatch(uid)} - self._uids_elsewhere()

    def _uids_elsewhere(self) -> set[str]:
        found: set[str] = set()
        for path in self.path.parent.parent.glob("*/*"):
            with contextlib.suppress(FileNotFoundError, state_files.Unreadable):
                if path != self.path:
                    found.add(RunFolder(path).load_record().metadata.uid)
        return found

    @property
    def is_damaged(self) -> bool:
        """Whether the status is unreadable."""
        return self._status() is None

    def write_status(self, status: Status, *, spare: bool = True) -> bytes:
        """Replace the status; return the text that was written. With `spare`, this works on a full
        disk, too: it uses reserved space and shortens a long status. Only the holder of the run's
        lock may call it. Raises OSError.
        """
        text = to_json(status)
        if spare and len(text) > state_files.SPARE_BYTES and state_files.is_full(self.path):
            text = to_json(_shortened(status))
        state_files.write(self.status_file, text, spares=self.spares if spare else ())
        return text

    def reserve(self) -> None:
        """Reserve disk space for the files that must be written even on a full disk. Raises
        OSError.
        """
        for spare in self.spares:
            if not os.path.lexists(spare):
                state_files.reserve(spare)

    def clear(self) -> None:
        """Remove temporary files of killed writers, and the reserved files. Call this after all
        writers have ended.
        """
        beside = (".status.json.*", ".task.json.*", "tasks/*.exit.json.*", "spare-*")
        for left in [path for pattern in beside for path in self.path.glob(pattern)]:
            with contextlib.suppress(OSError):
                left.unlink()

    def lock(self) -> int | None:
        """Take the run's lock without waiting; return its descriptor; None while a supervisor
        lives.

        The lock belongs to the open file, so a child that inherits the descriptor holds it, too. If
        something other than a regular file has replaced the lock file, it is renamed, and a new
        lock file is created. A supervisor that held the old lock file can still be found by
        `processes.supervisors`.
        """
        try:
            fd = state_files.lock_file(self.lock_file)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    def wake(self, line: bytes = b"\n") -> bool:
        """Wake the supervisor so that it reads requests; return False if no supervisor listens."""
        try:
            how = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(self.control, how)
        except OSError:
            return False
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                return False
            os.write(fd, line)
            return True
        except OSError:
            return False  # the pipe is full, so the supervisor will wake up anyway
        finally:
            os.close(fd)


def _stat_or_none(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _replicas(desired: Mapping[str, int]) -> dict[str, Replicas]:
    return {t.value: Replicas(count=desired[t.value]) for t in TaskType if t.value in desired}


def _is_sound(status: Status) -> bool:
    """Return whether the code that shows and counts runs can work with this status."""
    held = status.usage
    types = {*status.counts, *(held.holding if held else ()), *(held.cores if held else ())}
    for of_day in held.days.values() if held else ():
        types.update(of_day)
    tasks = [*(f.task for f in status.failures), *(task.name for task in status.attention)]
    numbers = [n for c in status.counts.values() for n in astuple(c)]
    numbers += [*(held.holding.values() if held else ()), *status.restarts.values()]
    try:
        types.update(names.parse_task(task)[0].value for task in tasks)
        for day in held.days if held else ():
            date.fromisoformat(day)
    except ValueError:
        return False
    known = {t.value for t in TaskType}
    return types <= known and all(0 <= number <= MOST_TASKS for number in numbers)


def _shortened(status: Status) -> Status:
    """Return a shorter status for a full disk; the message and the counts stay."""
    return replace(status, failures=(), attention=(), addresses={}, events=status.events[-10:])


@lru_cache(maxsize=1000)
def _run_folder(runs_dir: Path, cluster: str, run: int) -> RunFolder:
    """Return the folder of a run; the result is cached, because a watch asks for each folder five
    times a second.
    """
    return RunFolder(runs_dir / cluster / str(run))


BESIDE_PROGRAM = "beside-program"
"""Name of a folder in a run's output. When the run is deleted, the files that its program wrote
into the program's own folder are kept in this folder.
"""


class Store:
    """All runs of one user on this machine."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.runs_dir = state_dir / "runs"

    def folder(self, cluster: str, run: int) -> RunFolder:
        """Return the folder of one run, whether it exists or not."""
        return _run_folder(self.runs_dir, cluster, run)

    def numbers(self, cluster: str) -> list[int]:
        """Return the numbers of those runs of a cluster that have a folder, newest first."""
        return sorted(run_names.run_numbers(self.runs_dir / cluster), reverse=True)

    def folders(self) -> Iterator[RunFolder]:
        """Yield every folder that may be a run. Raises BackendUnavailable."""
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
        """Return the lock for launches, deletions and sweeps, across all processes of the user.

        Raises:
            BackendUnavailable: another process does not release the lock.
            TFClusterError: the state folder cannot be written.
        """
        paths.private(self.runs_dir)
        return hold_launch_lock(self.state_dir)

    def allocate(
        self, cluster: str, log_dir: Path, wanted: int | None = None
    ) -> tuple[int, RunFolder]:
        """Create the folder of the next run, or of the run with the number `wanted` if that was
        never used. Call this under the launch lock. Raises OSError.
        """
        run = self.next_number(cluster, log_dir) if wanted is None else wanted
        paths.private(self.runs_dir / cluster)
        while True:
            folder = self.folder(cluster, run)
            try:
                folder.path.mkdir(mode=0o700)
                return run, folder
            except FileExistsError:
                if wanted is not None:
                    raise
                run += 1  # a file of another program has this name
            except FileNotFoundError:
                # another launch was undone and removed the cluster's empty folder
                paths.private(folder.path.parent)

    def next_number(self, cluster: str, log_dir: Path) -> int:
        """Return the number of the next run: above the numbers of all runs, even deleted ones, and
        of logs in `log_dir`.
        """
        used = {
            *run_names.run_numbers(self.runs_dir / cluster),
            *run_names.run_numbers(log_dir / cluster),
        }
        return run_names.next_number({*used, self.hours.last_number(cluster)})

    def commit(self, folder: RunFolder, metadata: Metadata, spec: Spec) -> None:
        """Write the record, which makes the run exist. Raises OSError."""
        state_files.write(
            folder.record_file, to_json(Record(metadata=metadata, spec=spec)), durable=True
        )

    def remove(self, folder: RunFolder, *, results: bool = False) -> None:
        """Remove a run's folder in such a way that no reader ever sees only a part of it.

        The run's hours and number are kept in the ledger of hours. Unless `results` is set, the
        files that its program wrote into the program's own folder are kept, too.
        """
        cluster = folder.load()
        output = cluster.status.paths.get("output") if cluster is not None else None
        if output and not results:
            from ...program import keep_written  # not needed by supervisors, which stay small

            keep_written(folder.program, Path(output, BESIDE_PROGRAM))
        kept = cluster is None or self.hours.record(cluster, self.uids)
        self._take_away(folder)
        # The disk was full, so the hours were not recorded; the removal has freed space for them.
        if cluster is not None and not kept:
            self.hours.record(cluster, self.uids)

    def _take_away(self, folder: RunFolder) -> None:
        hidden = folder.path.with_name(f".removed-{folder.path.name}-{os.getpid()}")
        try:
            os.rename(folder.path, hidden)
        except OSError:
            hidden = folder.path
        state_files.remove_tree(hidden)
        with contextlib.suppress(OSError):
            folder.path.parent.rmdir()

    @cached_property
    def hours(self) -> HoursFile:
        """The ledger of hours and numbers."""
        from .hours_file import HoursFile  # not needed by supervisors, which stay small

        return HoursFile(self.state_dir)

    def uids(self) -> set[str]:
        """Return the uids of all runs that have a record."""
        return {uid for folder in self.folders() for uid in folder.uids()}

    def undo(self, folder: RunFolder, log_dir: Path) -> None:
        """Remove the run's folder that a launch created, and the run's output folder if it is
        empty.
        """
        # The output folder is removed first: a sweep could not find it later without the run's
        # folder.
        state_files.remove_empty(log_dir / folder.path.parent.name / folder.path.name)
        self._take_away(folder)

    def sweep(self, log_dir: Path, now: float | None = None) -> None:
        """Remove ended runs past their `keepFor`, and leftovers of launches and deletions that were
        killed half-way. Call this under the launch lock.
        """
        moment = time.time() if now is None else now
        for folder in list(self.folders()):
            cluster = folder.load()
            if cluster is None:
                if state_files.is_gone(folder.record_file) and _is_ours(folder):
                    self.undo(folder, log_dir)
            elif is_record_expired(cluster, moment):
                self.remove(folder)
        for hidden in self.runs_dir.glob("*/.removed-*"):
            state_files.remove_tree(hidden)
        for left in self.runs_dir.iterdir():
            if names.is_valid(left.name):
                with contextlib.suppress(OSError):  # a folder that has runs stays
                    left.rmdir()


def _is_ours(folder: RunFolder) -> bool:
    """Return whether a folder without a record is the leftover of a launch."""
    try:
        if not folder.lock_file.exists():
            return not os.listdir(folder.path)
    except OSError:  # the file is missing or not readable
        return False
    fd = folder.lock()
    if fd is None:
        return False
    os.close(fd)
    return True
