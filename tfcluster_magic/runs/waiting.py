"""Waiting for a run: until its tasks are up, until it has ended, until nothing is left of it.

Promises an answer within half a second of the event, and an error instead of a wait that cannot end
well. Never polls: the backend's `watch` says when there is something new.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from ..backends.base import Backend
from ..errors import ClusterFailed, Conflict, WaitTimeout
from ..i18n import _
from ..spec import Mode, Phase, TFCluster
from ..spec.quantities import format_duration

ENDING = 30.0
"""Seconds beyond the grace period after which a run that was asked to end should be gone."""


class Until(enum.Enum):
    """What a wait is for."""

    READY = "all tasks are up"
    END = "the run has ended"
    RELEASED = "no task is left"


def wait(
    backend: Backend,
    name: str,
    until: Until,
    timeout: float | None,
    on_change: Callable[[TFCluster], None] | None,
) -> TFCluster:
    """Wait for the run `name`; see `ClusterManager.wait`."""
    cluster = backend.get(name)
    stops = cluster.spec.stop is not None or cluster.status.phase is Phase.STOPPING
    ends = until is Until.RELEASED and stops
    if ends and timeout is None:
        timeout = cluster.spec.lifecycle.grace + ENDING
    deadline, away = None if timeout is None else time.monotonic() + timeout, ""
    for change in backend.watch(name):
        before, away = away, away if change is not None else backend.outage()
        if change is not None or away != before:
            cluster = change or cluster
            if on_change is not None:
                on_change(cluster)
        if _reached(cluster, until):
            return cluster
        if deadline is not None and time.monotonic() >= deadline:
            break
    else:
        cluster = backend.get(name)  # NotFound when it was deleted meanwhile
        if _reached(cluster, until):
            return cluster
    if ends:
        raise WaitTimeout(
            _(
                "{name} was asked to end and still holds tasks after {time}: {why}. It ends as "
                "soon as it can"
            ).format(
                name=name,
                time=format_duration(timeout or 0),
                why=backend.why_it_lingers(cluster),
            )
        )
    raise WaitTimeout(
        _("{name} is still {phase} after {time}: {message} It goes on").format(
            name=name,
            phase=cluster.status.phase.value,
            time=format_duration(timeout or 0),
            message=backend.outage() or cluster.status.message,
        )
    )


def wait_reachable(backend: Backend, cluster: TFCluster, timeout: float) -> TFCluster:
    """Wait until a notebook can connect; see `ClusterManager.reachable`."""
    name = cluster.metadata.name
    if cluster.spec.mode is not Mode.IN_GRAPH:
        raise Conflict(
            _(
                "{name} is between-graph: its tasks run a program and there is nothing to connect "
                "to; `tfcluster launch --mode in-graph` starts servers for a notebook"
            ).format(name=name)
        )
    if not cluster.active:
        raise Conflict(
            _(
                "{name} has ended ({phase}): `tfcluster rerun {name}` starts its servers again"
            ).format(name=name, phase=cluster.status.phase.value)
        )
    return wait(backend, name, Until.READY, timeout, None)


def _reached(cluster: TFCluster, until: Until) -> bool:
    """Whether the wait is over. Raises ClusterFailed when it cannot be any more."""
    state = cluster.status
    if until is Until.RELEASED:
        return state.released_at is not None
    if until is Until.READY and state.phase is Phase.RUNNING:
        return True
    if not state.phase.is_final:
        return False
    if state.phase is Phase.SUCCEEDED:
        return True
    how = _("{name} failed") if state.phase is Phase.FAILED else _("{name} was stopped")
    what = how.format(name=cluster.metadata.name)
    raise ClusterFailed(_("{what}: {problem}").format(what=what, problem=state.message))
