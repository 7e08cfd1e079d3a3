"""The reader process of one person's runs and schedules, and the fork server that starts readers.

A reader answers each line of JSON with one line, and ends when its console ends. It runs under the
person's own account, so every file and symlink in their folders is opened with their rights only.
The console does not trust what a reader says about owners. The console starts the fork server with
`python -I -m tfcluster_magic.hub.console.sites.person_reader FD`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from .... import paths, state_files
from ....backends import folder_sizes, run_names
from ....backends.local import lost_supervisor, processes
from ....backends.local.backend import LocalBackend
from ....backends.local.run_store import Record, RunFolder, Store
from ....backends.local.schedule_store import NO_CLOCK, LocalSchedules, with_status
from ....errors import Conflict, InvalidRequest, NotFound, TFClusterError
from ....i18n import _
from ....lifecycle.messages import shown
from ....quota.ledger import HoursByDay
from ....quota.storage import FolderUsage
from ....schedules import Pause, Schedule
from ....schedules.due import paused, resumed
from ....spec import Model, Status, Stop, TFCluster, conversion
from .base import (
    Leak,
    SiteRun,
    SiteSchedule,
    current_schedule,
    refuse_to_pause,
    refuse_to_resume,
    run_row,
    schedule_row,
)

MOST_LINES = 1000
_LONGEST_LINE = 4000
_YOUNG = 60.0
"""Age in seconds up to which a folder without a record may belong to a launch in progress."""
Stamp = tuple[state_files.Stamp | None, ...]


class ReaderRequest(Model, frozen=True):
    """A request; `do` is `list`, `stop`, `tail`, `leaks`, `hours`, `storage`, `remove`, `pause` or
    `resume`.
    """

    do: str
    name: str = ""
    uid: str = ""
    task: str = ""
    lines: int = 0
    leak: str = ""
    stop: Stop = Stop()
    pause: Pause = Pause(at=0.0)


class ReaderAnswer(Model, frozen=True):
    """The answer; `error` is the name of a TFClusterError class with message `detail`."""

    rows: tuple[SiteRun, ...] = ()
    schedules: tuple[SiteSchedule, ...] = ()
    lines: tuple[str, ...] = ()
    leaks: tuple[Leak, ...] = ()
    hours: HoursByDay = {}
    volumes: tuple[FolderUsage, ...] = ()
    error: str = ""
    detail: str = ""


ERRORS = {kind.__name__: kind for kind in (Conflict, NotFound, TFClusterError)}


class RunsReader:
    """Answers requests; caches the rows of runs that use no resources any more and so do not
    change.
    """

    def __init__(self) -> None:
        self.backend = LocalBackend()
        self.store = Store(self.backend.state_dir)
        self.schedules = LocalSchedules(self.backend.state_dir)
        self._kept: dict[Path, tuple[Stamp, SiteRun]] = {}
        self._kept_schedules: dict[str, tuple[Stamp, SiteSchedule]] = {}

    def answer(self, ask: ReaderRequest) -> ReaderAnswer:
        """Carry out a request."""
        try:
            return getattr(self, f"_{ask.do}")(ask)  # type: ignore[no-any-return]
        except InvalidRequest as error:
            return ReaderAnswer(error="TFClusterError", detail=str(error))
        except TFClusterError as error:
            kind = type(error).__name__
            return ReaderAnswer(
                error=kind if kind in ERRORS else "TFClusterError", detail=str(error)
            )
        except OSError as error:
            return ReaderAnswer(error="TFClusterError", detail=str(error))

    def _list(self, _ask: ReaderRequest) -> ReaderAnswer:
        now = time.time()
        rows = (self._row(folder, now) for folder in self.store.folders())
        return ReaderAnswer(
            rows=tuple(row for row in rows if row is not None),
            schedules=tuple(self._schedule_rows(now)),
        )

    def _row(self, folder: RunFolder, now: float) -> SiteRun | None:
        stamp = state_files.stamp(folder.status_file), state_files.stamp(folder.record_file)
        kept = self._kept.get(folder.path)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        self._kept.pop(folder.path, None)
        cluster = lost_supervisor.load_run(folder)
        if cluster is None or run_names.is_record_expired(cluster, now):
            return None
        row = run_row(cluster, (platform.node(),))
        if cluster.status.released_at is not None:
            self._kept[folder.path] = stamp, row
        return row

    def _schedule_rows(self, now: float) -> Iterator[SiteSchedule]:
        """Yield a row for each schedule; the file of an unchanged schedule is not read again."""
        kept, self._kept_schedules = self._kept_schedules, {}
        for folder in self.schedules.folders():
            name, stamp = folder.path.name, folder.stamps()
            known = kept.get(name)
            if known is not None and known[0] == stamp:
                row = current_schedule(known[1], now)
            elif (found := folder.load()) is not None:
                row = schedule_row(found, now)
            else:
                continue
            self._kept_schedules[name] = stamp, row
            yield row

    def _pause(self, ask: ReaderRequest) -> ReaderAnswer:
        def pause(schedule: Schedule) -> Schedule:
            _check_schedule(schedule, ask.uid)
            refuse_to_pause(schedule.name, schedule.status.paused)
            return with_status(schedule, paused(schedule.status, ask.pause))

        self.schedules.change(ask.name, pause)
        return ReaderAnswer()

    def _resume(self, ask: ReaderRequest) -> ReaderAnswer:
        def resume(schedule: Schedule) -> Schedule:
            _check_schedule(schedule, ask.uid)
            refuse_to_resume(schedule.name, schedule.status.paused)
            return with_status(schedule, resumed(schedule.status, time.time()))

        self.schedules.change(ask.name, resume)
        return ReaderAnswer()

    def _hours(self, _ask: ReaderRequest) -> ReaderAnswer:
        return ReaderAnswer(hours=self.backend.hours().days)

    def _storage(self, _ask: ReaderRequest) -> ReaderAnswer:
        folders = self.backend.folders
        every = [
            folder_sizes.MeasuredFolder(name, path, runs=name == "log")
            for name, path in folders.items()
        ]
        return ReaderAnswer(volumes=tuple(folder_sizes.measure(every, self.backend.state_dir)))

    def _stop(self, ask: ReaderRequest) -> ReaderAnswer:
        cluster = self._meant(ask)
        name = cluster.metadata.name
        if cluster.status.released_at is not None:
            text = _("{name} has already ended: {message}")
            raise Conflict(text.format(name=name, message=shown(cluster.status)))
        if (stop := cluster.spec.stop) is not None:
            by = stop.by or _("its owner")
            raise Conflict(_("{name} is already being stopped by {by}").format(name=name, by=by))
        self.backend.stop(name, ask.stop)
        return ReaderAnswer()

    def _tail(self, ask: ReaderRequest) -> ReaderAnswer:
        name = self._meant(ask).metadata.name
        lines = min(max(ask.lines, 1), MOST_LINES)
        told = self.backend.logs(name, [ask.task], tail=lines)
        texts = [line.text[:_LONGEST_LINE] for line in told if line is not None]
        return ReaderAnswer(lines=tuple(texts[-lines:]))

    def _meant(self, ask: ReaderRequest) -> TFCluster:
        cluster = self.backend.get(ask.name)
        if ask.uid and ask.uid != cluster.metadata.uid:
            text = _("nothing was done, because {name} is another run now")
            raise Conflict(text.format(name=cluster.metadata.name))
        return cluster

    # -- leaks -------------------------------------------------------------------------------------

    def _leaks(self, _ask: ReaderRequest) -> ReaderAnswer:
        found = [*self._orphans(), *self._left()]
        return ReaderAnswer(leaks=tuple(found))

    def _orphans(self) -> Iterator[Leak]:
        """Yield processes of runs that no supervisor and no record owns."""
        # Taken before the records are read: a newer launch must not look like an orphan.
        snapshot = processes.snapshot()
        of_runs: dict[str, list[int]] = {}
        for pid in snapshot:
            if uid := processes.run_of(pid):
                of_runs.setdefault(uid, []).append(pid)
        if not of_runs:
            return
        loaded = [lost_supervisor.load_run(folder) for folder in self.store.folders()]
        held = {c.metadata.uid for c in loaded if c and c.status.released_at is None}
        for uid, pids in sorted(of_runs.items()):
            if uid in held or any(_supervised(pid, snapshot) for pid in pids):
                continue
            if still := [pid for pid in pids if processes.run_of(pid) == uid]:
                commands = ", ".join(f"{pid} ({_command(pid)})" for pid in sorted(still)[:5])
                what = _("processes of a run that nothing supervises: {commands}")
                text = what.format(commands=commands)
                yield Leak(owner="", id=f"processes:{uid}", kind="processes", what=text)

    def _left(self) -> Iterator[Leak]:
        """Yield folders that killed launches and deletions left behind."""
        runs = self.store.runs_dir
        hidden = list(runs.glob("*/.removed-*"))
        half = [f.path for f in self.store.folders() if state_files.is_gone(f.record_file)]
        for path in sorted([*hidden, *half]):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime < _YOUNG or not _is_free(path):
                    continue
                what = _("a folder without a record, left by a launch or a removal: {path}")
                place = path.relative_to(runs)
                yield Leak(
                    owner="", id=f"folder:{place}", kind="folder", what=what.format(path=path)
                )

    def _remove(self, ask: ReaderRequest) -> ReaderAnswer:
        leak = next((leak for leak in self._leaks(ask).leaks if leak.id == ask.leak), None)
        if leak is None:
            raise NotFound(_("this leak is already gone"))
        kind, _colon, rest = leak.id.partition(":")
        if kind == "processes":
            if left := processes.end_all(rest):
                text = _("these processes could not be ended: {pids}")
                raise Conflict(text.format(pids=", ".join(map(str, left))))
        else:
            with self.store.launch_lock():
                state_files.remove_tree(self.store.runs_dir / rest)
        return ReaderAnswer()


def _check_schedule(schedule: Schedule, uid: str) -> None:
    if uid and uid != schedule.uid:
        text = _("nothing was done, because {name} was deleted and created again meanwhile")
        raise Conflict(text.format(name=schedule.name))


def _supervised(pid: int, snapshot: dict[int, processes.Process]) -> bool:
    """Return whether a process or one of its ancestors is a supervisor, of any state folder."""
    seen = set()
    while (process := snapshot.get(pid)) is not None and pid not in seen:
        seen.add(pid)
        if any(processes.SUPERVISOR in word for word in processes.command_line(pid)):
            return True
        pid = process.parent
    return False


def _command(pid: int) -> str:
    return b" ".join(processes.command_line(pid)).decode("utf-8", "replace").strip()[:80]


def _is_free(path: Path) -> bool:
    """Return whether no launch holds this folder's lock."""
    folder = RunFolder(path)
    if state_files.is_gone(folder.lock_file):
        return True
    fd = folder.lock()
    if fd is None:
        return False
    os.close(fd)
    return True


