"""The one lifecycle of a TFCluster, for every backend: a pure function from what is seen to what is
true and due.

`decide` is level-triggered and has no memory but the status it is given, so a backend may call it
as often as it likes, after any restart, with the same result. It never touches a world, a clock or
a file. The rules in words, with their defaults, are in docs/lifecycle.md.
"""

from __future__ import annotations

from ..spec import Phase, Spec, Status
from .observation import Decision, Observation, ObservedTask, StartTask, Why
from .phases import active, queued, stopping
from .reclaim import release
from .turn import Turn

__all__ = ["Decision", "Observation", "ObservedTask", "StartTask", "Why", "decide"]

_RULES = {
    Phase.QUEUED: queued,
    Phase.STARTING: active,
    Phase.RUNNING: active,
    Phase.STOPPING: stopping,
    Phase.SUCCEEDED: release,
    Phase.FAILED: release,
    Phase.STOPPED: release,
}


def decide(spec: Spec, name: str, status: Status, seen: Observation, now: float) -> Decision:
    """Decide the next status of run `name` and what to start and stop, `now` in epoch seconds."""
    turn = Turn(spec, name, status, seen, now)
    _RULES[status.phase](turn)
    if turn.phase is Phase.FAILED and not status.phase.is_final:
        release(turn)
    return turn.decision()
