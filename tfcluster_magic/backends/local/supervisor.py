"""The supervisor of one run: it passes observations to the lifecycle and applies its decisions.

The supervisor is the only writer of `status.json` and holds the run's lock as long as it lives. Its
tasks die with it, and no process is left when the run is over. It sleeps until something happens or
a requested time has come. It never runs the user's code.

In every turn, the supervisor checks that the run's folder exists and is undamaged; a volume that
cannot be read for the moment counts as intact. Damaged files are written again, because other
programs read them while the run is active. A full disk never ends a run: a failed write of the
status is tried again, and the end of the run is written to reserved space. If the folder is gone,
nothing is written any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ... import state_files
from ...i18n import _, mark
from ...lifecycle import Decision, Observation, decide, waits_for_runs
from ...lifecycle.dependencies import open_dependencies
from ...progress.run_progress import newest_checkpoint
from ...spec import Model, Phase, Spec, Status, Stop, TFCluster, conversion
from . import lost_supervisor, supervisor_events, task_processes
from .run_store import RunFolder
from .supervisor_events import SupervisorEvents
from .task_processes import TaskGroup

if TYPE_CHECKING:
    from .start_queue import StartQueue


class FolderIntegrity:
    """The guard of one run's folder: it detects that the folder is lost, and repairs damaged files.
    `lock_fd` is the descriptor that holds the run's lock.
    """

    def __init__(self, folder: RunFolder, uid: str, lock_fd: int) -> None:
        """Open the folder. Raises OSError, Unreadable."""
        self._folder, self._uid, self._lock_fd = folder, uid, lock_fd
        # Kept open, so that no later folder gets its inode number.
        self._fd = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._contents: dict[Path, tuple[state_files.Stamp | None, bytes]] = {}
        self.remember(folder.record_file, state_files.read_bytes(folder.record_file))

    @property
    def is_lost(self) -> bool:
        """Whether the folder or record is gone, or belongs to another run of the same number."""
        try:
            here = os.stat(self._folder.path)
            os.lstat(self._folder.record_file)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if not os.path.samestat(here, os.fstat(self._fd)):
            return True
        record = self._folder.record_file
        if state_files.stamp(record) == self._contents[record][0]:
            return False  # the record is still the one that was remembered
        with contextlib.suppress(FileNotFoundError, state_files.Unreadable):
            return self._folder.load_record().metadata.uid != self._uid
        return False

    def remember(self, file: Path, content: bytes) -> None:
        """Remember the content of a file, to write it again if it is damaged."""
        self._contents[file] = state_files.stamp(file), content

    def restore(self) -> None:
        """Write damaged files again, and take the lock again if the lock file was replaced."""
        if self.is_lost:
            return
        for file, (stamp, content) in self._contents.items():
            if state_files.stamp(file) != stamp:
                with contextlib.suppress(OSError):  # if the write fails, the next call tries again
                    state_files.write(file, content, spares=self._folder.spares)
                    self._contents[file] = state_files.stamp(file), content
        with contextlib.suppress(OSError):
            self._folder.tasks.mkdir(mode=0o700, exist_ok=True)
        self._lock_again()

    def _lock_again(self) -> None:
        try:
            if os.path.samestat(os.lstat(self._folder.lock_file), os.fstat(self._lock_fd)):
                return
        except FileNotFoundError:
            pass
        except OSError:
            return
        fresh = self._folder.lock()
        if fresh is not None:  # if it is None, a process that reads the run has the lock
            lost_supervisor.write_boot_id(fresh)
            os.close(self._lock_fd)
            self._lock_fd = fresh


# -- the status file -------------------------------------------------------------------------------

WRITE_INTERVAL = 0.2
WRITE_RETRY = 1.0
_RECORD_REMOVED = "the record of the run was removed"


class StatusFileWriter:
    """The only writer of one run's status file."""

    def __init__(self, folder: RunFolder, integrity: FolderIntegrity) -> None:
        self._folder, self._integrity = folder, integrity
        self._written: Status | None = None
        self._wanted: Status | None = None
        self._not_before = 0.0
        self._failed = False

    def put(self, status: Status, urgent: bool = False) -> None:
        """Write `status` at once if possible; otherwise the caller calls `put` again at `due`."""
        self._wanted = status
        if status == self._written:
            return
        now = supervisor_events.steady_now()
        waits = self._failed or not (urgent or _is_significant(self._written, status))
        if waits and now < self._not_before:
            return
        try:
            if self._integrity.is_lost:
                raise FileNotFoundError(
                    errno.ENOENT, _RECORD_REMOVED
                )  # the folder at this path belongs to another run
            self._write(status, last=urgent or _begins_to_end(self._written, status))
        except OSError as error:
            if not self._failed:
                log_line(f"cannot write the status, will try again: {error}")
            self._failed, self._not_before = True, now + WRITE_RETRY
        else:
            self._written, self._failed, self._not_before = status, False, now + WRITE_INTERVAL

    def _write(self, status: Status, *, last: bool) -> None:
        """Write a status; the `last` status is written even on a full disk, with a warning."""
        try:
            text = self._folder.write_status(status, spare=False)
            self._folder.reserve()
        except OSError as error:
            if error.errno not in state_files.FULL or not last:
                raise
            text = self._folder.write_status(
                lost_supervisor.with_full_disks(self._folder, status, full=True)
            )
        self._integrity.remember(self._folder.status_file, text)

    @property
    def settled(self) -> bool:
        """Whether the last status that was passed to `put` is written, or the folder is gone."""
        return self._written == self._wanted or self._integrity.is_lost

    @property
    def due(self) -> float | None:
        """The time at which `put` must be called again (epoch seconds); None if everything is
        written.
        """
        return None if self._written == self._wanted else self._not_before


