"""The local backend: clusters as processes of this user on this machine.

A launch reserves capacity, name, number and devices in one step under the launch lock, and writes
the record last. Then a detached supervisor takes over. All answers come from the files in the state
folder; this process stores nothing.

A watch polls with `stat` five times a second. For fifty runs, a poll costs less than a millisecond.
Polling works on any file system (inotify does not work on NFS), and also detects that a supervisor
was killed, although no file changes then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from msgspec.structs import replace

from ... import paths, state_files
from ...errors import InvalidRequest, NameTaken, NotFound, TFClusterError
from ...i18n import _
from ...launch import LaunchRequest
from ...launch_checks import local as checks
from ...quota.ledger import HoursAccount
from ...quota.limits import Limits
from ...spec import (
    Annotations,
    Cause,
    Phase,
    ScheduledRun,
    Spec,
    Stop,
    TaskExit,
    TaskState,
    TFCluster,
    names,
    to_json,
)
from .. import log_files, run_names
from ..base import (
    Backend,
    ClockService,
    Counts,
    LogLine,
    Options,
    Preflight,
    Removed,
    SeenTask,
    check_output_removable,
    every_line,
    remove_output,
)
from ..run_names import is_record_expired
from . import capacity, launch_facts, lost_supervisor, processes, quota
from .run_store import RunFolder, Store

if TYPE_CHECKING:
    from .notification_store import LocalNotifications
    from .schedule_store import LocalSchedules

WATCH_INTERVAL = 0.2
Stamps = tuple[state_files.Stamp | None, ...]


def watch_run(folder: RunFolder) -> Iterator[TFCluster | None]:
    """Yield the run now and at each change until its resources are released; yield `None` after
    each poll without a change.
    """
    known = RunChanges()
    while not state_files.is_gone(folder.record_file):
        cluster = known.changed(folder)
        yield cluster
        if known.is_released(folder):
            return
        time.sleep(WATCH_INTERVAL)


def watch_all_runs(
    folders: Callable[[], Iterable[RunFolder]],
) -> Iterator[TFCluster | Removed | None]:
    """Yield each run in `folders()` now, at each change, and when it is deleted. Never ends. Yields
    `None` after each poll without a change.
    """
    known = RunChanges()
    while True:
        quiet = True
        current = list(folders())
        for name in known.missing(current):
            quiet = False
            yield Removed(name)
        for folder in current:
            cluster = known.changed(folder)
            if cluster is not None and not is_record_expired(cluster, time.time()):
                quiet = False
                yield cluster
        if quiet:
            yield None
        time.sleep(WATCH_INTERVAL)


class RunChanges:
    """The runs that a watch has reported. Each is stored with the stamps that its files had when it
    was reported, so that later changes are noticed.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Stamps, RunFolder, TFCluster]] = {}

    def changed(self, folder: RunFolder) -> TFCluster | None:
        """Return the run in `folder` if it is new or has changed since it was reported; otherwise
        return None.
        """
        key, stamp = str(folder.path), _stamps(folder)
        last, _, before = self._seen.get(key, (None, None, None))
        if before is None or last != stamp:
            cluster = lost_supervisor.load_run(folder)
        elif before.status.released_at is None:
            cluster = _recheck(folder, before)
        else:
            return None
        if cluster is None:
            return None
        self._seen[key] = (stamp, folder, cluster)
        return cluster if cluster != before else None

    def is_released(self, folder: RunFolder) -> bool:
        """Return whether the run in `folder` had released all its resources when it was last
        reported.
        """
        seen = self._seen.get(str(folder.path))
        return seen is not None and seen[2].status.released_at is not None

    def missing(self, current: Iterable[RunFolder]) -> list[str]:
        """Return the names of the runs that were reported earlier and that are deleted now."""
        there = {str(folder.path) for folder in current}
        gone = [
            key
            for key in self._seen.keys() - there
            if state_files.is_gone(
                self._seen[key][1].path
            )  # a run on a volume that cannot be read for the moment still exists
        ]
        return [self._seen.pop(key)[2].metadata.name for key in gone]


def _recheck(folder: RunFolder, cluster: TFCluster) -> TFCluster | None:
    """Return the run of an unchanged folder. If the run's supervisor is alive, return `cluster`,
    with warnings about full disks. Otherwise read the run again: `load_run` ends a run whose
    supervisor is gone.
    """
    lock_fd = folder.lock()
    if lock_fd is None:
        return replace(cluster, status=lost_supervisor.with_full_disks(folder, cluster.status))
    os.close(lock_fd)
    return lost_supervisor.load_run(folder)


