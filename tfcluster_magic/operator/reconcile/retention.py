"""What is left of runs that are over: their objects go after an hour, their records after keepFor.

Promises that no Job of such a run makes pods any more, to delete no record but the one that was
meant (by uid), and to keep none in memory.
"""

from __future__ import annotations

import logging
import math
import random

from ...errors import TFClusterError
from ...kube.api import labels
from ...kube.api.client import ApiError, Object, path
from ...kube.api.gone import discard, find, is_deleted
from ...kube.capacity.policy_check import capped
from ...kube.objects import custom_resource
from ...kube.status.jobs import is_complete, is_suspended
from ...spec import Lifecycle, Spec
from .. import belongings
from ..caches import Key
from .context import World
from .creation import Maker

OBJECTS_STAY = 3540.0
"""Seconds; a minute less than the TTL of Jobs, which tell us that something is still there."""
SPREAD = 3600.0
"""Seconds over which an operator that begins looks for what is left of runs without Jobs."""

log = logging.getLogger(__name__)


def keep(context: World, key: Key, found: Object) -> float | None:
    """Delete what has stayed long enough; seconds until the next time, None for never.

    Raises ApiError.
    """
    status, head = found["status"], found["metadata"]
    ended = float(status.get("finishedAt") or status["releasedAt"])
    passed = context.clock() - ended
    limits = (found.get("spec") or {}).get("lifecycle") or {}
    asked = Lifecycle(keep_for=float(limits.get("keepFor", Lifecycle().keep_for)))
    stays = capped(Spec(lifecycle=asked), context.policy).lifecycle.keep_for
    if is_deleted(found):  # a finalizer keeps it
        return _clear(context, key, found)
    if passed >= stays:
        log.info("%s/%s: its record was kept for %.0f s and is deleted", *key, passed)
        context.cleanup_at.pop(head["uid"], None)
        discard(context.api, path("tfclusters", *key), head["uid"])
        return None
    context.pod_groups.discard(key, head["uid"])
    left = belongings.of_run(context.caches, key, head["uid"]).jobs
    for job in left.values():
        lay_down(context, job, status)
    if passed < OBJECTS_STAY:
        return min(stays, OBJECTS_STAY) - passed
    if left:
        _remove(context, key, head["uid"])
    return min(stays - passed, _tidy(context, key, head["uid"]))


def _clear(context: World, key: Key, found: Object) -> float | None:
    """Delete, once, the objects of a record that a finalizer keeps; nothing is left to do then."""
    uid = found["metadata"]["uid"]
    context.pod_groups.discard(key, uid)
    if belongings.of_run(context.caches, key, uid).jobs or context.cleanup_at.get(uid) != math.inf:
        log.info("%s/%s: its record is being deleted; what it had beside it is, too", *key)
        context.cleanup_at[uid] = math.inf
        for job in belongings.of_run(context.caches, key, uid).jobs.values():
            lay_down(context, job, found["status"])
        _remove(context, key, uid)
    return None


def _tidy(context: World, key: Key, uid: str) -> float:
    """Delete what is left of a run that has no Jobs, as when these were refused, or went before us;
    seconds until it is looked for: once by each operator, and not for all runs at the same time.
    """
    now = context.clock()
    due = context.cleanup_at.setdefault(uid, now + random.uniform(0.0, SPREAD))
    if now < due:
        return due - now
    context.cleanup_at[uid] = math.inf
    name = labels.files_name(key[1], uid)
    found = find(context.api, path("configmaps", key[0], name))  # made first, and deleted last
    if found is not None and belongings.uid_of(found) == uid:
        log.info("%s/%s: what it had beside its Jobs is deleted", *key)
        _remove(context, key, uid)
    return math.inf


def lay_down(context: World, job: Object, status: Object) -> None:
    """Suspend a Job of a run that is over, unless all its tasks have succeeded.

    It may have come into the cache after the last turn, or that was not taken to its end: a Job
    makes pods until somebody says that it shall not. Raises ApiError.
    """
    head = job["metadata"]
    counted = (status.get("counts") or {}).get(head["labels"].get(labels.TASK_TYPE)) or {}
    if is_suspended(job) or is_complete(job, int(counted.get("succeeded", 0))):
        return
    log.info("%s: suspended: its run is over", head["name"])
    try:
        where = path("jobs", head["namespace"], head["name"])
        context.api.merge(where, {"spec": {"suspend": True}})
    except ApiError as error:
        if not error.gone:
            raise


def _remove(context: World, key: Key, uid: str) -> None:
    whole = find(context.api, path("tfclusters", *key))  # caches keep no programs of these
    if whole is None or whole["metadata"]["uid"] != uid:
        return  # of the next run of this name the cache does not know yet
    try:
        Maker(context.api, context.policy_of).remove(custom_resource.read(whole))
    except TFClusterError as error:  # the record was altered; ownership will see to the rest
        log.warning("%s/%s: what is left of it cannot be told: %s", *key, error)
