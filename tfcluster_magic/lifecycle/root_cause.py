"""The root cause when tasks fail together: how long failures are collected, and which one caused
the others.

When one task of a cluster dies, others fail seconds later because they lost their peer. The first
failure therefore opens a window, and all failures inside it are judged together. This module has
pure functions over `TaskFailure`s; the rules in `failures` restart tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..spec import Cause, TaskFailure

WINDOW = 5.0
"""Seconds for which failures are collected before one of them is blamed, in runs with parameter
servers.
"""
WINDOW_COLLECTIVE = 15.0
"""Seconds for which failures are collected, in runs without parameter servers, because
MultiWorkerMirroredStrategy notices a lost peer by a 10 s heartbeat.
"""
WINDOW_HEALED = 30.0
"""Seconds for which failures are collected after a restart that healed a disruption, because peers
of the lost task may notice the loss late (keepalive, heartbeat).
"""
WINDOW_NODE_LOST = 90.0
"""Seconds for which failures are collected while a node is NotReady, because Kubernetes waits
before it declares the tasks of such a node lost.
"""

DISRUPTIONS = frozenset({Cause.KILLED, Cause.EVICTED, Cause.LOST})
"""The causes by which a task is ended from outside, not by its program."""


def is_disruption(failure: TaskFailure) -> bool:
    """Return whether the task was ended from outside, so that a restart is likely to help."""
    return failure.exit.cause in DISRUPTIONS


def window_length(collective: bool, nodes_not_ready: bool, healed: bool) -> float:
    """Return for how many seconds failures are collected before one of them is blamed."""
    if nodes_not_ready:
        return WINDOW_NODE_LOST
    if healed:
        return WINDOW_HEALED
    return WINDOW_COLLECTIVE if collective else WINDOW


def root_cause(failures: Iterable[TaskFailure]) -> TaskFailure:
    """Return the failure that caused the others.

    It is the first of the following failures that exists: a task that ran out of memory; a task
    that was lost, evicted or killed; the earliest failure that does not report a lost peer; the
    earliest of all failures. Raises ValueError if there is no failure.
    """
    return min(failures, key=_rank)


def causes_first(failures: Iterable[TaskFailure], most: int) -> tuple[TaskFailure, ...]:
    """Return `most` of the failures, the likeliest root causes first. The number is limited so that
    the run's record stays small.
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
