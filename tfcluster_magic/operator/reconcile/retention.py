"""Removal of the leftovers of ended, orphaned and invalid runs.

Objects are deleted an hour after the end of their run. A record is deleted after `keepFor`, or
earlier if its namespace would reach its limit of records. The deletion of a record names its uid,
so that a newer run with the same name is not deleted. A Job that is still active after the end of
its run is suspended.
"""

from __future__ import annotations

import logging
import math
import random
import re

from msgspec.structs import replace

from ...errors import TFClusterError
from ...kube.api import labels
from ...kube.api.client import ApiError, Object, discard_object, find_object, is_deleted, path
from ...kube.objects import custom_resource
from ...kube.status.exit_status import is_over
from ...kube.status.task_pods import is_job_complete, is_suspended
from ...launch_checks.policy_check import cap_durations
from ...spec import Clause, Lifecycle, Message, Reason, Spec, Status
from .. import cluster_state
from ..cluster_state import Key, objects_of_other_runs, owner_uid
from . import status_rules
from .actions import ReconcileContext
from .job_control import report_deleted_pods
from .object_creation import ObjectCreator, delete_owned, find_owned
from .status_writer import StatusWriter

OBJECTS_STAY = 3540.0
"""Seconds from a run's end to the deletion of its objects. This is a minute less than the TTL after
which Kubernetes deletes the Jobs, because existing Jobs show the operator that objects are left.
"""
SPREAD = 3600.0
"""An operator searches once for leftovers of each run without Jobs, at a random time within this
many seconds after it has first seen the run, so that a new operator does not search for those of
all runs at once.
"""

log = logging.getLogger(__name__)


def apply_retention(context: ReconcileContext, key: Key, found: Object) -> float | None:
    """Delete the objects and the record of an ended run, each after its retention period. Return
    the seconds until the next deletion is due; None if none will be due. Raises ApiError.
    """
    status, head = found["status"], found["metadata"]
    passed = context.clock() - (custom_resource.ended_at(found) or 0.0)
    said = custom_resource.seconds_of(found, "keepForSeconds")
    asked = Lifecycle() if said is None else Lifecycle(keep_for=said)
    stays = cap_durations(Spec(lifecycle=asked), context.policy).lifecycle.keep_for
    if is_deleted(found):  # a finalizer keeps the record
        return _empty_deleted_record(context, key, found)
    if passed >= stays:
        log.info("%s/%s: its record was kept for %.0f s and is deleted", *key, passed)
        context.cleanup_at.pop(head["uid"], None)
        discard_object(context.api, path("tfclusters", *key), head["uid"])
        return None
    _tell_generation(context, found)
    context.pod_groups.discard(key, head["uid"])
    left = cluster_state.owned_objects(context.caches, key, head["uid"]).jobs
    for job in left.values():
        suspend_ended_job(context, job, status)
    if passed < OBJECTS_STAY:
        return min(stays, OBJECTS_STAY) - passed
    if left:
        _remove_objects(context, key, head["uid"])
    return min(stays - passed, _remove_leftovers(context, key, head["uid"]))


# In a namespace whose quota limits the number of records, the oldest records of ended runs are
# deleted in advance, so that the quota refuses no launch.

SPARE = 0.1
"""Fraction of the maximum number of records that is kept free for simultaneous launches."""
SEEN_AFTER = 600.0
"""Seconds after the end of a run for which its record is kept, so that users can read it. If less
than half of the fraction `SPARE` is free, the record may be deleted earlier.
"""
MOST_AT_ONCE = 20
"""Maximum number of records that one turn deletes, so that the turns of other runs need not wait
long.
"""