def answer_requests(asked: BinaryIO, out: BinaryIO) -> None:
    """Answer requests until the console ends."""
    paths.state_dir()
    # Start no clock process for schedules: it would need the person's limits, which are not in
    # this environment.
    os.environ[NO_CLOCK] = "1"
    reader, decoder = RunsReader(), conversion.decoder(ReaderRequest)
    for line in asked:
        out.write(msgspec.json.encode(reader.answer(decoder.decode(line))) + b"\n")
        out.flush()


# -- fork server
# The fork server loads the modules that readers need, once for all readers. Readers of hundreds of
# people then start within seconds and take a MiB or two each. A reader first switches to its
# person's account permanently. The fork server kills only readers that it has started and that have
# not ended.

LONGEST_COMMAND = 256 * 1024
"""Maximum size of a command to the fork server, in bytes; environments are the largest part."""


class StartReader(Model, frozen=True):
    """The command to start a reader. If `uid` is None, the reader keeps the fork server's account.
    The message with the command also carries the socket for requests and answers.
    """

    environ: dict[str, str]
    uid: int | None = None
    gid: int = 0
    groups: tuple[int, ...] = ()


class StopReader(Model, frozen=True):
    """The command to kill the reader with this pid."""

    pid: int


class ForkCommand(Model, frozen=True, omit_defaults=True):
    """A command: one of the two fields is set."""

    begin: StartReader | None = None
    end: StopReader | None = None


