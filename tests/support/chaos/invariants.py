"""Invariants of a status under chaos, for any backend."""

from __future__ import annotations

from tfcluster_magic.spec import Phase, Reason, Status, TaskState

ENDS = frozenset(Reason) - {
    Reason.QUEUED,
    Reason.STARTING,
    Reason.RUNNING,
    Reason.HEALING,
    Reason.BACKING_OFF,
    Reason.INVESTIGATING,
}
ORDER = (Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
"""The active phases in their order: a run may skip phases, but never goes back. A final phase may
follow any of them.
"""


def check_change(before: Status, after: Status) -> None:
    """Check that a run's phase only advances, that it ends only once, and that its addresses stay
    the same.
    """
    if before.phase.is_final:
        assert after.phase is before.phase, (before, after)
        assert after.reason is before.reason, (before, after)
    elif not after.phase.is_final:
        assert ORDER.index(before.phase) <= ORDER.index(after.phase), (before, after)
    assert before.released_at is None or after.released_at is not None, (before, after)
    assert not before.addresses or before.addresses == after.addresses, (before, after)


def check_end(status: Status) -> None:
    """Check that an ended run has a reason, message and time, and that only a stopped run is
    `Stopped`.
    """
    assert status.reason in ENDS, status
    assert status.message.endswith("."), status
    assert status.finished_at is not None, status
    asked = any(event.reason == Reason.STOP_REQUESTED.value for event in status.events)
    assert asked or status.phase is not Phase.STOPPED, status


def check_released(status: Status) -> None:
    """Check that a run without resources has no task in a live state."""
    for of_type, counts in status.counts.items():
        assert counts.running + counts.starting == 0, (of_type, status)
    alive = (TaskState.RUNNING, TaskState.STARTING)
    assert not [task for task in status.attention if task.state in alive], status