def make_room(context: ReconcileContext, namespace: str) -> None:
    """Delete the oldest ended records of a namespace that is near its limit. A refused deletion is
    logged and tried again in the next turn; the run of the current turn continues.
    """
    limit = context.record_limit(namespace)
    if limit is None:
        return
    there = context.caches.runs.of(namespace)
    spare = max(1, int(limit * SPARE))
    kept = max(0, int(limit) - spare)
    if len(there) <= kept:
        return
    is_full, now = len(there) > kept + spare // 2, context.clock()
    ended = sorted(
        (custom_resource.ended_at(each) or 0.0, each["metadata"]["name"], each["metadata"]["uid"])
        for each in there
        if custom_resource.is_released(each)
        and not is_deleted(each)
        and (is_full or now - (custom_resource.ended_at(each) or 0.0) > SEEN_AFTER)
    )
    for _at, name, uid in ended[: min(len(there) - kept, MOST_AT_ONCE)]:
        log.info(
            "%s/%s: its record is deleted: it is the oldest of %d, and %d are allowed",
            *(namespace, name, len(there), int(limit)),
        )
        try:
            discard_object(context.api, path("tfclusters", namespace, name), uid)
        except ApiError as error:
            log.warning("%s/%s: it stays: %s", namespace, name, error.message or error.reason)
            return


def _empty_deleted_record(context: ReconcileContext, key: Key, found: Object) -> float | None:
    """Delete the objects of a run whose record is being deleted but still exists, because it has a
    finalizer. This is done only once, unless Jobs of the run remain.
    """
    uid = found["metadata"]["uid"]
    context.pod_groups.discard(key, uid)
    if (
        cluster_state.owned_objects(context.caches, key, uid).jobs
        or context.cleanup_at.get(uid) != math.inf
    ):
        log.info("%s/%s: its record is being deleted; what it had beside it is, too", *key)
        context.cleanup_at[uid] = math.inf
        for job in cluster_state.owned_objects(context.caches, key, uid).jobs.values():
            suspend_ended_job(context, job, found["status"])
        _remove_objects(context, key, uid)
    return None


def _remove_leftovers(context: ReconcileContext, key: Key, uid: str) -> float:
    """Delete the leftovers of a run that has no Jobs, because the Jobs were refused or have been
    deleted.

    Return the seconds until the search for leftovers is due. An operator searches once for each
    run, at a random time in the hour (`SPREAD`) after it has first seen the run.
    """
    now = context.clock()
    due = context.cleanup_at.setdefault(uid, now + random.uniform(0.0, SPREAD))
    if now < due:
        return due - now
    context.cleanup_at[uid] = math.inf
    name = labels.files_name(key[1], uid)
    # the ConfigMap is created first and deleted last, so if it is gone, nothing is left
    if find_owned(context.api, key, "ConfigMap", name, uid) is not None:
        log.info("%s/%s: what it had beside its Jobs is deleted", *key)
        _remove_objects(context, key, uid)
    return math.inf


def _tell_generation(context: ReconcileContext, found: Object) -> None:
    """Write `observedGeneration` into the status if the spec was changed after the run's end, for
    example by a stop. Other tools wait until this field shows that the operator saw the change.
    Raises ApiError, StatusConflict.
    """
    told = found["status"].get("observedGeneration")
    if told is not None and told != found["metadata"].get("generation"):
        head = found["metadata"]
        whole = find_object(context.api, path("tfclusters", head["namespace"], head["name"]))
        if whole is None or whole["metadata"]["uid"] != head["uid"]:
            return
        # `whole`, because the cache has only a part of each ended run
        status = custom_resource.read_status(whole)
        StatusWriter(context.api, whole, context.metrics, context.write_limit).write(status, status)


def suspend_ended_job(context: ReconcileContext, job: Object, status: Object) -> None:
    """Suspend a Job of an ended run, unless all its tasks have succeeded. The Job may be active
    because it reached the cache after the run's last turn, or because that turn failed. Raises
    ApiError.
    """
    head = job["metadata"]
    counted = (status.get("counts") or {}).get(head["labels"].get(labels.TASK_TYPE)) or {}
    if is_suspended(job) or is_job_complete(job, int(counted.get("succeeded", 0))):
        return
    log.info("%s: suspended: its run is over", head["name"])
    try:
        where = path("jobs", head["namespace"], head["name"])
        context.api.merge(where, {"spec": {"suspend": True}})
    except ApiError as error:
        if not error.gone:
            raise


def _remove_objects(context: ReconcileContext, key: Key, uid: str) -> None:
    # read the record from the API, because caches keep no programs of ended runs
    whole = find_object(context.api, path("tfclusters", *key))
    if whole is None or whole["metadata"]["uid"] != uid:
        return  # the record is gone or belongs to a newer run
    try:
        ObjectCreator(context.api, context.policy_of).remove(custom_resource.read(whole))
    except TFClusterError as error:
        # A client has altered the record, so its objects cannot be found. Kubernetes deletes them
        # together with the record.
        log.warning("%s/%s: what is left of it cannot be told: %s", *key, error)


