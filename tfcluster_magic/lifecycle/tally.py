"""Counts by task type, and the few tasks that need a look: what a status says of 600 tasks in a few
lines.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..spec import Cause, Spec, TaskState, TaskStatus, TypeCounts
from . import messages
from .observation import Observation, ObservedTask

MOST_ATTENTION = 20
_FIELD = {
    TaskState.PENDING: "",
    TaskState.STARTING: "starting",
    TaskState.RUNNING: "running",
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.STOPPED: "stopped",
}


def task_state(task: ObservedTask | None) -> TaskState:
    """The state of a task for people."""
    if task is None:
        return TaskState.PENDING
    if task.exit is None:
        return TaskState.RUNNING if task.ready else TaskState.STARTING
    if task.exit.cause is Cause.COMPLETED:
        return TaskState.SUCCEEDED
    return TaskState.STOPPED if task.exit.cause is Cause.STOPPED else TaskState.FAILED


def count(spec: Spec, seen: Observation, names: Sequence[str]) -> dict[str, TypeCounts]:
    """Tasks by type and state; what is not in any state is pending."""
    tally: dict[str, dict[str, int]] = {
        t.value: {"desired": n} for t, n in spec.replicas.counts.items()
    }
    for name in names:
        field = _FIELD[task_state(seen.tasks.get(name))]
        if field:
            of_type = tally[name.rpartition("-")[0]]
            of_type[field] = of_type.get(field, 0) + 1
    return {t: TypeCounts(**numbers) for t, numbers in tally.items()}


def attention(
    seen: Observation,
    names: Sequence[str],
    restarts: Mapping[str, int],
    culprit: str | None,
    *,
    never: Container[str],
) -> tuple[TaskStatus, ...]:
    """Tasks that failed, were restarted or are not up, the culprit first; at most 20.

    A cluster of up to 20 tasks lists all of them. `never` are those that nobody will
    start any more.
    """
    others = _REST if len(names) <= MOST_ATTENTION else None
    texts = {task: why.text for why in reversed(seen.why) for task in why.tasks}
    ranked = []
    for position, name in enumerate(names):
        task = seen.tasks.get(name)
        state = task_state(task)
        rank = 0 if name == culprit else _RANK.get(state, 3 if restarts.get(name) else others)
        if rank is not None:
            exit_ = task.exit if task else None
            untold = messages.never_started() if task is None and name in never else ""
            entry = TaskStatus(
                name=name,
                state=state,
                message=texts.get(name, untold),
                restarts=restarts.get(name, 0),
                exit=exit_,
            )
            ranked.append((rank, position, entry))
    ranked.sort(key=lambda item: item[:2])
    return tuple(entry for _, _, entry in ranked[:MOST_ATTENTION])


_REST = 4
_RANK = {TaskState.FAILED: 1, TaskState.PENDING: 2, TaskState.STARTING: 2}
