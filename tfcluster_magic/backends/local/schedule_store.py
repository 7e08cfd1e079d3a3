"""Schedules on one machine, in `<state>/schedules/<name>/`, and the start of the clock process.

`schedule.json` has the rules and the launch, `status.json` the results of due times. Both files are
private to the user. Each is replaced in one step, under a lock file in the same folder. Every
change wakes the clock process, or starts it. This module never launches a run.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ... import paths, state_files
from ...errors import BackendUnavailable, NotFound, TFClusterError
from ...i18n import _
from ...schedules import Schedule, ScheduledLaunch, ScheduleRules, ScheduleStatus
from ...spec import Model, names, to_json
from ..base import Schedules
from .notification_store import has_rules
from .task_processes import scrubbed

NO_CLOCK = "TFCLUSTER_NO_CLOCK"
"""Environment variable: with the value 1, no clock process is started, for example because systemd
does that.
"""
_BOOT = (
    "import sys; sys.path += sys.argv[2:]; "
    "from tfcluster_magic.backends.local.clock import main; main(sys.argv[1])"
)


class StoredSchedule(Model, frozen=True, kw_only=True):
    """The content of `schedule.json`: everything except the status."""

    name: str
    uid: str
    created_at: float
    rules: ScheduleRules
    launch: ScheduledLaunch


class ScheduleFolder:
    """One schedule's folder and the files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / "schedule.json"
        self.status_file = path / "status.json"
        self.launch_lock = path / "launch"

    def load(self) -> Schedule | None:
        """Return the schedule; None if there is none. An unreadable schedule has a `problem`."""
        try:
            stored = state_files.load(self.record_file, StoredSchedule)
        except (FileNotFoundError, state_files.Unreadable):
            return None
        if stored.name != self.path.name:
            return None
        try:
            status = state_files.load(self.status_file, ScheduleStatus)
        except FileNotFoundError:
            status = ScheduleStatus(cursor=stored.created_at)
        except state_files.Unreadable as why:
            # The results of past due times are unknown, and starting again from the creation would
            # repeat runs. So the cursor is far in the future, and the schedule launches nothing.
            status = ScheduleStatus(
                cursor=float(1 << 37),
                problem=f"{self.status_file} is damaged ({why}): delete and create the schedule",
            )
        return Schedule(
            name=stored.name,
            uid=stored.uid,
            created_at=stored.created_at,
            rules=stored.rules,
            launch=stored.launch,
            status=status,
        )

    def write(self, schedule: Schedule, before: Schedule | None) -> None:
        """Write the files whose content differs from `before`. The status is written first, because
        it must not be older than the rules. Raises OSError.
        """
        if before is None or schedule.status != before.status:
            state_files.write(self.status_file, to_json(schedule.status), durable=True)
        stored = StoredSchedule(
            name=schedule.name,
            uid=schedule.uid,
            created_at=schedule.created_at,
            rules=schedule.rules,
            launch=schedule.launch,
        )
        if before is None or (schedule.rules, schedule.launch) != (before.rules, before.launch):
            state_files.write(self.record_file, to_json(stored), durable=True)

    def stamps(self) -> tuple[state_files.Stamp | None, ...]:
        """Return stamps of the files, which change whenever the schedule changes."""
        return state_files.stamp(self.record_file), state_files.stamp(self.status_file)