def _stamps(folder: RunFolder) -> Stamps:
    every = (folder.status_file, folder.stop_file, folder.annotations_file, folder.record_file)
    return tuple(state_files.stamp(file) for file in every)


# -- the backend -----------------------------------------------------------------------------------


class LocalBackend(Backend):
    """Clusters on this machine.

    Args:
        state_dir: folder of the records; by default from the environment (see `paths`).
        data_dir: folder of data sets; by default also from the environment.
        log_dir: folder that holds each run's output folder; by default also from the environment.
    """

    name = "local"
    is_here = True

    def __init__(
        self,
        state_dir: Path | None = None,
        data_dir: Path | None = None,
        log_dir: Path | None = None,
    ) -> None:
        self.state_dir = state_dir or paths.state_dir()
        self.data_dir = data_dir or paths.data_dir()
        self.log_dir = log_dir or paths.log_dir()
        self._store = Store(self.state_dir)

    @property
    def folders(self) -> dict[str, Path]:
        """The folders that the hub may limit, by the names in `storage.FOLDER_NAMES`."""
        return {"workspace": paths.home_dir(), "data": self.data_dir, "log": self.log_dir}

    def keep_time(self) -> None:
        """See `Backend.keep_time`: start the clock process again after the machine was off."""
        if any((self.state_dir / name).is_dir() for name in ("schedules", "notifications")):
            from .schedule_store import keep_time

            with contextlib.suppress(TFClusterError, OSError):
                keep_time(self.state_dir)

    def schedules(self) -> LocalSchedules:
        """See `Backend.schedules`."""
        from .schedule_store import LocalSchedules  # imports cronsim, which few commands need

        return LocalSchedules(self.state_dir)

    def install_clock(self, remove: bool = False) -> ClockService | None:
        """See `Backend.install_clock`."""
        from . import clock_service

        file = clock_service.remove() if remove else clock_service.install(self.state_dir)
        return None if file is None else ClockService(file, clock_service.lingers())

    def notifications(self) -> LocalNotifications:
        """See `Backend.notifications`."""
        from .notification_store import LocalNotifications

        return LocalNotifications(self.state_dir, self.keep_time)

    def options(self) -> Options:
        """See `Backend.options`."""
        there, _gpus = capacity.measure(self._active())
        notes = [
            _("CPU is shared with everything else on this machine; memory limits and GPUs are not.")
        ]
        return Options(
            backend=self.name,
            cpu=there.cpu,
            memory=there.memory,
            gpu=there.gpu,
            max_tasks=there.max_tasks,
            interpreter=sys.executable,
            data_dir=str(self.data_dir),
            log_dir=str(self.log_dir),
            notes=(*notes, *launch_facts.host_warnings(self.log_dir)),
        )

    def preflight(self, spec: Spec) -> Preflight:
        """See `Backend.preflight`."""
        facts = self._facts(spec, list(self._all()), self._output_of(spec.resume_from))
        return checks.preflight(spec, facts)

    def _facts(
        self, spec: Spec, runs: Sequence[tuple[RunFolder, TFCluster]], resume_from: Path | None
    ) -> checks.LocalFacts:
        """Return the facts for the checks of a launch."""
        return launch_facts.gather_facts(
            spec, runs, self._store.hours, self.folders, self.state_dir, resume_from
        )

    def hours(self) -> HoursAccount:
        """See `Backend.hours`."""
        return self._account(quota.hub_limits())

    def bounded(self) -> HoursAccount | None:
        """See `Backend.bounded`."""
        limits = quota.hub_limits()
        return self._account(limits) if quota.has_budget(limits) else None

    def _account(self, limits: Limits | None) -> HoursAccount:
        return self._store.hours.account((c for _, c in self._all()), time.time(), limits)

    def create(self, request: LaunchRequest) -> TFCluster:
        """See `Backend.create`.

        Raises:
            InvalidRequest: the request asks for something that only Kubernetes has.
            BackendUnavailable: the supervisor could not be started.
            TFClusterError: the state folder cannot be written.
        """
        from .launch import Launch  # imports the code that reads programs

        resume_from = self._output_of(request.spec.resume_from)
        launch = Launch(self._store, self.data_dir, self.log_dir, resume_from)
        with self._store.launch_lock():
            self._store.sweep(self.log_dir)
            if request.run is not None and (made := self._made_before(request, request.run)):
                return made
            runs = list(self._all())
            facts = self._facts(request.spec, runs, resume_from)
            verdict = checks.preflight(request.spec, facts)
            if verdict.unsupported:
                raise InvalidRequest(verdict.unsupported)
            running = {c.metadata.cluster: c for _, c in runs if c.active}
            cluster = request.cluster
            if request.run is None:
                given = request.name_given
                cluster, renamed = run_names.choose_name(cluster, given, running)
                inferred = (*renamed, *request.inferred)
                request = dataclasses.replace(request, inferred=inferred)
            verdict.check()
            # a run that waits for other runs gets its GPUs when it starts
            gpus = None if request.spec.after else facts.free_gpus
            folder, lock_fd = launch.write(cluster, request, verdict.warnings, gpus)
        made = launch.hand_over(folder, lock_fd)
        # the clock process must run while runs are active, because notification rules may concern
        # them
        self.keep_time()
        return made

    def _made_before(self, request: LaunchRequest, run: int) -> TFCluster | None:
        """Return the run of this number if this request created it; None if the number is free.

        Raises:
            NameTaken: another run has or had the number, or the launch was interrupted before its
                tasks started.
        """
        found = lost_supervisor.load_run(self._store.folder(request.cluster, run))
        if found is None and run >= self.next_number(request.cluster):
            return None
        ours = found is not None and _is_same(found.metadata.scheduled, request.scheduled)
        if found is None or not ours or lost_supervisor.is_interrupted_launch(found.status):
            name = names.run_name(request.cluster, run)
            raise NameTaken(_("there is or was another run {name}").format(name=name))
        return found

    def next_number(self, cluster: str) -> int:
        """See `Backend.next_number`."""
        return self._store.next_number(cluster, self.log_dir)

    def list(self) -> list[TFCluster]:
        """See `Backend.list`."""
        now = time.time()
        return run_names.newest_first(
            [c for _, c in self._all() if not run_names.is_record_expired(c, now)]
        )

    def get(self, ref: str) -> TFCluster:
        """See `Backend.get`."""
        return self._find(ref)[1]

    def stop(self, ref: str, stop: Stop) -> TFCluster:
        """See `Backend.stop`.

        Raises:
            TFClusterError: the request could neither be written nor sent to the supervisor.
        """
        folder, cluster = self._find(ref)
        if cluster.status.released_at is not None:
            return cluster
        if cluster.spec.stop is None:
            stop = replace(stop, at=stop.at or time.time())
            try:
                state_files.write(folder.stop_file, to_json(stop), spares=folder.spares)
            except OSError as error:  # a full disk must not keep a run alive
                if not folder.wake(to_json(stop) + b"\n") and not _terminate(folder, cluster):
                    raise TFClusterError(
                        _("the request to stop {ref} could not be written: {why}").format(
                            ref=ref, why=error.strerror
                        )
                    ) from None
        # Also done for an earlier stop request, because the process that wrote the request may have
        # died before it woke the supervisor.
        if not folder.wake():
            _terminate(folder, cluster)
        return lost_supervisor.load_run(folder) or cluster

    def annotate(self, ref: str, change: Callable[[Annotations], Annotations]) -> TFCluster:
        """See `Backend.annotate`.

        Raises:
            TFClusterError: the annotations could not be written.
        """
        folder, cluster = self._find(ref)
        try:
            with state_files.locked(folder.annotations_file):
                annotations = change(folder.load_annotations())
                state_files.write(folder.annotations_file, to_json(annotations))
        except OSError as error:
            raise TFClusterError(
                _("the note, tags or name of {ref} could not be saved: {why}").format(
                    ref=ref, why=error.strerror
                )
            ) from None
        return lost_supervisor.load_run(folder) or cluster

    def check_delete(self, cluster: TFCluster, with_logs: bool) -> None:
        """See `Backend.check_delete`."""
        if with_logs and (output := cluster.status.paths.get("output")):
            check_output_removable(cluster, Path(output))

    def delete(self, ref: str, with_logs: bool = False) -> None:
        """See `Backend.delete`."""
        _folder, cluster = self._find(ref)
        name, uid = cluster.metadata.name, cluster.metadata.uid
        if cluster.status.released_at is None:
            raise run_names.still_has_tasks(cluster)
        self.check_delete(cluster, with_logs)
        # The output is removed without the launch lock, so that launches need not wait until many
        # checkpoints are deleted. As long as the record exists, the run's number is not used again.
        if with_logs and (output := cluster.status.paths.get("output")):
            remove_output(cluster, Path(output))
        with self._store.launch_lock():
            folder, cluster = self._find(name)
            # another deletion was faster, and another run has the name now
            if cluster.metadata.uid != uid:
                raise run_names.unknown_run_error(ref, [])
            self._store.remove(folder, results=with_logs)
        state_files.remove_empty(self._output(cluster))

    def logs(
        self,
        ref: str,
        tasks: Sequence[str] = (),
        follow: bool = False,
        tail: int | None = None,
        counts: Counts = every_line,
    ) -> Iterator[LogLine | None]:
        """See `Backend.logs`."""
        folder, cluster = self._find(ref)
        places = _logs_of(folder, cluster, run_names.tasks_of(cluster, tasks))

        def ended() -> bool:
            now = lost_supervisor.load_run(folder)
            return now is None or not now.active

        return log_files.read_logs(places, tail, follow, ended, counts)

    def observe_tasks(self, cluster: TFCluster, counts: Counts = every_line) -> Sequence[SeenTask]:
        """See `Backend.observe_tasks`."""
        head = cluster.metadata
        folder = self._store.folder(head.cluster, head.run)
        tasks, here = run_names.tasks_of(cluster, ()), socket.gethostname()
        over = cluster.status.released_at is not None
        began = {} if over else processes.began(head.uid)
        lines = log_files.last_lines(_logs_of(folder, cluster, tasks), counts)
        seen = []
        for task in tasks:
            ended = state_files.read(folder.tasks / f"{task}.exit.json", TaskExit)
            state, since = None, began.get(task)
            if since is None and ended is not None:
                state, since = _ENDS.get(ended.cause, TaskState.FAILED), ended.finished_at
            was_here = since is not None or task in lines
            seen.append(SeenTask(task, here if was_here else "", state, since, lines.get(task)))
        return seen

    @overload
    def watch(self, ref: str) -> Iterator[TFCluster | None]: ...

    @overload
    def watch(self, ref: None = None) -> Iterator[TFCluster | Removed | None]: ...

    def watch(self, ref: str | None = None) -> Iterator[TFCluster | Removed | None]:
        """See `Backend.watch`."""
        if ref is None:
            return watch_all_runs(self._store.folders)
        folder, _cluster = self._find(ref)
        return watch_run(folder)

    def _all(self) -> Iterator[tuple[RunFolder, TFCluster]]:
        for folder in self._store.folders():
            cluster = lost_supervisor.load_run(folder)
            if cluster is not None:
                yield folder, cluster

    def _active(self) -> Sequence[tuple[RunFolder, TFCluster]]:
        """Return the runs that have not released all their resources."""
        return [(f, c) for f, c in self._all() if c.status.released_at is None]

    def _find(self, ref: str) -> tuple[RunFolder, TFCluster]:
        cluster, run = names.parse_ref(ref)
        if names.is_valid(cluster):
            for number in self._store.numbers(cluster) if run is None else [run]:
                folder = self._store.folder(cluster, number)
                found = lost_supervisor.load_run(folder)
                if found is not None:
                    return folder, found
        runs = [(f.path.parent.name, int(f.path.name)) for f in self._store.folders()]
        raise run_names.unknown_run_error(ref, runs, lambda: (c for _folder, c in self._all()))

    def _output_of(self, ref: str | None) -> Path | None:
        """Return the output folder of a run, whether its record exists or not."""
        if ref is None:
            return None
        with contextlib.suppress(NotFound):
            return self._output(self._find(ref)[1])
        cluster, run = names.parse_ref(ref)
        return self.log_dir / cluster / str(run)

    def _output(self, cluster: TFCluster) -> Path:
        """Return the output folder of a run; the most likely folder if the record is damaged."""
        told, of_run = cluster.status.paths.get("output"), cluster.metadata
        return Path(told) if told else self.log_dir / of_run.cluster / str(of_run.run)


_ENDS = {Cause.COMPLETED: TaskState.SUCCEEDED, Cause.STOPPED: TaskState.STOPPED}


def _logs_of(
    folder: RunFolder, cluster: TFCluster, tasks: Sequence[str]
) -> dict[str, tuple[Path, Path]]:
    """Return two paths for each task: its log, and the log's copy in the run's output."""
    copies = Path(cluster.status.paths.get("output", "/nonexistent"))
    return {t: (folder.tasks / f"{t}.log", copies / f"{t}.log") for t in tasks}


def _is_same(found: ScheduledRun | None, wanted: ScheduledRun | None) -> bool:
    return (found and found.identity) == (wanted and wanted.identity)


def _terminate(folder: RunFolder, cluster: TFCluster) -> bool:
    """Send SIGTERM to a supervisor that does not read its pipe, and return whether a supervisor
    exists. If the run is still queued, return False without a signal: its supervisor will find the
    stop request on disk.
    """
    if cluster.status.phase is Phase.QUEUED:
        return False
    found = processes.supervisors(folder.path)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    return bool(found)
