"""The cause when tasks fail together: how long failures are collected, and which came first.

When one task of a cluster dies, others fail seconds later because they lost it. The first failure
therefore opens a window; what fails inside it is judged together. Pure functions over
`TaskFailure`s; nothing is decided here about restarts or phases.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..spec import Cause, TaskFailure

WINDOW = 5.0
"""Seconds in which failures are judged together when there are parameter servers."""
WINDOW_COLLECTIVE = 15.0
"""The same without parameter servers: MultiWorkerMirroredStrategy notices a lost peer by a 10 s
heartbeat.
"""
WINDOW_HEALED = 30.0
"""The same once a disruption was healed: a peer may notice the loss late (keepalive, heartbeat)."""
WINDOW_NODE_LOST = 90.0
"""The same while a node is NotReady: its tasks are declared lost only later."""

DISRUPTIONS = frozenset({Cause.KILLED, Cause.EVICTED, Cause.LOST})
"""Ends that came from outside the program."""


def is_disruption(failure: TaskFailure) -> bool:
    """Whether the task was ended from outside, so that a restart is likely to help."""
    return failure.exit.cause in DISRUPTIONS


def window_length(collective: bool, nodes_not_ready: bool, healed: bool) -> float:
    """How long failures are collected before one is blamed, in seconds."""
    if nodes_not_ready:
        return WINDOW_NODE_LOST
    if healed:
        return WINDOW_HEALED
    return WINDOW_COLLECTIVE if collective else WINDOW


def root_cause(failures: Iterable[TaskFailure]) -> TaskFailure:
    """The failure that the others followed.

    A task that ran out of memory is the cause, else one that was lost, evicted or killed; else the
    earliest that does not say it lost a peer; else the earliest. Raises ValueError when there is no
    failure.
    """
    return min(failures, key=_rank)


def causes_first(failures: Iterable[TaskFailure], most: int) -> tuple[TaskFailure, ...]:
    """The first `most` failures, causes before consequences, so that a record does not grow with
    the tasks.
    """
    return tuple(sorted(failures, key=_rank)[:most])


def _rank(failure: TaskFailure) -> tuple[int, float, str]:
    cause = failure.exit.cause
    if cause is Cause.OOM:
        kind = 0
    elif cause in DISRUPTIONS:
        kind = 1
    else:
        kind = 3 if failure.exit.follows else 2
    return kind, failure.exit.finished_at, failure.task