def log_line(text: str) -> None:
    """Write a line to the supervisor's log."""
    # The log is on the disk of the records, which may be full.
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _begins_to_end(before: Status | None, after: Status) -> bool:
    """Return whether the run begins to end, or has ended."""
    ending = after.phase.is_final or after.phase is Phase.STOPPING
    return ending and (before is None or before.phase is not after.phase)


def _is_significant(before: Status | None, after: Status) -> bool:
    """Return whether a change is urgent: another phase or reason, or a task that ended."""
    if before is None or (before.phase, before.reason) != (after.phase, after.reason):
        return True
    return _ended_counts(before) != _ended_counts(after)


def _ended_counts(status: Status) -> list[tuple[int, int, int]]:
    return [(c.succeeded, c.failed, c.stopped) for c in status.counts.values()]


# -- recorded decisions ----------------------------------------------------------------------------
# A recording is JSON lines: one header, then a step for each decision that changed something. It is
# enabled by TFCLUSTER_RECORD=1; `replay` decides each step again (`tests/data/replay/`).


class RecordingHeader(Model, frozen=True):
    """The first line of a recording, with the state of the run before the first decision."""

    name: str
    spec: Spec
    status: Status


class RecordedStep(Model, frozen=True):
    """One decision and its input: the time `now` (epoch seconds), the observation `seen`, and the
    stop request `stop`, which is None if nobody had asked for a stop.
    """

    now: float
    seen: Observation
    decision: Decision
    stop: Stop | None = None


def recorded_line(entry: RecordingHeader | RecordedStep) -> bytes:
    """Return one line of a recording."""
    return msgspec.json.encode(entry) + b"\n"


def replay(lines: Iterable[bytes]) -> Iterator[tuple[RecordedStep, Decision]]:
    """Yield each recorded step with the decision of the current code. Raises errors of msgspec if a
    line is not part of a recording.
    """
    source = iter(lines)
    header = conversion.decode(next(source), RecordingHeader)
    status = header.status
    for line in source:
        step = conversion.decode(line, RecordedStep)
        spec = msgspec.structs.replace(header.spec, stop=step.stop)
        today = decide(spec, header.name, status, step.seen, step.now)
        yield step, today
        status = step.decision.status


RECORD_VARIABLE = "TFCLUSTER_RECORD"


