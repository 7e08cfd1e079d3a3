"""The one lifecycle of a TFCluster, for every backend: a pure function from what is seen to what is
true and due.

`decide` is level-triggered and has no memory but the status it is given, so a backend may call it
as often as it likes, after any restart, with the same result. It never touches a world, a clock or
a file. The rules in words, with their defaults, are in docs/lifecycle.md.
"""

from __future__ import annotations

from ..spec import Phase, Spec, Status
from .observation import Decision, Observation, ObservedTask, Quiet, StartTask, WaitingReason
from .phases import advance_active, advance_queued, advance_stopping
from .reclaim import release_tasks
from .turn import Turn

__all__ = [
    "Decision",
    "Observation",
    "ObservedTask",
    "Quiet",
    "StartTask",
    "WaitingReason",
    "decide",
]

_RULES = {
    Phase.QUEUED: advance_queued,
    Phase.STARTING: advance_active,
    Phase.RUNNING: advance_active,
    Phase.STOPPING: advance_stopping,
    Phase.SUCCEEDED: release_tasks,
    Phase.FAILED: release_tasks,
    Phase.STOPPED: release_tasks,
}


def decide(spec: Spec, name: str, status: Status, seen: Observation, now: float) -> Decision:
    """Decide the next status of run `name` and what to start and stop, `now` in epoch seconds."""
    turn = Turn(spec, name, status, seen, now)
    _RULES[status.phase](turn)
    if turn.phase is Phase.FAILED and not status.phase.is_final:
        release_tasks(turn)
    return turn.decision()