class LocalSchedules(Schedules):
    """The schedules in a state folder.

    Args:
        state_dir: the folder of records.
        knocks: whether a change starts or wakes the clock process.
    """

    def __init__(self, state_dir: Path, *, knocks: bool = True) -> None:
        self.state_dir = state_dir
        self.path = state_dir / "schedules"
        self._knocks = knocks

    def folder(self, name: str) -> ScheduleFolder:
        """Return the folder of one schedule, whether it exists or not."""
        return ScheduleFolder(self.path / name)

    def folders(self) -> list[ScheduleFolder]:
        """Return every folder that may hold a schedule, sorted by name."""
        try:
            found = sorted(os.listdir(self.path))
        except OSError:
            return []
        return [self.folder(name) for name in found if names.is_valid(name)]

    def list(self) -> list[Schedule]:
        """See `Schedules.list`."""
        return [found for folder in self.folders() if (found := folder.load())]

    def get(self, name: str) -> Schedule:
        """See `Schedules.get`."""
        found = self.find(name)
        if found is None:
            raise self._unknown(name)
        return found

    def find(self, name: str) -> Schedule | None:
        """Return a schedule; None if there is none."""
        return self.folder(name).load() if names.is_valid(name) else None

    def create(self, schedule: Schedule) -> Schedule:
        """See `Schedules.create`."""
        folder = self.folder(schedule.name)
        paths.private(folder.path)
        try:
            with state_files.locked(folder.status_file):
                if folder.load() is not None:
                    raise self.taken(schedule.name)
                folder.write(schedule, None)
        except OSError as error:
            raise self._unwritable(error) from None
        self._wake()
        return schedule

    def change(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        """See `Schedules.change`."""
        folder = self.folder(name)
        self.get(name)
        try:
            with state_files.locked(folder.status_file):
                before = self.get(name)
                after = change(before)
                folder.write(after, before)
        except FileNotFoundError:  # it was deleted in the meantime
            raise self._unknown(name) from None
        except OSError as error:
            raise self._unwritable(error) from None
        self._wake()
        return after

    def delete(self, name: str) -> None:
        """See `Schedules.delete`."""
        folder = self.folder(name)
        self.get(name)
        hidden = self.path / f".removed-{name}-{os.getpid()}"
        try:
            with state_files.locked(folder.status_file):
                self.get(name)
                os.rename(folder.path, hidden)
        except FileNotFoundError:
            raise self._unknown(name) from None
        except OSError as error:
            raise self._unwritable(error) from None
        state_files.remove_tree(hidden)
        self._wake()

    def _unknown(self, name: str) -> NotFound:
        known = [folder.path.name for folder in self.folders()]
        if close := difflib.get_close_matches(name, known, 1):
            text = _("there is no schedule {name}; did you mean {close}?")
            return NotFound(text.format(name=name, close=close[0]))
        text = _("there is no schedule {name}; `tfcluster schedule list` shows all schedules")
        return NotFound(text.format(name=name))

    def _unwritable(self, error: OSError) -> TFClusterError:
        return TFClusterError(
            _("the schedule could not be written in {folder}: {why}").format(
                folder=self.path, why=error.strerror
            )
        )

    def _wake(self) -> None:
        if self._knocks:
            keep_time(self.state_dir)


# -- the clock process -----------------------------------------------------------------------------


def control_file(state_dir: Path) -> Path:
    """Return the pipe that notifies the clock process of changes."""
    return state_dir / "schedules" / "control"


def take_clock_lock(state_dir: Path) -> int | None:
    """Take the clock process's lock; return its descriptor; None if a clock process is running."""
    fd = state_files.lock_file(state_dir / "schedules" / "clock.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def keep_time(state_dir: Path) -> None:
    """If a state folder has schedules or notification rules, wake its clock process, or start the
    process if it is not running.

    Raises:
        BackendUnavailable: the clock process cannot be started.
    """
    if not needs_clock(state_dir):
        _knock(state_dir)  # the clock process ends when there is nothing left to do
        return
    paths.private(state_dir / "schedules")
    try:
        fd = take_clock_lock(state_dir)
    except OSError:
        return  # we may not write to the folder: its owner's clock process does the work
    if fd is None:
        _knock(state_dir)
        return
    os.close(fd)
    if os.environ.get(NO_CLOCK) != "1":
        _start(state_dir)


def needs_clock(state_dir: Path) -> bool:
    """Return whether there is a schedule or a notification rule."""
    folders = LocalSchedules(state_dir, knocks=False).folders()
    return has_rules(state_dir) or any(folder.record_file.exists() for folder in folders)


def clock_pid(state_dir: Path) -> int | None:
    """Return the pid of the clock process; None if it is not running. This does not touch the lock,
    which a starting clock process needs.
    """
    with contextlib.suppress(OSError, ValueError):
        pid = int((state_dir / "schedules" / "clock.lock").read_text())
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
        if os.fsencode(str(state_dir)) in words:
            return pid
    return None


def _knock(state_dir: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(control_file(state_dir), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            os.write(fd, b"\n")
        finally:
            os.close(fd)


def import_path() -> list[str]:
    """Return the folders from which the clock process imports this package and its dependencies."""
    import cronsim

    found = [Path(__file__).resolve().parents[3]]
    found += [Path(str(module.__file__)).resolve().parents[1] for module in (msgspec, cronsim)]
    return list(dict.fromkeys(map(str, found)))


def clock_command(state_dir: Path) -> list[str]:
    """Return the command of the clock process. It runs isolated, as supervisors do."""
    if not sys.executable:
        raise BackendUnavailable(
            _("this Python does not know its own executable: start it by its full path")
        )
    return [sys.executable, "-I", "-c", _BOOT, str(state_dir), *import_path()]


def _start(state_dir: Path) -> None:
    try:
        with open(state_dir / "schedules" / "clock.log", "ab", opener=_private) as log:
            process = subprocess.Popen(
                clock_command(state_dir),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=scrubbed(os.environ),
                start_new_session=True,
            )
        process.wait()  # `process` is the first of two forked processes and ends at once
    except OSError as error:
        raise BackendUnavailable(
            _("the clock process of schedules could not start: {why}").format(why=error)
        ) from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def with_status(schedule: Schedule, status: ScheduleStatus) -> Schedule:
    """Return the schedule with another status."""
    return schedule if schedule.status == status else replace(schedule, status=status)
