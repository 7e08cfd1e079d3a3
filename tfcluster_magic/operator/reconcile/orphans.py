"""Ends what is left of runs whose record is gone, and that nobody else would ever end.

A record that is deleted takes its objects with it, unless somebody asked to orphan them: then they
have no owner, and tasks would run for ever. Promises to ask the API whether the run is really gone,
and to touch nothing but objects of its name and uid that have no owner. Its data stays.

Ref: https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents
"""

from __future__ import annotations

import logging
import re

from ...kube.api import labels
from ...kube.api.client import Object, path
from ...kube.api.gone import find
from ..belongings import of_others, uid_of
from ..caches import Key
from .context import World
from .creation import delete

log = logging.getLogger(__name__)


def end(context: World, key: Key, uid: str) -> None:
    """End what has this name and no record; `uid` is the run's that is there, or empty.

    Raises ApiError.
    """
    found = [job for kind, job in of_others(context.caches, key, uid) if kind == "Job"]
    left = [job for job in found if _is_left(job)]
    if not left or not re.fullmatch(labels.RUN_PATTERN, key[1]):
        return
    there = _uid_there(context, key)
    for gone in {uid_of(job) for job in left} - {there}:
        log.info("%s/%s: its record was deleted without its tasks, which are ended", *key)
        for kind in ("NetworkPolicy", "Service"):
            delete(context.api, key, kind, key[1], gone)
        delete(context.api, key, "ConfigMap", labels.files_name(key[1], gone), gone)
        context.pod_groups.discard(key, gone)
        for job in left:
            if uid_of(job) == gone:
                delete(context.api, key, "Job", job["metadata"]["name"], gone)


def _is_left(job: Object) -> bool:
    head = job["metadata"]
    going = head.get("deletionTimestamp")
    return bool(uid_of(job)) and not head.get("ownerReferences") and not going


def _uid_there(context: World, key: Key) -> str:
    """The uid of the run as the API has it now: the cache may be older than its Jobs."""
    found = find(context.api, path("tfclusters", *key))
    return str(found["metadata"]["uid"]) if found else ""
