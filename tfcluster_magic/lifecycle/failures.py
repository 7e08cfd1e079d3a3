"""The rules of failures: heal a disruption, retry or fail a program, and never blame a task that
failed because of another.

The first failure opens a window of some seconds, in which all failures are collected
(`root_cause`). The rules write these failures (`status.failures`), the time at which the window
opened (`status.window_opened_at`) and the time of the next retry (`status.retry_at`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..spec import Cause, Phase, Reason, TaskExit, TaskFailure
from . import messages, root_cause
from .turn import MOST_FAILURES, Turn

RETRY_DELAYS = (10.0, 20.0, 40.0)
"""Seconds before the first, second, and every later retry of a failing program."""
PS_EXIT_PATIENCE = 60.0
"""Maximum seconds for which workers may continue after a parameter server ended by itself with exit
code 0.
"""


def record_failures(turn: Turn) -> None:
    """Record each task that the run needs and that has ended without success since the last turn.
    Evaluators are left to `handle_evaluators`. The first failure opens the window in which failures
    are collected.
    """
    ledger: list[TaskFailure] = list(turn.get("failures"))
    known = {(f.task, f.attempt) for f in ledger}
    for task in turn.needed:
        seen = turn.current(task)
        if (
            seen is None
            or seen.exit is None
            or turn.succeeded(task)
            or (task, seen.attempt) in known
        ):
            continue
        ledger.append(TaskFailure(task=task, attempt=seen.attempt, exit=_as_failed_exit(seen.exit)))
    if len(ledger) > len(known):
        if turn.get("window_opened_at") is None:
            turn.set(window_opened_at=turn.now)
        turn.set(failures=tuple(ledger))


def _as_failed_exit(task_exit: TaskExit) -> TaskExit:
    """Return a copy of the exit of a task that nobody asked to end. Its cause is always a failure:
    a server's exit with code 0 counts as an error, and a stop counts as a kill from outside.
    """
    unasked = {Cause.COMPLETED: Cause.ERROR, Cause.STOPPED: Cause.KILLED}
    return msgspec.structs.replace(task_exit, cause=unasked.get(task_exit.cause, task_exit.cause))


def handle_failures(turn: Turn) -> None:
    """Act on the failures: heal disruptions at once, and decide on other failures when the window
    closes.
    """
    opened = turn.get("window_opened_at")
    if opened is None:
        _fail_without_parameter_servers(turn)
        return
    if turn.get("retry_at") is not None:
        _retry(turn)
        return
    fresh = turn.fresh_failures()
    if wrong := [f for f in fresh if _never_runs(f.exit)]:
        fail_run(turn, root_cause.root_cause(wrong), fresh)
        return
    healed = len(fresh) < len(turn.get("failures"))
    closes = opened + root_cause.window_length(turn.collective, turn.seen.nodes_not_ready, healed)
    if fresh and _heal(turn, fresh, healed):
        turn.wake(closes)
        return
    if turn.now < closes and not turn.all_ended():
        turn.wake(closes)
        if fresh:
            culprit = root_cause.root_cause(fresh)
            turn.say(
                Reason.INVESTIGATING, messages.investigating(culprit, closes - opened, turn.spec)
            )
    elif fresh:
        _close_window(turn, fresh)
    else:
        turn.set(window_opened_at=None, failures=())


NEVER_RUNS = (
    "ArchiveHoldsLink",
    "ArchiveHoldsTooMany",
    "ArchiveTooLarge",
    "ChecksumDiffers",
    "CommandNotThere",
    "NameWithoutChecksum",
    "ProgramForbidden",
    "ProgramNotThere",
    "ProgramOfNoKind",
    "ProgramRedirected",
)
"""Codes of the reasons why a task did not start. With one of these reasons, every further attempt
would fail in the same way.
"""


def _never_runs(task_exit: TaskExit) -> bool:
    """Return whether the task cannot start at any attempt. If it cannot, the run fails at once: a
    retry would not help, and other failures need not be awaited to find the cause.
    """
    why = task_exit.detail_message
    return task_exit.cause is Cause.NOT_STARTED and why is not None and why.code in NEVER_RUNS


def _heal(turn: Turn, fresh: Sequence[TaskFailure], healed: bool) -> bool:
    """Restart disrupted tasks and the tasks that failed because of them. Return False if a restart
    cannot help.
    """
    ledger: Sequence[TaskFailure] = turn.get("failures")
    disrupted = [f for f in fresh if root_cause.is_disruption(f)]
    collateral = [f for f in fresh if not root_cause.is_disruption(f)]
    if not (disrupted or healed) or any(f.exit.cause is Cause.OOM for f in fresh):
        return False
    if any(_failed_before(f, ledger) for f in collateral):
        return False  # the task's last attempt failed in the same way: a restart does not help
    if disrupted and (not healed or any(_failed_before(f, ledger) for f in disrupted)):
        if turn.get("heals") >= turn.spec.lifecycle.heals:
            return False
        turn.set(heals=turn.get("heals") + 1)
    lost_trainers = [
        f for f in (fresh if turn.collective else collateral) if f.task in turn.trainers
    ]
    together = turn.between and len(turn.trainers) > 1 and bool(lost_trainers)
    restart = {f.task for f in fresh}
    if together:
        restart |= set(turn.trainers if turn.collective else turn.unfinished())
        turn.set(attempt=turn.get("attempt") + 1)
    turn.restart(t for t in turn.all_tasks if t in restart)
    checkpoint = turn.seen.checkpoint
    if disrupted:
        told = messages.healing(
            root_cause.root_cause(disrupted), together, turn.get("heals"), checkpoint, turn.spec
        )
    else:
        told = (messages.collateral(collateral[0].task, checkpoint),)
    turn.say(Reason.HEALING, *told)
    turn.event(Reason.HEALING, *told)
    return True


def _failed_before(failure: TaskFailure, ledger: Sequence[TaskFailure]) -> bool:
    """Return whether, according to the failures in `ledger`, an earlier attempt of the task ended
    in the same way: both by a disruption, or neither.
    """
    return any(
        earlier.task == failure.task
        and earlier.attempt < failure.attempt
        and root_cause.is_disruption(earlier) == root_cause.is_disruption(failure)
        for earlier in ledger
    )


def _close_window(turn: Turn, fresh: Sequence[TaskFailure]) -> None:
    """Retry the program if retries are left, else fail the run."""
    culprit = root_cause.root_cause(fresh)
    done: int = turn.get("program_restarts")
    if not root_cause.is_disruption(culprit) and done < turn.spec.lifecycle.restarts:
        delay = RETRY_DELAYS[min(done, len(RETRY_DELAYS) - 1)]
        turn.set(retry_at=turn.now + delay)
        told = messages.backing_off(culprit, delay, done + 1, turn.spec)
        turn.say(Reason.BACKING_OFF, *told)
        turn.event(Reason.BACKING_OFF, *told)
        _retry(turn)
        return
    fail_run(turn, culprit, fresh)


def _retry(turn: Turn) -> None:
    """Wait for the retry timer, then restart the failed tasks."""
    if turn.collective:
        turn.stop += turn.alive(turn.trainers)
    if turn.now < turn.get("retry_at"):
        turn.wake(turn.get("retry_at"))
        return
    failed = {f.task for f in turn.fresh_failures()}
    lost = failed & set(turn.trainers)
    together = turn.between and (turn.collective or len(lost) > 1)
    if together and lost:
        failed |= set(turn.trainers if turn.collective else turn.unfinished())
        turn.set(attempt=turn.get("attempt") + 1)
    turn.restart(t for t in turn.all_tasks if t in failed)
    turn.set(
        program_restarts=turn.get("program_restarts") + 1,
        retry_at=None,
        window_opened_at=None,
        failures=(),
    )


def fail_run(turn: Turn, culprit: TaskFailure, ledger: Sequence[TaskFailure]) -> None:
    """End the run as Failed, naming the culprit and the tasks that failed because of it or in the
    same way.
    """
    reason = _failure_reason(turn, culprit)
    if culprit.exit.follows and (ended_early := _early_parameter_server(turn)) is not None:
        culprit, reason = ended_early, Reason.PS_EXITED
    elif culprit.exit.follows and (finished := _first_to_finish(turn, culprit)) is not None:
        culprit, reason = finished, Reason.PEER_FINISHED
    others = [f for f in ledger if f.task != culprit.task]
    kept = (culprit, *others)[:MOST_FAILURES]
    turn.set(culprit=culprit.task, failures=kept, window_opened_at=None)
    told = messages.failed(reason, culprit, others, turn.spec, turn.name)
    turn.finish(Phase.FAILED, reason, *told)


# -- evaluators ------------------------------------------------------------------------------------
# Training does not need evaluators, so the end of an evaluator is reported but does not end the
# run.


def handle_evaluators(turn: Turn) -> set[str]:
    """Restart evaluators after disruptions, and after failures while retries are left. If an
    evaluator is not restarted, record how it ended. Return the evaluators that wait for their next
    start.
    """
    waits: set[str] = set()
    for task in turn.evaluators:
        seen = turn.current(task)
        if turn.is_given_up(task):
            turn.stop.append(task)  # otherwise the evaluator's Job would create another pod
        elif seen is not None and seen.exit is not None and not turn.succeeded(task):
            ended = TaskFailure(task=task, attempt=seen.attempt, exit=_as_failed_exit(seen.exit))
            if not (_heal_evaluator(turn, ended) or _retry_evaluator(turn, ended, waits)):
                turn.set(evaluator=ended)
                turn.stop.append(task)
                turn.event(turn.get("reason"), messages.evaluator_ended(ended, turn.spec))
    return waits


def _heal_evaluator(turn: Turn, ended: TaskFailure) -> bool:
    if not root_cause.is_disruption(ended) or turn.get("heals") >= turn.spec.lifecycle.heals:
        return False
    turn.set(heals=turn.get("heals") + 1)
    turn.restart([ended.task])
    told = messages.healing(ended, False, turn.get("heals"), turn.seen.checkpoint, turn.spec)
    turn.event(Reason.HEALING, *told)
    return True


def _retry_evaluator(turn: Turn, ended: TaskFailure, waits: set[str]) -> bool:
    done = ended.attempt - 1
    if root_cause.is_disruption(ended) or done >= turn.spec.lifecycle.restarts:
        return False
    at = ended.exit.finished_at + RETRY_DELAYS[min(done, len(RETRY_DELAYS) - 1)]
    if turn.now < at:
        waits.add(ended.task)
        turn.wake(at)
    else:
        turn.restart([ended.task])
    return True


def _failure_reason(turn: Turn, culprit: TaskFailure) -> Reason:
    if root_cause.is_disruption(culprit):
        return Reason.DISRUPTED
    by_cause = {Cause.OOM: Reason.OOM_KILLED, Cause.NOT_STARTED: Reason.START_FAILED}
    own = Reason.PROGRAM_FAILED if turn.between else Reason.SERVER_FAILED
    return by_cause.get(culprit.exit.cause, own)


def _early_parameter_server(turn: Turn) -> TaskFailure | None:
    """Return the first parameter server that ended by itself while workers still needed it."""
    ended = [
        TaskFailure(task=task, attempt=turn.desired_attempt(task), exit=task_exit)
        for task in turn.all_tasks
        if task.startswith("ps-")
        and turn.succeeded(task)
        and (task_exit := turn.exit_of(task)) is not None
    ]
    return min(ended, key=lambda f: f.exit.finished_at) if ended else None


def _first_to_finish(turn: Turn, lost: TaskFailure) -> TaskFailure | None:
    """Return the trainer that finished first, if it finished before another trainer failed
    (`lost`). Return None if no trainer did, or if the run has parameter servers, because then
    trainers do not need each other for each step.
    """
    ended = [
        TaskFailure(task=task, attempt=turn.desired_attempt(task), exit=task_exit)
        for task in turn.trainers
        if turn.collective
        and turn.succeeded(task)
        and (task_exit := turn.exit_of(task)) is not None
        and task_exit.finished_at <= lost.exit.finished_at
    ]
    return min(ended, key=lambda f: f.exit.finished_at) if ended else None


def _fail_without_parameter_servers(turn: Turn) -> None:
    """Fail the run `PS_EXIT_PATIENCE` seconds after a parameter server ended by itself, if workers
    still need it.
    """
    ended = _early_parameter_server(turn)
    if ended is None or not turn.between:
        return
    patience = ended.exit.finished_at + PS_EXIT_PATIENCE
    if turn.now >= patience:
        turn.set(culprit=ended.task, failures=(ended,))
        told = messages.failed(Reason.PS_EXITED, ended, (), turn.spec, turn.name)
        turn.finish(Phase.FAILED, Reason.PS_EXITED, *told)
    else:
        turn.wake(patience)