# Orphans: leftovers of runs whose record was deleted. Kubernetes deletes a record's objects
# together with the record, except if the deletion uses the orphan policy. Then the objects have no
# owner any more, and without this code the tasks would run for ever. Orphans are found by their
# Jobs, which have no owner. Before a deletion, the API is asked whether the run is really gone, and
# only objects with the run's name and uid are deleted. The output of the run is not deleted. Ref:
# https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents


def end_orphans(context: ReconcileContext, key: Key, uid: str) -> None:
    """Delete the objects of runs named `key` whose record is gone. `uid` is the uid of the existing
    run of this name; empty if there is none. Raises ApiError.
    """
    found = [job for kind, job in objects_of_other_runs(context.caches, key, uid) if kind == "Job"]
    left = [job for job in found if _is_orphan(job)]
    if not left or not re.fullmatch(labels.RUN_PATTERN, key[1]):
        return
    there = _current_uid(context, key)
    for gone in {owner_uid(job) for job in left} - {there}:
        log.info("%s/%s: its record was deleted without its tasks, which are ended", *key)
        for kind in ("NetworkPolicy", "Service"):
            delete_owned(context.api, key, kind, key[1], gone)
        delete_owned(context.api, key, "ConfigMap", labels.files_name(key[1], gone), gone)
        context.pod_groups.discard(key, gone)
        for job in left:
            if owner_uid(job) == gone:
                delete_owned(context.api, key, "Job", job["metadata"]["name"], gone)


def _is_orphan(job: Object) -> bool:
    head = job["metadata"]
    going = head.get("deletionTimestamp")
    return bool(owner_uid(job)) and not head.get("ownerReferences") and not going


def _current_uid(context: ReconcileContext, key: Key) -> str:
    """Return the uid of the run from the API, because the cache of runs may be older than the
    cached Jobs; empty if there is no run.
    """
    found = find_object(context.api, path("tfclusters", *key))
    return str(found["metadata"]["uid"]) if found else ""


# Invalid records: no objects are created for an invalid record, and its existing tasks are stopped.
# If a client made the spec of a started run invalid, the run keeps its history, and its record says
# when the tasks are gone. Only objects with the run's uid are changed. A new policy makes no
# started run invalid: it only caps durations that the user left at their defaults.

CHECK_ENDING = 1.0
"""Seconds between checks of tasks that are ending."""


def fail_invalid_run(
    context: ReconcileContext, key: Key, found: Object, why: Clause
) -> float | None:
    """Fail an invalid run; `why` names every problem. Return the seconds until the next check; None
    when all tasks are gone.

    Raises:
        ApiError: the API refused a request; repeat the call.
        StatusConflict: another client wrote the status.
    """
    before = custom_resource.read_status(found)
    own = cluster_state.owned_objects(context.caches, key, found["metadata"]["uid"])
    status, now = before, context.clock()
    if not status.phase.is_final:
        log.info("%s/%s: refused: %s", *key, why)
        begun = status.started_at is not None  # a client altered the spec of a started run
        reason = Reason.DISRUPTED if begun else Reason.START_FAILED
        refused = Message("Refused", {"why": why})
        status = status_rules.failed_status(status, reason, refused, now, released=False)
    if all(is_over(pod) for pod in own.pods):
        status = _released_status(status, now)
    if status != before:
        StatusWriter(context.api, found, context.metrics, context.write_limit).write(status, before)
    for job in own.jobs.values():
        suspend_ended_job(context, job, custom_resource.write_status(status))
    report_deleted_pods(context.api, own.pods, frozenset(), context.caches.lost_nodes())
    return CHECK_ENDING if status.released_at is None else None


def _released_status(status: Status, now: float) -> Status:
    ended = {
        task_type: replace(c, stopped=c.stopped + c.starting + c.running, starting=0, running=0)
        for task_type, c in status.counts.items()
    }
    return replace(status, released_at=now, counts=ended)
