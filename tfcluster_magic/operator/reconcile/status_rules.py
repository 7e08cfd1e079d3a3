"""Pure functions that compute what the operator adds to an observation or a status, such as the
reason why a run waits, the tasks that do nothing, obstacles, and the time of a success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...lifecycle import Observation, Quiet, messages
from ...spec import (
    Cause,
    Clause,
    Message,
    Mode,
    Phase,
    Reason,
    Spec,
    Status,
    SuccessPolicy,
    TaskType,
    TFCluster,
    TypeCounts,
)
from ...spec.names import task_name
from ..scheduling.admission import Waiting

CLOCKS_DIFFER = 120.0
"""If a time from a node is more than this many seconds in the future, the node's clock is wrong and
the time is ignored.
"""


QUIET_PAUSE = 60.0
"""Seconds between two checks whether the tasks of a running run do nothing."""
QUIET_PAUSE_SUSPECTED = 10.0
"""Seconds between two checks whether tasks do nothing, if some tasks have ended already, or if the
run has a stall timeout.
"""


def waiting_message(verdict: Waiting) -> Message:
    """Return a message that says what a queued run waits for, and its place in the queue."""
    if verdict.is_coarse:
        return Message("QueuePlaceWithin", {"what": verdict.sentence, "place": verdict.place})
    return Message("QueuePlace", {"what": verdict.sentence, "place": verdict.place})


def has_pending_tasks(status: Status) -> bool:
    """Return whether some tasks of an active run are not up, or the tasks have not been counted
    yet.
    """
    if status.phase not in (Phase.STARTING, Phase.RUNNING):
        return False
    if not status.counts:
        return True
    counts = dict(status.counts)
    if status.evaluator is not None:  # a failed evaluator is not started again
        counts.pop(TaskType.EVALUATOR.value, None)
    return any(c.running + c.succeeded < c.desired for c in counts.values())


def types_with_pods(status: Status) -> set[TaskType]:
    """Return the task types with at least one observed task; the Jobs of these types must have been
    created.
    """
    counts = status.counts.items()
    return {TaskType(t) for t, c in counts if c != TypeCounts(desired=c.desired)}


def current_tasks(status: Status, seen: Observation) -> set[str]:
    """Return the observed tasks of the current attempt."""
    return {
        each.name
        for each in seen.tasks.values()
        if each.alive or each.attempt > status.restarts.get(each.name, 0)
    }


def are_all_tasks_up(spec: Spec, status: Status, seen: Observation) -> bool:
    """Return whether every task of the current attempt is ready or over."""
    tasks = seen.tasks.values()
    wanted = status.restarts
    return len(tasks) == spec.replicas.total and all(
        t.attempt > wanted.get(t.name, 0) and (t.ready or t.exit is not None) for t in tasks
    )


def is_settled(status: Status) -> bool:
    """Return whether all tasks of a run are up, or are gone after its end."""
    if status.phase is Phase.STOPPING or status.phase.is_final:
        return status.released_at is not None
    return not has_pending_tasks(status)


def tasks_that_may_be_quiet(cluster: TFCluster, status: Status, seen: Observation) -> list[str]:
    """Return the tasks whose logs are checked for activity, workers before parameter servers.

    Only tasks of Between-Graph programs are checked: in the phase Running, all live tasks except
    the evaluator; after a success, the evaluator.
    """
    if cluster.spec.mode is not Mode.BETWEEN_GRAPH:
        return []
    alive = [name for name, task in seen.tasks.items() if task.alive]
    evaluators = [name for name in alive if name.startswith("evaluator-")]
    if status.phase is Phase.SUCCEEDED:
        return evaluators
    if status.phase is not Phase.RUNNING:
        return []
    left = [name for name in alive if name not in evaluators]
    return sorted(left, key=lambda name: name.startswith("ps-"))


def quiet_pause(cluster: TFCluster, status: Status, seen: Observation) -> float:
    """Return the seconds until the logs of tasks that may do nothing are checked again."""
    if not tasks_that_may_be_quiet(cluster, status, seen):
        return QUIET_PAUSE
    ended = [each for each in seen.tasks.values() if each.exit is not None]
    limited = cluster.spec.lifecycle.stall_timeout is not None
    return QUIET_PAUSE_SUSPECTED if ended or limited else QUIET_PAUSE


def with_quiet(seen: Observation, quiet: Mapping[str, Quiet]) -> Observation:
    """Return the observation in which the tasks that do nothing have their quiet periods."""
    tasks = {name: replace(seen.tasks[name], quiet=told) for name, told in quiet.items()}
    return replace(seen, tasks={**seen.tasks, **tasks}) if tasks else seen


def with_oddities(seen: Observation, oddities: Mapping[str, Message]) -> Observation:
    """Return the observation with the remark of each task that counts as started although its port
    is closed.
    """
    up = {name: task for name, task in seen.tasks.items() if task.ready and name in oddities}
    tasks = {name: replace(task, oddity=oddities[name]) for name, task in up.items()}
    return replace(seen, tasks={**seen.tasks, **tasks}) if tasks else seen


def with_obstacle(status: Status, obstacle: Clause) -> Status:
    """Return the status with a message about an obstacle, after the status's own messages."""
    more = obstacle if isinstance(obstacle, Message) else Message("Obstacle", {"why": obstacle})
    return messages.with_messages(status, *status.messages, more)


def failed_status(
    status: Status, reason: Reason, message: Message, now: float, *, released: bool = True
) -> Status:
    """Return the status of a run that cannot continue; `released` is true if none of its objects
    exist.
    """
    failed = replace(
        status,
        phase=Phase.FAILED,
        reason=reason,
        finished_at=now,
        released_at=now if released else None,
        events=(*status.events, messages.event(now, reason, message)),
    )
    return messages.with_messages(failed, message)


def success_time(cluster: TFCluster, status: Status, seen: Observation, now: float) -> float | None:
    """Return the time at which the last task required for success ended; None if not all have
    succeeded. Later actions are timed from this moment, even if it was observed late.
    """
    if status.phase not in (Phase.STARTING, Phase.RUNNING):
        return None
    if cluster.spec.mode is not Mode.BETWEEN_GRAPH:
        return None
    ends = []
    for task in _tasks_required(cluster):
        exit_ = seen.tasks[task].exit if task in seen.tasks else None
        if exit_ is None or exit_.cause is not Cause.COMPLETED:
            return None
        ends.append(exit_.finished_at)
    at = max(ends, default=now)
    earliest = max([status.started_at or 0.0, *(event.at for event in status.events)])
    if at > now + CLOCKS_DIFFER:
        return None
    return min(max(at, earliest), now)


def _tasks_required(cluster: TFCluster) -> Sequence[str]:
    counts = cluster.spec.replicas.counts
    trainers = [
        task_name(task_type, index)
        for task_type in counts
        if task_type.value in ("chief", "worker")
        for index in range(counts[task_type])
    ]
    chief_alone = cluster.spec.success_policy is SuccessPolicy.CHIEF
    return trainers[:1] if chief_alone else trainers
