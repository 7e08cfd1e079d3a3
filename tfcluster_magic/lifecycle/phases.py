"""The rules of each phase: what a run waits for in the phase, and what ends the phase."""

from __future__ import annotations

from collections.abc import Sequence

from ..spec import Message, Phase, Reason
from . import messages, root_cause
from .dependencies import await_runs, awaited_since
from .failures import fail_run, handle_evaluators, handle_failures, record_failures
from .observation import Quiet
from .reclaim import evaluator_outcome, release_tasks, to_reclaim
from .turn import Turn

STALL_TOLD = 30.0
"""Seconds without activity before a stall is reported, if a task has finished already."""
STALL_TOLD_OF_ALL = 60.0
"""Seconds without activity before a stall is reported, if no task has finished. The limit is longer
because all tasks may be waiting for their data.
"""
START_SHARE = 0.5
"""A task that started late has at least this fraction of `startTimeout`, counted from its own
start, to show its first activity.
"""
START_MARGIN = 5.0
"""Maximum seconds between the activity of a task and its report by the backend."""
MOST_REASONS = 3
"""Maximum number of reasons that a run's message gives for tasks that are not up. The status of
each such task also has the task's own reason.
"""


def advance_queued(turn: Turn) -> None:
    """Wait until other runs are done, then until the resources are free."""
    limit = turn.spec.lifecycle.queue_timeout
    if turn.spec.stop is not None:
        _stop_requested(turn)
    elif await_runs(turn):
        pass
    elif turn.seen.admitted:
        turn.set(phase=Phase.STARTING, started_at=turn.now)
        turn.event(Reason.STARTING, messages.admitted(len(turn.all_tasks)))
        advance_active(turn)
    elif limit is not None and turn.now >= _queued_at(turn) + limit:
        turn.finish(
            Phase.FAILED,
            Reason.QUEUE_TIMEOUT,
            messages.queue_timeout(turn.seen.waiting_for, limit),
        )
    else:
        if limit is not None:
            turn.wake(_queued_at(turn) + limit)
        turn.say(Reason.QUEUED, messages.queued(turn.seen.waiting_for))
        if turn.seen.submitted:
            turn.bring_up(turn.all_tasks)


def _queued_at(turn: Turn) -> float:
    """Return the time at which the run began to wait for resources."""
    return max(turn.queued_at(), awaited_since(turn.get("awaited")))


def advance_active(turn: Turn) -> None:
    """While the run is Starting or Running, keep the wanted tasks up, and detect its end."""
    if _all_succeeded(turn):
        return
    if turn.spec.stop is not None:
        _stop_requested(turn)
        return
    _say_current(turn)
    record_failures(turn)
    handle_failures(turn)
    if turn.phase.is_final or _over_time_limit(turn):
        return
    waits = handle_evaluators(turn)
    if turn.get("retry_at") is not None:
        waits |= {f.task for f in turn.fresh_failures()}
    turn.bring_up(t for t in turn.wanted if t not in waits)
    late = turn.now >= turn.get("started_at") + turn.spec.lifecycle.start_timeout
    awaited = turn.needed if late else turn.wanted
    if turn.phase is Phase.STARTING and all(turn.is_up(t) for t in awaited):
        turn.set(phase=Phase.RUNNING, running_at=turn.now)
        turn.event(Reason.RUNNING, messages.starting((), len(turn.all_tasks)))
        if turn.get("reason") is Reason.STARTING:
            _say_current(turn)
    _look_for_stall(turn)


def _say_current(turn: Turn) -> None:
    """Set the message of a healthy run. While a failure is handled, the message about the failure
    stays.
    """
    if turn.get("window_opened_at") is not None or turn.get("retry_at") is not None:
        return
    wanted = turn.wanted
    missing = [t for t in wanted if not turn.is_up(t)]
    # In the phase Running, too, some tasks are not up while they restart.
    if turn.phase is Phase.STARTING or missing:
        reason = Reason.STARTING if turn.phase is Phase.STARTING else Reason.RUNNING
        told = messages.starting(missing, len(wanted))
        turn.say(reason, told, *_waiting_reasons(turn))
        return
    finished = [t for t in wanted if turn.succeeded(t)]
    unfinished = [t for t in wanted if turn.exit_of(t) is None]
    evaluator = evaluator_outcome(turn)
    told = messages.running(turn.spec, unfinished, finished, turn.name, evaluator)
    turn.say(Reason.RUNNING, told, *_waiting_reasons(turn))


