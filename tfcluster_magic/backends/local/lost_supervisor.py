"""Ends, in its place, a run whose supervisor is gone: killed, crashed, or lost with a reboot.

An unreleased record whose lock is free gets its final status from whichever reader comes first, and
from one only (it holds the lock meanwhile), with no process and no control group left. A supervisor
that is only starting is not taken for lost: the launch holds the lock before the record exists, and
hands it over.
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
from .store import RunFolder

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_FORMAT = re.compile(rb"[0-9a-f-]{36}")


def write_boot_id(lock_fd: int) -> None:
    """Write into the lock file during which boot of the machine the run lives."""
    with contextlib.suppress(OSError):
        os.pwrite(lock_fd, _boot_id(), 0)
        os.ftruncate(lock_fd, len(_boot_id()))


def load_run(folder: RunFolder) -> TFCluster | None:
    """The run in `folder` as it truly is: ended, if its supervisor is gone. None when it is not a
    run.
    """
    cluster = folder.load()
    if cluster is None or cluster.status.released_at is not None:
        return cluster
    lock_fd = folder.lock()
    if lock_fd is None:
        return _with_supervisor(folder, cluster)
    try:
        cluster = folder.load()  # it may have come to its end before we had the lock
        if cluster is None or cluster.status.released_at is not None:
            return cluster
        if processes.supervisors(folder.path):  # its lock file was removed or replaced
            return _with_supervisor(folder, cluster)
        for uid in folder.uids():
            if not processes.write_elsewhere(uid, folder.tasks):
                processes.end_all(uid)
                memory_limits.remove_noted_groups(folder.cgroup_file, uid)
        boot = os.pread(lock_fd, 100, 0)
        status = _final_status(folder, cluster, boot, time.time())
        try:
            folder.write_status(status)
        except OSError:  # a full disk: the next reader infers the same end and time
            ended_at = max(_last_write(folder), cluster.status.started_at or 0.0)
            status = _final_status(folder, cluster, boot, ended_at)
        folder.clear()
        return replace(cluster, status=folder.with_record_problem(status))
    finally:
        os.close(lock_fd)


def _with_supervisor(folder: RunFolder, cluster: TFCluster) -> TFCluster:
    """Return a run whose supervisor lives, with a full disk named; ask it to repair what is
    damaged.
    """
    if cluster.status.reason is Reason.RECORD_DAMAGED:
        folder.wake()
    return replace(cluster, status=with_full_disks(folder, cluster.status))


def with_full_disks(folder: RunFolder, status: Status, *, full: bool = False) -> Status:
    """Add to a status which disk is full, that of the records or of the output.

    `full`: a write to the records' disk failed, whatever space it reports (as with a quota).
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
        # The log is the first thing that a start leaves.
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
    """The last lines of the supervisor's log, for a message; empty when there are none."""
    text = state_files.read_tail(folder.supervisor_log, 8192).decode("utf-8", "replace")
    words = [line.strip() for line in text.splitlines()[-lines:] if line.strip()]
    return " / ".join(words)


def _last_write(folder: RunFolder) -> float:
    """Return when a task or the supervisor last wrote something; the same for every reader."""
    signs = [0.0]
    with contextlib.suppress(OSError):
        signs += [each.lstat().st_mtime for each in folder.tasks.iterdir()]
    return min(max(signs), time.time())


def _usage_until_last_write(folder: RunFolder, before: Usage | None) -> Usage | None:
    """What tasks held until the last sign of them: nobody saw when the supervisor died."""
    if before is None:
        return None
    until = max(before.at, _last_write(folder))
    ended = [
        (kind, before.at, until) for kind, tasks in before.holding.items() for _ in range(tasks)
    ]
    return ledger.update_usage(before, ended, until, before.cores)


def _without_tasks(status: Status, ended: TaskState) -> Status:
    """`status` when nothing runs any more: what was up has `ended`."""
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
