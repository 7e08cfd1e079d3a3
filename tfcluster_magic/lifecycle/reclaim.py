"""The release of a run's tasks, and the outcome of its evaluator.

Trainers end by themselves; parameter servers would wait for ever, so they are stopped
`lifecycle.reclaimAfter` after the trainers have succeeded. An evaluator has the same time for its
last evaluation, and so have workers whose chief has finished.
"""

from __future__ import annotations

from ..spec import Cause, Message, Phase, Reclaimed, SuccessPolicy, TaskExit, TaskFailure
from ..spec.names import parse_task
from ..spec.quantities import parse_memory
from . import messages
from .turn import Turn


def to_reclaim(turn: Turn) -> tuple[float, list[str]]:
    """Return the seconds for which helper tasks are kept after success, and the helper tasks that
    still run.
    """
    kept = [t for t in turn.all_tasks if t not in _ended_at_once(turn)]
    return turn.spec.lifecycle.reclaim_after, turn.alive(kept)


def _ended_at_once(turn: Turn) -> list[str]:
    """Return the trainers that are stopped as soon as the run succeeds. If the user set the success
    policy to `chief`, these are all trainers. Otherwise there are none: the remaining trainers get
    time to end by themselves, even if `chief` is the default.
    """
    return turn.trainers if turn.spec.lifecycle.success_policy is SuccessPolicy.CHIEF else []


def release_tasks(turn: Turn) -> None:
    """After the end of a run, stop its remaining tasks at the time that `_reclaim_at` returns, and
    update the message of a run that succeeded.
    """
    holding = turn.alive()
    reclaim_at = _reclaim_at(turn)
    if turn.now >= reclaim_at:
        _note_evaluators(turn)
        turn.stop += holding
    else:
        turn.stop += [t for t in holding if t in _ended_at_once(turn)]
        turn.wake(reclaim_at)
    if turn.phase is Phase.SUCCEEDED:
        told = messages.succeeded(turn.required(), *to_reclaim(turn), evaluator_outcome(turn))
        # Replace only the first message, about the success; the others stay.
        also = turn.get("messages")[1:]
        turn.say(turn.get("reason"), told, *also)
    if not holding and not turn.seen.may_come:
        turn.set(released_at=turn.now)
        _record_reclaimed(turn)
        turn.done = True


def _reclaim_at(turn: Turn) -> float:
    """Return the time at which the remaining tasks of an ended run are stopped. If the run
    succeeded, that is `reclaim_after` seconds after its end. If it failed, was stopped, or has a
    stop request, it is the end itself.
    """
    finished_at: float = turn.get("finished_at")
    if turn.phase is Phase.SUCCEEDED and turn.spec.stop is None:
        return finished_at + turn.spec.lifecycle.reclaim_after
    return finished_at


def evaluator_outcome(turn: Turn) -> Message | None:
    """Return how the evaluator ended; None while it works, or if there is no evaluator."""
    ended: TaskFailure | None = turn.get("evaluator")
    for task in turn.evaluators:
        task_exit = turn.exit_of(task)
        if ended is None and task_exit is not None:
            if turn.succeeded(task):
                return Message("EvaluatorFinished")
            failed = TaskFailure(task=task, attempt=turn.desired_attempt(task), exit=task_exit)
            return messages.evaluator_ended(failed, turn.spec)
        if ended is None and turn.phase.is_final and task not in turn.seen.tasks:
            return Message("EvaluatorNeverStarted")
    return None if ended is None else messages.evaluator_ended(ended, turn.spec)


def _note_evaluators(turn: Turn) -> None:
    """Record, for each evaluator that is being stopped, whether it is idle or still working."""
    for task in turn.alive(turn.evaluators):
        seen = turn.current(task)
        if turn.phase is not Phase.SUCCEEDED or turn.get("evaluator") is not None or seen is None:
            continue
        how = Message("EvaluatorStopped" if seen.quiet is not None else "EvaluatorCutOff")
        task_exit = TaskExit(cause=Cause.STOPPED, finished_at=turn.now, detail_message=how)
        turn.set(evaluator=TaskFailure(task=task, attempt=seen.attempt, exit=task_exit))


def _record_reclaimed(turn: Turn) -> None:
    """Record which tasks this module ended, and the resources that they released."""
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
