"""A launch on disk: name, number and devices in one step, all of it written, the record last.

Promises all or nothing: a launch that fails anywhere leaves no record, no process, no folder. It
hands the run over to its supervisor together with the run's lock, so that no reader ever finds a
record that nobody looks after.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ... import paths, state_files
from ...errors import PreflightRefused, Problem, TFClusterError
from ...i18n import _
from ...launch import LaunchRequest
from ...program import materialise
from ...spec import Metadata, Phase, Reason, Spec, Status, TFCluster, names
from . import description, detach, gpus, repair
from .description import Folders
from .store import RunFolder, Store


@dataclass
class Launch:
    """One launch under way; used under the launch lock until `write` has returned."""

    store: Store
    data_dir: Path
    log_dir: Path
    resume_from: Path | None

    def write(
        self,
        cluster: str,
        request: LaunchRequest,
        warnings: Sequence[str],
        free_gpus: Sequence[str],
    ) -> tuple[RunFolder, int]:
        """Make the next run of `cluster` exist; its folder, and its lock, which is held.

        Raises:
            PreflightRefused: the run's log folder cannot be made.
            BackendUnavailable: this Python does not know its own executable.
            TFClusterError: the state folder or the program's snapshot fails.
        """
        folder: RunFolder | None = None
        lock_fd: int | None = None
        try:
            run, folder = self.store.allocate(cluster, self.log_dir)
            lock_fd = folder.lock()
            if lock_fd is None:
                raise OSError(
                    None, _("{lock_file} cannot be locked").format(lock_file=folder.lock_file)
                )
            repair.note_boot(lock_fd)
            metadata = Metadata(
                name=names.run_name(cluster, run),
                cluster=cluster,
                run=run,
                uid=str(uuid.uuid4()),
                created_at=time.time(),
                owner=request.owner,
            )
            self._fill(folder, metadata, request.spec, free_gpus)
            folder.write_status(
                Status(
                    phase=Phase.QUEUED,
                    reason=Reason.QUEUED,
                    paths={"output": str(self._output(folder)), "logs": str(folder.tasks)},
                    warnings=(*request.warnings, *warnings),
                )
            )
            self.store.commit(folder, metadata, request.spec)
        except BaseException as error:
            if folder is not None:
                self.undo(folder)
            if lock_fd is not None:
                os.close(lock_fd)
            if isinstance(error, OSError):
                raise TFClusterError(
                    _(
                        "the run could not be recorded under {state_dir}: "
                        "{why}; free space there, "
                        "or name another folder in TFCLUSTER_STATE_DIR"
                    ).format(state_dir=self.store.state_dir, why=error.strerror)
                ) from None
            if isinstance(error, UnicodeEncodeError):
                raise TFClusterError(
                    _(
                        "{text!r} is not UTF-8 text, and the record of a run holds nothing "
                        "else: use a folder with another name"
                    ).format(text=error.object)
                ) from None
            raise
        return folder, lock_fd

    def _fill(
        self, folder: RunFolder, metadata: Metadata, spec: Spec, free_gpus: Sequence[str]
    ) -> None:
        """Everything that the tasks need."""
        folder.tasks.mkdir(mode=0o700)
        folder.write_uid(metadata.uid)
        folder.reserve()
        output = self._output(folder)
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = _("it cannot be made: {why}; name another one in TFCLUSTER_LOG_DIR").format(
                why=error.strerror
            )
            raise PreflightRefused([Problem(_("log folder"), str(output), text)]) from None
        if spec.program is not None:
            materialise(spec.program, folder.program, paths.home_dir())
        if gpus.present():
            state_files.write(folder.gpus_file, msgspec.json.encode(gpus.assign(spec, free_gpus)))
        described = description.of_tasks(
            metadata, spec, folder.program, Folders(self.data_dir, output, self.resume_from)
        )
        state_files.write(folder.task_file, msgspec.json.encode(described))

    def hand_over(self, folder: RunFolder, lock_fd: int) -> TFCluster:
        """Start the supervisor, and give the run as it says it is.

        Raises:
            BackendUnavailable: it did not start; then nothing is left of the run.
        """
        try:
            detach.start(folder, lock_fd)
        except BaseException:
            self.undo(folder)
            raise
        finally:
            os.close(lock_fd)
        created = folder.load()
        if created is None:
            raise TFClusterError(
                _("the record was removed while its run started: {path}").format(path=folder.path)
            )
        return created

    def undo(self, folder: RunFolder) -> None:
        """Remove what a launch made; its output folders, while nothing is in them."""
        self.store.undo(folder, self.log_dir)

    def _output(self, folder: RunFolder) -> Path:
        return self.log_dir / folder.path.parent.name / folder.path.name