class DecisionRecorder:
    """The writer of one run's `decisions.jsonl`; it writes nothing unless the environment enables
    recording.
    """

    def __init__(self, folder: RunFolder, name: str, spec: Spec, status: Status) -> None:
        self._path = folder.decisions_file if os.environ.get(RECORD_VARIABLE) == "1" else None
        self._last: tuple[object, ...] = (status, (), (), False)
        self._write(RecordingHeader(name=name, spec=spec, status=status))

    def note(self, now: float, seen: Observation, stop: Stop | None, decision: Decision) -> None:
        """Write a decision unless it repeats the previous one."""
        made = (decision.status, decision.start, decision.stop, decision.done)
        if self._path is not None and made != self._last:
            self._last = made
            self._write(RecordedStep(now=now, seen=seen, decision=decision, stop=stop))

    def _write(self, entry: RecordingHeader | RecordedStep) -> None:
        if self._path is None:
            return
        try:
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(self._path, how | os.O_CLOEXEC, 0o600), "ab") as file:
                file.write(recorded_line(entry))
        except OSError as error:
            self._path = None
            log_line(f"the recording ends here: {error}")


# -- the supervisor --------------------------------------------------------------------------------

TERMINATED = mark(
    "its supervisor was asked to end (SIGTERM: the machine shuts down, or somebody sent it)"
)
REMOVED = mark("its record was removed")
PATROL_INTERVAL = 5.0
"""Maximum seconds between two turns of the supervisor, even if nothing happens. No event reports
that the run's folder was removed, or that a client wrote a stop request and died before it woke the
supervisor; only such a turn finds this. The interval also limits the supervisor's sleep, because
Linux refuses timeouts of several weeks.
"""


WAIT_INTERVAL = 1.0
"""Maximum seconds between two turns of the supervisor while the run waits for other runs or for
resources. The supervisor must check them, because no event reports their changes.
"""


def _start_queue(folder: RunFolder, cluster: TFCluster) -> StartQueue | None:
    """If the run waits for other runs (`after`), return its place in the start queue; otherwise
    return None.
    """
    if not cluster.spec.after:
        return None
    # This module imports the checks of free resources. Supervisors of other runs do not need them
    # and stay small.
    from .start_queue import StartQueue

    return StartQueue(folder, cluster)


