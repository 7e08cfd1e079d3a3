"""The end of what a run holds: when parameter servers are reclaimed, and what that freed.

Trainers end by themselves; parameter servers would wait for ever, so they are stopped
`lifecycle.reclaimAfter` after the trainers have succeeded.
"""

from __future__ import annotations

from ..spec import Cause, Phase, Reclaimed
from ..spec.names import parse_task
from ..spec.quantities import parse_memory
from . import messages
from .turn import Turn


def to_reclaim(turn: Turn) -> tuple[float, list[str]]:
    """How long after success parameter servers are kept, and those that still run."""
    servers = [t for t in turn.all_tasks if t not in turn.trainers]
    return turn.spec.lifecycle.reclaim_after, turn.alive(servers)


def release_tasks(turn: Turn) -> None:
    """Give back everything after the end: parameter servers once `_reclaim_at` has come, all others
    at once. Say what was freed.
    """
    holding = turn.alive()
    reclaim_at = _reclaim_at(turn)
    if turn.now >= reclaim_at:
        turn.stop += holding
    else:
        turn.stop += [t for t in holding if t in turn.trainers]
        turn.wake(reclaim_at)
    if not holding and not turn.seen.may_come:
        turn.set(released_at=turn.now)
        if turn.phase is Phase.SUCCEEDED:
            also = turn.get("messages")[1:]  # what the run did not do stays said
            turn.say(turn.get("reason"), messages.succeeded(turn.required(), 0, ()), *also)
        _record_reclaimed(turn)
        turn.done = True


def _reclaim_at(turn: Turn) -> float:
    """When parameter servers are reclaimed: `reclaim_after` seconds after a success, which a stop
    cuts short; at the end itself of a run that failed or was stopped.
    """
    finished_at: float = turn.get("finished_at")
    if turn.phase is Phase.SUCCEEDED and turn.spec.stop is None:
        return finished_at + turn.spec.lifecycle.reclaim_after
    return finished_at


def _record_reclaimed(turn: Turn) -> None:
    """Record which tasks were ended by us, and what they held."""
    ended = [
        t for t in turn.all_tasks if (e := turn.exit_of(t)) is not None and e.cause is Cause.STOPPED
    ]
    if not ended or turn.get("reclaimed") is not None:
        return
    held = [turn.spec.replicas.of(parse_task(t)[0]).resources for t in ended]
    freed = Reclaimed(
        at=turn.now,
        tasks=tuple(ended),
        cpu=sum(r.cpu or 0.0 for r in held),
        memory=sum(parse_memory(r.memory) for r in held if r.memory),
        gpu=sum(r.gpu for r in held),
    )
    turn.set(reclaimed=freed)
    turn.event(turn.get("reason"), messages.reclaimed(ended))