def _waiting_reasons(turn: Turn) -> list[Message]:
    """Return why tasks are not up, the most important reasons first."""
    return [why.sentence for why in turn.seen.why[:MOST_REASONS]]


def _all_succeeded(turn: Turn) -> bool:
    required = turn.required()
    if not turn.between or not required or not all(turn.succeeded(t) for t in required):
        return False
    turn.set(window_opened_at=None, failures=())
    if turn.get("running_at") is None:
        turn.set(running_at=turn.now)
    message = messages.succeeded(required, *to_reclaim(turn), evaluator_outcome(turn))
    found = [e.found for t in required if (e := turn.exit_of(t)) is not None and e.found]
    nothing = [messages.trained_nothing(found[0], turn.name)] if found else []
    turn.finish(Phase.SUCCEEDED, Reason.COMPLETED, message, *nothing)
    release_tasks(turn)
    return True


def _over_time_limit(turn: Turn) -> bool:
    """Apply the limits on starting, duration and idling; return whether one ended the run."""
    limits = turn.spec.lifecycle
    started: float = turn.get("started_at")
    # If no turn was taken for longer than the start timeout, tasks may have come up since then:
    # they count as started.
    starts = turn.phase is Phase.STARTING
    missing = [t for t in turn.needed if starts and not turn.is_up(t)]
    if _fails_at_its_limit(turn, missing) or _lacks_image(turn, missing):
        return True
    if turn.now >= started + limits.max_duration:
        message = messages.max_duration(limits.max_duration, turn.unfinished(), turn.name)
        if turn.between:
            turn.set(culprit=None, window_opened_at=None, failures=())
            turn.finish(Phase.FAILED, Reason.MAX_DURATION, message)
        else:
            _enter_stopping(turn, Reason.MAX_DURATION, message)
        return True
    turn.wake(started + limits.max_duration)
    if starts:
        due = min((_start_limit(turn, t) for t in missing), default=started + limits.start_timeout)
        if missing and turn.now >= due:
            # Drop the recorded failures: they were healed, so they did not cause the timeout.
            turn.set(culprit=missing[0], window_opened_at=None, failures=())
            because = _waiting_reasons(turn)
            message = messages.start_timeout(missing, turn.spec, turn.name, because)
            turn.finish(Phase.FAILED, Reason.START_TIMEOUT, message)
            return True
        turn.wake(started + limits.start_timeout)
        turn.wake(due)
    idle = _idle_since(turn)
    if idle is not None:
        if turn.now >= idle + limits.idle_timeout:
            _enter_stopping(
                turn, Reason.IDLE_TIMEOUT, messages.idle_timeout(limits.idle_timeout, idle)
            )
            return True
        turn.wake(idle + limits.idle_timeout)
    return False


def _fails_at_its_limit(turn: Turn, missing: Sequence[str]) -> bool:
    """If a limit is reached while a failure is investigated or retried, fail the run with the cause
    of that failure.
    """
    limits = turn.spec.lifecycle
    over = turn.now - turn.get("started_at")
    starts_no_more = any(turn.now >= _start_limit(turn, task) for task in missing)
    runs_no_more = turn.between and over >= limits.max_duration
    fresh = turn.fresh_failures()
    if fresh and (starts_no_more or runs_no_more):
        fail_run(turn, root_cause.root_cause(fresh), fresh)
        return True
    return False


def _lacks_image(turn: Turn, missing: Sequence[str]) -> bool:
    """Fail the run if a task with a node still lacks its image after `imageTimeout`. The registry
    does not have the image or refuses it, so waiting for the rest of `startTimeout` would not help.
    """
    limit = turn.spec.lifecycle.image_timeout
    for why in turn.seen.why:
        if why.text.code not in messages.NO_IMAGE:
            continue
        since = {t: s for t in why.tasks if t in missing and (s := _bound_at(turn, t)) is not None}
        if late := [t for t, at in since.items() if turn.now >= at + limit]:
            turn.set(culprit=late[0], window_opened_at=None, failures=())
            told = messages.no_image(late, why.text, why.words, limit)
            turn.finish(Phase.FAILED, Reason.START_FAILED, *told)
            return True
        for at in since.values():
            turn.wake(at + limit)
    return False


def _bound_at(turn: Turn, task: str) -> float | None:
    """Return the time at which a task got its node; None if it has none."""
    seen = turn.current(task)
    return None if seen is None else seen.since


