"""A launch on disk: it reserves name, number and devices in one step, writes the record last, and
then starts the supervisor.

A launch that fails anywhere leaves no record, no process and no folder. A launch passes the run's
lock to the supervisor, so that no reader ever finds a record without a supervisor. The supervisor
survives the kernel, the terminal and the notebook server. If the supervisor fails to start, the
error has the last lines of its log.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ... import paths, state_files
from ...errors import BackendUnavailable, Problem, SetupRefused, TFClusterError
from ...i18n import _
from ...launch import LaunchRequest
from ...lifecycle.dependencies import is_done
from ...lifecycle.messages import with_first_reason
from ...program import materialise
from ...spec import Metadata, Phase, Reason, Spec, Status, TFCluster, names, task_file
from ...spec.task_file import guard_path
from . import capacity, lost_supervisor
from .lost_supervisor import last_supervisor_lines
from .run_store import RunFolder, Store
from .start_queue import awaited_runs
from .task_processes import scrubbed

START_TIMEOUT = 30.0
"""Maximum seconds to wait for a supervisor's ready signal. After that, the launch returns, and a
slow supervisor continues: the lock that it holds shows that it lives.
"""
_BOOTSTRAP = Path(__file__).with_name("__main__.py")


def own_interpreter() -> str:
    """Return the Python that runs supervisors and tasks: the current one.

    Raises:
        BackendUnavailable: this Python does not know its own executable.
    """
    if not sys.executable:
        raise BackendUnavailable(
            _("this Python does not know its own executable: start it by its full path")
        )
    return sys.executable


def start_supervisor(folder: RunFolder, lock_fd: int) -> None:
    """Start the supervisor of `folder`, which inherits `lock_fd`.

    Raises:
        BackendUnavailable: the supervisor could not be started, or ended at once.
    """
    ready, tell = os.pipe()
    try:
        with open(folder.supervisor_log, "ab") as log:
            process = subprocess.Popen(
                [
                    own_interpreter(),
                    "-I",
                    "-S",
                    str(_BOOTSTRAP),
                    str(folder.path),
                    str(lock_fd),
                    str(tell),
                    *_import_path(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=scrubbed(os.environ),
                pass_fds=(lock_fd, tell),
                start_new_session=True,
            )
        os.close(tell)
        tell = -1
        process.wait()  # `process` is the first of two forked processes and ends at once
        if _is_readable(ready) and not os.read(ready, 1):
            words = last_supervisor_lines(folder, lines=1)
            raise BackendUnavailable(
                _("the supervisor of this run could not start: {why}").format(
                    why=words or _("it printed nothing")
                )
            )
    except OSError as error:
        raise BackendUnavailable(
            _("the supervisor of this run could not start: {why}").format(why=error)
        ) from None
    finally:
        os.close(ready)
        if tell >= 0:
            os.close(tell)


def _is_readable(ready: int) -> bool:
    """Return whether the pipe `ready` has data or is closed within START_TIMEOUT seconds."""
    poll = select.poll()  # unlike select(), poll() accepts the high descriptors of a busy kernel
    poll.register(ready, select.POLLIN)
    return bool(poll.poll(START_TIMEOUT * 1000))


def _import_path() -> list[str]:
    """Return the import path of the supervisor: this package and msgspec."""
    package = Path(__file__).resolve().parents[3]
    return list(dict.fromkeys([str(package), str(Path(msgspec.__file__).resolve().parents[1])]))


# -- the task file ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskFolders:
    """The folders of a run's tasks."""

    data: Path
    output: Path
    resume_from: Path | None


def task_description(
    metadata: Metadata, spec: Spec, program_dir: Path, folders: TaskFolders
) -> dict[str, object]:
    """Return the content of `task.json`, without addresses.

    Raises:
        BackendUnavailable: this Python does not know its own executable.
    """
    described = task_file.task_description(
        metadata,
        spec,
        program_dir=str(program_dir),
        data_dir=str(folders.data),
        output_dir=str(folders.output),
        resume_from=str(folders.resume_from) if folders.resume_from else None,
        workspace=str(paths.home_dir()),
    )
    return described | {
        "addresses": {},
        "loopback": guard_path(),
        "interpreter": spec.interpreter or own_interpreter(),
    }


