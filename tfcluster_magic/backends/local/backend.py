"""The local backend: clusters as real processes of this user on this machine.

Promises what `Backend` says. Owns the order of a launch: room, name, number and devices are taken
in one step under the launch lock; the record is written last; then a detached supervisor takes
over. All answers come from the files under the state folder; nothing is kept in this process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from msgspec.structs import replace

from ... import paths, state_files
from ...errors import InvalidRequest, NotFound, PreflightRefused, TFClusterError
from ...i18n import _
from ...launch import LaunchRequest
from ...quota.ledger import Account
from ...spec import Phase, Spec, Stop, TFCluster, names, to_json
from .. import log_files, run_names
from ..base import Backend, Counts, LogLine, Options, Preflight, Removed, every_line
from . import capacity, elsewhere, launch_check, processes, quota, repair, watching
from .store import RunFolder, Store


class LocalBackend(Backend):
    """Clusters on this machine.

    Args:
        state_dir: folder of the records; without it that of the environment (see `paths`).
        data_dir: folder of data sets; as above.
        log_dir: folder under which each run has its output; as above.
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
        """What the hub may bound, by `storage.NAMES`."""
        return {"workspace": paths.home_dir(), "data": self.data_dir, "log": self.log_dir}

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
            notes=(*notes, *launch_check.warnings(self.log_dir)),
        )

    def preflight(self, spec: Spec) -> Preflight:
        """See `Backend.preflight`."""
        return self._preflight(spec)[0]

    def _preflight(self, spec: Spec) -> tuple[Preflight, Sequence[str]]:
        return launch_check.check(
            spec,
            self._active(),
            self.folders,
            self.state_dir,
            self._output_of(spec.resume_from),
            self.bounded(),
        )

    def hours(self) -> Account:
        """See `Backend.hours`."""
        return self._store.hours.account((c for _, c in self._all()), time.time())

    def bounded(self) -> Account | None:
        """See `Backend.bounded`."""
        return self.hours() if quota.has_budget() else None

    def create(self, request: LaunchRequest) -> TFCluster:
        """See `Backend.create`.

        Raises:
            InvalidRequest: it asks for what only Kubernetes has.
            BackendUnavailable: the supervisor could not be started.
            TFClusterError: the state folder cannot be written.
        """
        from .launch import Launch  # reads programs, which no other verb does

        if refused := elsewhere.problems(request.spec):
            raise InvalidRequest(refused)
        resume_from = self._output_of(request.spec.resume_from)
        launch = Launch(self._store, self.data_dir, self.log_dir, resume_from)
        with self._store.launch_lock():
            self._store.sweep(self.log_dir)
            running = {c.metadata.cluster: c for _, c in self._active() if c.active}
            cluster = run_names.choose(request.cluster, request.name_given, running)
            verdict, free_gpus = self._preflight(request.spec)
            if verdict.problems:
                raise PreflightRefused(verdict.problems)
            folder, lock_fd = launch.write(cluster, request, verdict.warnings, free_gpus)
        return launch.hand_over(folder, lock_fd)

    def list(self) -> list[TFCluster]:
        """See `Backend.list`."""
        now = time.time()
        return run_names.newest_first([c for _, c in self._all() if not run_names.expired(c, now)])

    def get(self, ref: str) -> TFCluster:
        """See `Backend.get`."""
        return self._find(ref)[1]

    def stop(self, ref: str, stop: Stop) -> TFCluster:
        """See `Backend.stop`.

        Raises:
            TFClusterError: the request could neither be written nor told to the supervisor.
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
        # Also if the process that wrote the stop died before it did this.
        if not folder.wake():
            _terminate(folder, cluster)
        return repair.load(folder) or cluster

    def delete(self, ref: str, with_logs: bool = False) -> None:
        """See `Backend.delete`."""
        with self._store.launch_lock():
            folder, cluster = self._find(ref)
            if cluster.status.released_at is None:
                raise run_names.still_has_tasks(cluster)
            self._store.remove(folder)
        # Other launches need not wait for many checkpoints to go: as long as the folder is there,
        # its number is not given again.
        if with_logs and (output := cluster.status.paths.get("output")):
            state_files.remove_tree(Path(output))
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
        known = run_names.tasks_of(cluster, tasks)
        copies = Path(cluster.status.paths.get("output", "/nonexistent"))
        places = {t: (folder.tasks / f"{t}.log", copies / f"{t}.log") for t in known}

        def ended() -> bool:
            now = repair.load(folder)
            return now is None or not now.active

        return log_files.read(places, tail, follow, ended, counts)

    @overload
    def watch(self, ref: str) -> Iterator[TFCluster | None]: ...

    @overload
    def watch(self, ref: None = None) -> Iterator[TFCluster | Removed | None]: ...

    def watch(self, ref: str | None = None) -> Iterator[TFCluster | Removed | None]:
        """See `Backend.watch`."""
        if ref is None:
            return watching.every(self._store.folders)
        folder, _cluster = self._find(ref)
        return watching.one(folder)

    def _all(self) -> Iterator[tuple[RunFolder, TFCluster]]:
        for folder in self._store.folders():
            cluster = repair.load(folder)
            if cluster is not None:
                yield folder, cluster

    def _active(self) -> Sequence[tuple[RunFolder, TFCluster]]:
        """Runs that still hold something."""
        return [(f, c) for f, c in self._all() if c.status.released_at is None]

    def _find(self, ref: str) -> tuple[RunFolder, TFCluster]:
        cluster, run = names.parse_ref(ref)
        if names.is_valid(cluster):
            for number in self._store.numbers(cluster) if run is None else [run]:
                folder = self._store.folder(cluster, number)
                found = repair.load(folder)
                if found is not None:
                    return folder, found
        runs = [(f.path.parent.name, int(f.path.name)) for f in self._store.folders()]
        raise run_names.unknown(ref, runs)

    def _output_of(self, ref: str | None) -> Path | None:
        """The output folder of a run, whether its record is still there or not."""
        if ref is None:
            return None
        with contextlib.suppress(NotFound):
            return self._output(self._find(ref)[1])
        cluster, run = names.parse_ref(ref)
        return self.log_dir / cluster / str(run)

    def _output(self, cluster: TFCluster) -> Path:
        """The output folder of a run; guessed for a damaged record, which does not say it."""
        told, of_run = cluster.status.paths.get("output"), cluster.metadata
        return Path(told) if told else self.log_dir / of_run.cluster / str(of_run.run)


def _terminate(folder: RunFolder, cluster: TFCluster) -> bool:
    """Signal the supervisor of a run when nobody listens to its pipe; return whether there was one.
    A supervisor that is only starting is left alone: it will find the written stop.
    """
    if cluster.status.phase is Phase.QUEUED:
        return False
    found = processes.supervisors(folder.path)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    return bool(found)
