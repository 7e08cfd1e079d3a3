"""The lifecycle of a TFCluster for every backend: a pure function from observations to decisions.

`decide` is level-triggered and has no memory except the status that it gets. So a backend may call
it at any time, even after a restart, with the same result. `decide` uses no clock, file or network.
docs/explanation/lifecycle.md has the rules in words, docs/reference/limits.md the defaults.
"""

from __future__ import annotations

from ..spec import Phase, Spec, Status
from .dependencies import waits_for_runs
from .observation import (
    Decision,
    Observation,
    ObservedTask,
    Quiet,
    SeenRun,
    StartTask,
    WaitingReason,
)
from .phases import advance_active, advance_queued, advance_stopping
from .reclaim import release_tasks
from .turn import Turn

__all__ = [
    "Decision",
    "Observation",
    "ObservedTask",
    "Quiet",
    "SeenRun",
    "StartTask",
    "WaitingReason",
    "decide",
    "waits_for_runs",
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
    """Decide the next status of the run `name`, and which tasks to start and stop. `now` is the
    time in epoch seconds.
    """
    turn = Turn(spec, name, status, seen, now)
    _RULES[status.phase](turn)
    if turn.phase is Phase.FAILED and not status.phase.is_final:
        release_tasks(turn)
    return turn.decision()