def _become_person(wanted: StartReader) -> None:
    if wanted.uid is not None:
        os.setgroups(wanted.groups)
        os.setgid(wanted.gid)
        os.setuid(wanted.uid)
    os.environ.clear()
    os.environ.update(wanted.environ)


def _run_reader(wanted: StartReader, answers: int) -> None:
    """Run a reader in the forked process; does not return."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the console ends the reader
        _become_person(wanted)
        with socket.socket(fileno=answers) as ours:
            answer_requests(ours.makefile("rb"), ours.makefile("wb"))
        code = 0
    except (BrokenPipeError, ConnectionResetError):  # the console has ended
        code = 0
    except BaseException:  # noqa: BLE001 - the fork must end, whatever fails
        traceback.print_exc()
    finally:
        os._exit(code)


def _warm() -> None:
    """Build the decoders that each reader would otherwise build itself."""
    for kind in (Record, Status):
        with contextlib.suppress(msgspec.MsgspecError):
            conversion.decode(b"{}", kind)
    gc.collect()
    gc.freeze()


def fork_readers(channel: socket.socket) -> None:
    """Carry out commands until the channel is closed."""
    decoder = conversion.decoder(ForkCommand)
    children: set[int] = set()
    while True:
        text, sockets, _flags, _sender = socket.recv_fds(channel, LONGEST_COMMAND, 1)
        children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
        if not text:
            return
        said = decoder.decode(text)
        if said.begin is not None:
            pid = os.fork()
            if not pid:
                channel.close()
                _run_reader(said.begin, sockets[0])
            children.add(pid)
            os.close(sockets[0])
            channel.send(str(pid).encode())
        elif said.end is not None and said.end.pid in children:
            os.kill(said.end.pid, signal.SIGKILL)


def main() -> None:
    """Run the fork server on the socket whose file descriptor is the first argument."""
    os.dup2(2, 1)  # keep stray prints out of the answers
    _warm()
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        fork_readers(channel)


if __name__ == "__main__":
    main()
