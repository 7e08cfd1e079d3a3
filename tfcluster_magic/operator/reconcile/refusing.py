"""Records that no run may have: nothing is made of them, and what was made of them ends.

Promises that the history of a run is kept which was one before somebody changed its spec, and that
its tasks are gone when its record says so. Touches nothing without the run's uid. A later policy
refuses no run that has begun; its `maxDuration` counts for those that left ours.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from ...errors import InvalidRequest
from ...kube.api.client import Object
from ...kube.objects import custom_resource
from ...kube.status.exit_status import is_over
from ...spec import Reason, Status
from .. import belongings
from ..caches import Key
from . import status_rules
from .context import World
from .job_control import tell_of_pods
from .retention import lay_down
from .status_writer import Writer

ASK_AGAIN = 1.0
"""Seconds between looks at tasks that are ending."""

log = logging.getLogger(__name__)


def refuse(context: World, key: Key, found: Object, error: InvalidRequest) -> float | None:
    """End it as Failed with every problem; seconds until the next look, None when all is gone.

    Raises:
        ApiError: the API did not take something: do it again.
        Overtaken: somebody else wrote the status.
    """
    before = custom_resource.status(found)
    own = belongings.of_run(context.caches, key, found["metadata"]["uid"])
    status, now = before, context.clock()
    if not status.phase.is_final:
        log.info("%s/%s: refused: %s", *key, error)
        begun = status.started_at is not None  # then its spec was altered from outside
        reason = Reason.DISRUPTED if begun else Reason.START_FAILED
        status = status_rules.failed(status, reason, str(error), now, released=False)
    if all(is_over(pod) for pod in own.pods):
        status = _released(status, now)
    if status != before:
        Writer(context.api, found, context.metrics, context.write_limit).write(status, before)
    for job in own.jobs.values():
        lay_down(context, job, custom_resource.status_of(status))
    tell_of_pods(context.api, own.pods, frozenset(), context.caches.lost_nodes())
    return ASK_AGAIN if status.released_at is None else None


def _released(status: Status, now: float) -> Status:
    ended = {
        task_type: replace(c, stopped=c.stopped + c.starting + c.running, starting=0, running=0)
        for task_type, c in status.counts.items()
    }
    return replace(status, released_at=now, counts=ended)