def _start_limit(turn: Turn, task: str) -> float:
    """Return the time at which the run gives up waiting for a task that has not come up. This time
    is `startTimeout` after the run began, but a task that was started late gets more time to show
    activity (`START_SHARE`).
    """
    limit: float = turn.spec.lifecycle.start_timeout
    due: float = turn.get("started_at") + limit
    seen = turn.current(task)
    if seen is None or seen.began is None or not turn.between or not seen.alive:
        return due
    return max(due, seen.began + START_SHARE * limit + min(START_MARGIN, limit / 4))


# -- stalled runs ----------------------------------------------------------------------------------


def _look_for_stall(turn: Turn) -> None:
    """Report a stall if no task does anything any more. End the run if the stall has lasted for
    `stallTimeout`.
    """
    quiet = _all_quiet(turn)
    if not quiet:
        return
    since = max(turn.get("running_at"), *(each.since for each in quiet.values()))
    known = [each.until for each in quiet.values() if each.until is not None]
    lasted = min([turn.now, *known]) - since
    finished = {
        t: ended.finished_at
        for t in turn.trainers
        if turn.succeeded(t) and (ended := turn.exit_of(t)) is not None
    }
    limit = turn.spec.lifecycle.stall_timeout
    told_after = STALL_TOLD if finished else STALL_TOLD_OF_ALL
    if limit is not None and lasted >= limit:
        waiting = {t: q for t, q in quiet.items() if t in turn.trainers}
        blamed = [t for t, q in waiting.items() if q.peer in finished]
        culprit = [*blamed, *waiting][0]
        turn.set(culprit=culprit, window_opened_at=None, failures=())
        told = messages.stalled_for(limit, since, waiting, finished, culprit, turn.name)
        turn.finish(Phase.FAILED, Reason.STALLED, *told)
        return
    if lasted >= told_after:
        waiting = {t: q for t, q in quiet.items() if t in turn.trainers}
        told = messages.stalled(since, waiting, finished, turn.spec, turn.name)
        turn.say(Reason.STALLED, *told)
        if turn.before.reason is not Reason.STALLED:
            turn.event(Reason.STALLED, *told)
    for seconds in filter(None, [told_after, limit]):
        turn.wake(since + seconds)


def _all_quiet(turn: Turn) -> dict[str, Quiet]:
    """Return the unfinished tasks, without evaluators, if none of them does anything. Return no
    tasks if one of them works or may work, or while a failure is investigated.
    """
    if not turn.between or turn.phase is not Phase.RUNNING:
        return {}
    if turn.get("window_opened_at") is not None or turn.get("retry_at") is not None:
        return {}
    found = {}
    for task in turn.needed:
        if turn.succeeded(task):
            continue
        seen = turn.current(task)
        if seen is None or seen.quiet is None or not seen.alive:
            return {}
        found[task] = seen.quiet
    return found if any(t in turn.trainers for t in found) else {}


def _idle_since(turn: Turn) -> float | None:
    """Return the time since which all In-Graph servers have been idle. Return None while any server
    is in use, and for runs of a program.
    """
    if turn.between or turn.phase is not Phase.RUNNING:
        return None
    since = [seen.idle_since if (seen := turn.current(t)) else None for t in turn.all_tasks]
    known = [s for s in since if s is not None]
    return max(known) if known and len(known) == len(since) else None


def _stop_requested(turn: Turn) -> None:
    stop = turn.spec.stop
    assert stop is not None
    message = messages.stopping(stop.reason, stop.by, turn.alive(), turn.seen.may_come)
    _enter_stopping(turn, Reason.STOP_REQUESTED, message)


def _enter_stopping(turn: Turn, reason: Reason, message: Message) -> None:
    turn.set(
        phase=Phase.STOPPING, stop_at=turn.now, retry_at=None, window_opened_at=None, failures=()
    )
    turn.say(reason, message)
    turn.event(reason, message)
    advance_stopping(turn)


def advance_stopping(turn: Turn) -> None:
    """Wait until every task is gone; the reason for stopping is kept."""
    left = turn.alive()
    turn.stop += left
    stop = turn.spec.stop
    if turn.get("reason") is Reason.STOP_REQUESTED and stop is not None:
        turn.say(
            turn.get("reason"), messages.stopping(stop.reason, stop.by, left, turn.seen.may_come)
        )
    if not left and not turn.seen.may_come:
        turn.set(phase=Phase.STOPPED, finished_at=turn.now)
        if turn.get("reason") is Reason.STOP_REQUESTED and stop is not None:
            turn.say(turn.get("reason"), messages.stopped(stop.reason, stop.by))
        turn.event(turn.get("reason"), Message("Stopped"))
        release_tasks(turn)