# -- the launch ------------------------------------------------------------------------------------


@dataclass
class Launch:
    """One launch in progress; used under the launch lock until `write` has returned."""

    store: Store
    data_dir: Path
    log_dir: Path
    resume_from: Path | None

    def write(
        self,
        cluster: str,
        request: LaunchRequest,
        warnings: Sequence[str],
        free_gpus: Sequence[str] | None,
    ) -> tuple[RunFolder, int]:
        """Create the next run of `cluster`; return its folder and the descriptor of its lock, which
        is held.

        Raises:
            SetupRefused: the run's log folder cannot be created.
            BackendUnavailable: this Python does not know its own executable.
            TFClusterError: the state folder or the program's snapshot cannot be written.
        """
        folder: RunFolder | None = None
        lock_fd: int | None = None
        try:
            run, folder = self.store.allocate(cluster, self.log_dir, request.run)
            lock_fd = folder.lock()
            if lock_fd is None:
                raise OSError(
                    None, _("{lock_file} cannot be locked").format(lock_file=folder.lock_file)
                )
            lost_supervisor.write_boot_id(lock_fd)
            metadata = Metadata(
                name=names.run_name(cluster, run),
                cluster=cluster,
                run=run,
                uid=str(uuid.uuid4()),
                created_at=time.time(),
                owner=request.owner,
                scheduled=request.scheduled,
            )
            self._fill(folder, metadata, request.spec, free_gpus)
            status = Status(
                phase=Phase.QUEUED,
                reason=Reason.QUEUED,
                paths={"output": str(self._output(folder)), "logs": str(folder.tasks)},
                warnings=(*request.warnings, *warnings),
                inferred=request.inferred,
            )
            after = request.spec.after
            seen = awaited_runs(self.store, after)
            done = [e.run for e in after if e.run in seen and is_done(e, seen[e.run])]
            folder.write_status(with_first_reason(request.spec, status, done))
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
                        "{text!r} is not UTF-8 text, and the record of a run can hold only UTF-8 "
                        "text: use a folder with another name"
                    ).format(text=error.object)
                ) from None
            raise
        return folder, lock_fd

    def _fill(
        self,
        folder: RunFolder,
        metadata: Metadata,
        spec: Spec,
        free_gpus: Sequence[str] | None,
    ) -> None:
        """Write the files and create the folders that the run's tasks need."""
        folder.tasks.mkdir(mode=0o700)
        folder.write_uid(metadata.uid)
        folder.reserve()
        output = self._output(folder)
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = _(
                "it cannot be created: {why}; name another folder in TFCLUSTER_LOG_DIR"
            ).format(why=error.strerror)
            raise SetupRefused([Problem(_("log folder"), str(output), text)]) from None
        if spec.program is not None and (spec.program.files is not None or spec.program.is_stored):
            materialise(spec.program, folder.program, paths.home_dir(), folder_mode=0o755)
        elif spec.program is not None:
            # If the program is a URL, the tasks download it into this folder.
            folder.program.mkdir(exist_ok=True)
        if free_gpus is not None:
            given = capacity.assign_gpus(spec, free_gpus)
            state_files.write(folder.gpus_file, msgspec.json.encode(given))
        described = task_description(
            metadata, spec, folder.program, TaskFolders(self.data_dir, output, self.resume_from)
        )
        state_files.write(folder.task_file, msgspec.json.encode(described))

    def hand_over(self, folder: RunFolder, lock_fd: int) -> TFCluster:
        """Start the supervisor, and return the run as it is after that.

        Raises:
            BackendUnavailable: the supervisor did not start. Then nothing is left of the run.
        """
        try:
            start_supervisor(folder, lock_fd)
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
        """Remove the run's folder that a launch created, and the run's output folder if it is
        empty.
        """
        self.store.undo(folder, self.log_dir)

    def _output(self, folder: RunFolder) -> Path:
        return self.log_dir / folder.path.parent.name / folder.path.name
