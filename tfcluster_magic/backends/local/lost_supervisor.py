"""The clean-up of a run whose supervisor was killed, crashed, or was lost with a reboot.

If a run has not released its resources and its lock is free, the first process that reads the run
takes the lock, ends all processes and control groups of the run, and writes its final status. A
starting supervisor does not count as lost: the launch holds the lock before the record exists, and
passes it on.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from msgspec.structs import replace

from ... import state_files
from ...lifecycle import messages
from ...quota import ledger
from ...spec import Message, Phase, Reason, Status, TaskState, TFCluster, TypeCounts, Usage
from . import memory_limits, processes
from .run_store import RunFolder

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_FORMAT = re.compile(rb"[0-9a-f-]{36}")


def write_boot_id(lock_fd: int) -> None:
    """Write the id of the machine's current boot into the lock file."""
    with contextlib.suppress(OSError):
        os.pwrite(lock_fd, _boot_id(), 0)
        os.ftruncate(lock_fd, len(_boot_id()))


def load_run(folder: RunFolder) -> TFCluster | None:
    """Return the run in `folder`; None if the folder has no run. If the run's supervisor is gone,
    end the run first.
    """
    cluster = folder.load()
    if cluster is None or cluster.status.released_at is not None:
        return cluster
    lock_fd = folder.lock()
    if lock_fd is None:
        return _with_supervisor(folder, cluster)
    try:
        cluster = folder.load()  # the run may have ended before we had the lock
        if cluster is None or cluster.status.released_at is not None:
            return cluster
        # the supervisor lives, but its lock file was removed or replaced
        if processes.supervisors(folder.path):
            return _with_supervisor(folder, cluster)
        for uid in folder.uids():
            if not processes.write_elsewhere(uid, folder.tasks):
                processes.end_all(uid)
                memory_limits.remove_noted_groups(folder.cgroup_file, uid)
        boot = os.pread(lock_fd, 100, 0)
        status = _final_status(folder, cluster, boot, time.time())
        try:
            folder.write_status(status)
        except OSError:  # the disk is full: the next reader infers the same end and time
            ended_at = max(_last_write(folder), cluster.status.started_at or 0.0)
            status = _final_status(folder, cluster, boot, ended_at)
        folder.clear()
        return replace(cluster, status=folder.with_record_problem(status))
    finally:
        os.close(lock_fd)


def _with_supervisor(folder: RunFolder, cluster: TFCluster) -> TFCluster:
    """Return a run whose supervisor lives, with warnings about full disks. If its record is
    damaged, ask the supervisor to repair it.
    """
    if cluster.status.reason is Reason.RECORD_DAMAGED:
        folder.wake()
    return replace(cluster, status=with_full_disks(folder, cluster.status))


def with_full_disks(folder: RunFolder, status: Status, *, full: bool = False) -> Status:
    """Add warnings to a status if the disk of the records or of the output is full. `full` is
    whether a write to the disk of the records has failed. In this case the disk counts as full even
    if it reports free space, as a disk with a quota does.
    """
    places = {folder.path, Path(status.paths.get("output") or folder.path)}
    mounts = {state_files.mount_point(place) for place in places if state_files.is_full(place)}
    mounts |= {state_files.mount_point(folder.path)} if full else set()
    found = [messages.full_disk(mount) for mount in sorted(mounts)]
    more = [text for text in found if text not in status.warnings]
    return replace(status, warnings=(*status.warnings, *more)) if more else status


def _final_status(folder: RunFolder, cluster: TFCluster, boot: bytes, now: float) -> Status:
    before = replace(cluster.status, usage=_usage_until_last_write(folder, cluster.status.usage))
    name = cluster.metadata.name
    what = _cause_of_loss(folder, boot)
    if before.phase.is_final:
        told = messages.event(
            now, Reason.SUPERVISOR_LOST, Message("LeftoversEnded", {"what": what})
        )
        left = _without_tasks(before, TaskState.STOPPED)
        return replace(left, released_at=now, events=(*before.events, told)[-50:])
    if before.phase is Phase.STOPPING:
        phase, reason, ended = Phase.STOPPED, before.reason, TaskState.STOPPED
        message = Message("StoppedUnsaid", {"what": what})
    else:
        phase, reason, ended = Phase.FAILED, Reason.SUPERVISOR_LOST, TaskState.FAILED
        message = Message("SupervisorLost", {"what": what, "name": name})
        # A run that starts writes this log first, so without the log the launch was interrupted.
        if before.phase is Phase.QUEUED and not folder.supervisor_log.exists():
            message = Message("LaunchInterrupted", {"name": name})
    final = replace(
        _without_tasks(before, ended),
        phase=phase,
        reason=reason,
        finished_at=now,
        released_at=now,
        retry_at=None,
        window_opened_at=None,
        events=(
            *before.events,
            messages.event(now, Reason.SUPERVISOR_LOST, message),
        )[-50:],
    )
    return messages.with_messages(final, message)


def is_interrupted_launch(status: Status) -> bool:
    """Return whether the launch was killed before the supervisor took over, so that no task ever
    ran.
    """
    return status.reason is Reason.SUPERVISOR_LOST and status.started_at is None


def _cause_of_loss(folder: RunFolder, boot: bytes) -> Message:
    if folder.is_damaged:
        return Message("StatusFileDamaged")
    if _BOOT_ID_FORMAT.fullmatch(boot) and boot != _boot_id():
        return Message("MachineRestarted")
    words = last_supervisor_lines(folder, lines=1) or Message("SaidNothing")
    if b"Traceback (most recent call last)" in state_files.read_tail(folder.supervisor_log, 65536):
        return Message("SupervisorError", {"words": words})
    return Message("SupervisorKilled")


def last_supervisor_lines(folder: RunFolder, lines: int) -> str:
    """Return the last lines of the supervisor's log, for a message; empty if there are none."""
    text = state_files.read_tail(folder.supervisor_log, 8192).decode("utf-8", "replace")
    words = [line.strip() for line in text.splitlines()[-lines:] if line.strip()]
    return " / ".join(words)


def _last_write(folder: RunFolder) -> float:
    """Return when a task or the supervisor last wrote a file. The time depends only on the files,
    so every process that reads the run gets the same time.
    """
    signs = [0.0]
    with contextlib.suppress(OSError):
        signs += [each.lstat().st_mtime for each in folder.tasks.iterdir()]
    return min(max(signs), time.time())


def _usage_until_last_write(folder: RunFolder, before: Usage | None) -> Usage | None:
    """Return the usage until the last write of the tasks, because the time at which the supervisor
    died is unknown.
    """
    if before is None:
        return None
    until = max(before.at, _last_write(folder))
    ended = [
        (kind, before.at, until) for kind, tasks in before.holding.items() for _ in range(tasks)
    ]
    return ledger.update_usage(before, ended, until, before.cores)


def _without_tasks(status: Status, ended: TaskState) -> Status:
    """Return `status` without running tasks; tasks that were up get the state `ended`."""
    up = (TaskState.STARTING, TaskState.RUNNING)
    return replace(
        status,
        counts={t: _all_ended(c, ended) for t, c in status.counts.items()},
        attention=tuple(
            replace(task, state=ended) if task.state in up else task for task in status.attention
        ),
    )


def _all_ended(counts: TypeCounts, ended: TaskState) -> TypeCounts:
    field = ended.value.lower()
    more = counts.starting + counts.running
    return replace(counts, starting=0, running=0, **{field: getattr(counts, field) + more})


def _boot_id() -> bytes:
    try:
        return _BOOT_ID_FILE.read_bytes().strip()
    except OSError:
        return b""