class Supervisor:
    """The supervisor of one run, from its first task to its last."""

    def __init__(self, folder: RunFolder, lock_fd: int) -> None:
        """Prepare the tasks, unless the run waits for others. Raises OSError."""
        cluster = folder.load()
        # If this launch was interrupted, it was undone, and the next launch may have the folder by
        # now.
        folder.load_record()
        if cluster is None or not os.path.samestat(os.stat(folder.lock_file), os.fstat(lock_fd)):
            raise RuntimeError(f"{folder.record_file} is not the record of this run")
        self._folder, self._name = folder, cluster.metadata.name
        self._integrity = FolderIntegrity(folder, cluster.metadata.uid, lock_fd)
        self._spec: Spec = cluster.spec
        self._wakeups = SupervisorEvents(folder.control)
        self._status: Status = cluster.status
        self._queue = _start_queue(folder, cluster)
        """The run's place among the waiting runs; None once it has its resources."""
        if self._queue is None:
            self._prepare_tasks()
        self._output = Path(self._status.paths["output"])
        self._task_group = TaskGroup(
            folder, cluster.metadata.uid, self._spec, self._output, self._wakeups.report_fd
        )
        self._publisher = StatusFileWriter(folder, self._integrity)
        self._recorder = DecisionRecorder(folder, self._name, self._spec, self._status)
        self._integrity.remember(folder.status_file, folder.write_status(self._status))

    def _prepare_tasks(self) -> None:
        """Reserve the ports and publish them. Raises OSError."""
        folder = self._folder
        addresses, self._held_ports = task_processes.reserve_ports(self._spec.replicas.counts)
        described = state_files.load(folder.task_file, dict[str, object])
        text = msgspec.json.encode({**described, "addresses": addresses})
        state_files.write(folder.task_file, text)
        self._integrity.remember(folder.task_file, text)
        with contextlib.suppress(FileNotFoundError):  # a run without GPUs has no such file
            self._integrity.remember(folder.gpus_file, state_files.read_bytes(folder.gpus_file))
        self._status = replace(self._status, addresses=addresses)

    def run(self) -> None:
        """Work until the run is over and has released all its resources."""
        self._take_stop(None)
        while True:
            decision = self._turn()
            if decision.done:
                self._task_group.clean_up()
            self._publisher.put(self._status, urgent=decision.done)
            if decision.done and self._publisher.settled:
                if not self._integrity.is_lost:
                    self._folder.clear()
                return
            self._sleep(decision.wake_at)

    def _turn(self) -> Decision:
        """Take one turn: decide what to do, and do it; repeat at once if a task was started."""
        while True:
            decision = self._wait() if self._queue is not None else self._decide(self._observe())
            self._task_group.end(decision.stop)
            for wanted in decision.start:
                self._task_group.start(wanted)
            if not decision.start:
                return decision

    def _observe(self) -> Observation:
        checkpoint = newest_checkpoint(self._output) if self._task_group.has_failures else None
        return Observation(
            tasks=self._task_group.observe(),
            checkpoint=checkpoint,
            cores=self._task_group.cores,
            used=self._task_group.used,
        )

    def _decide(self, seen: Observation) -> Decision:
        now = supervisor_events.steady_now()
        decision = decide(self._spec, self._name, self._status, seen, now)
        self._recorder.note(now, seen, self._spec.stop, decision)
        self._status = decision.status
        return decision

    def _wait(self) -> Decision:
        """Decide what to do with a run that waits for other runs and then for resources. When the
        resources are free, reserve them.
        """
        assert self._queue is not None
        left = open_dependencies(self._spec, self._status.awaited)
        runs = self._queue.awaited(left)
        decision = self._decide(replace(self._observe(), admitted=False, runs=runs))
        if self._status.phase is not Phase.QUEUED:
            self._queue = None  # the run was stopped, or cannot start any more
            return decision
        if waits_for_runs(self._spec, self._status):
            return decision
        # written at once, because other waiting runs derive the order of starts from this status
        self._publisher.put(self._status, urgent=True)
        with self._queue.room(self._status) as lack:
            if lack is not None:
                return self._decide(replace(self._observe(), admitted=False, waiting_for=lack))
            self._prepare_tasks()
            decision = self._decide(self._observe())
            # written before another run can measure the free resources
            self._publisher.put(self._status, urgent=True)
        self._queue = None
        return decision

    def _sleep(self, wake_at: float | None) -> None:
        patrol = PATROL_INTERVAL if self._queue is None else WAIT_INTERVAL
        due = (
            supervisor_events.steady_now() + patrol,
            wake_at,
            self._task_group.due,
            self._publisher.due,
        )
        woken = self._wakeups.wait(min(at for at in due if at is not None))
        self._task_group.take_reports(woken.reports)
        if woken.children:
            self._task_group.reap()
        self._task_group.enforce_limits()
        self._integrity.restore()
        self._wakeups.renew()
        if woken.terminate:
            self._take_stop(
                Stop(reason=_(TERMINATED), by=_("this machine"), at=supervisor_events.steady_now())
            )
        elif self._integrity.is_lost:
            self._take_stop(
                Stop(reason=_(REMOVED), by=_("this machine"), at=supervisor_events.steady_now())
            )
        # even if nothing woke us: a client may have written a stop request and died before it could
        # wake us
        else:
            self._take_stop(woken.stop)

    def _take_stop(self, asked: Stop | None) -> None:
        """Add a stop request to the spec. A request on disk takes precedence over `asked`, and only
        the first one counts.
        """
        if self._spec.stop is not None:
            return
        stop = state_files.read(self._folder.stop_file, Stop) or asked
        if stop is not None:
            self._spec = replace(self._spec, stop=stop)


def main(path: str, lock_fd: int, ready_fd: int) -> None:
    """Supervise the run in `path`; `lock_fd` holds its lock, `ready_fd` gets a byte once the
    supervisor is ready.
    """
    os.set_inheritable(lock_fd, False)
    os.set_inheritable(ready_fd, False)
    try:
        supervisor = Supervisor(RunFolder(Path(path)), lock_fd)
        with contextlib.suppress(BrokenPipeError):  # the launcher has ended
            os.write(ready_fd, b"1")
        os.close(ready_fd)
        supervisor.run()
    except BaseException:  # noqa: BLE001 - readers expect the traceback in supervisor.log
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
        os._exit(1)
    os._exit(0)  # skips Python's finalization, which takes time and is not needed
