"""Jobs of an active run that are not there any more: done and taken away, or deleted. Pure.

Kubernetes takes the Jobs of workers and chief away an hour after all their tasks have succeeded,
and with the last of them the parameter servers' (`objects.TTL_SECONDS`); whatever else is gone,
somebody deleted. Promises that no task is blamed for a Job that went in its time, and that nothing
is said that nobody saw.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime, timezone

from ...i18n import _
from ...kube.api import labels
from ...kube.api.client import Object
from ...kube.objects.run_objects import TTL_SECONDS, main_types
from ...spec import Status, TaskType, TFCluster


def done(
    cluster: TFCluster, status: Status, gone: Iterable[TaskType], *, unseen: float, now: float
) -> dict[TaskType, Object]:
    """Those of the types whose tasks have all succeeded, each with its Job as it was at last.

    `unseen` are the seconds for which nobody looked before this; 0 for Jobs that we saw.
    """
    found = {}
    for task_type in gone:
        count = cluster.spec.replicas.of(task_type).count
        counted = status.counts.get(task_type.value)
        known = counted is not None and counted.succeeded >= count
        if known or (task_type in main_types(cluster) and unseen >= TTL_SECONDS):
            found[task_type] = _complete(count, now - TTL_SECONDS)
    return found


def lost(
    cluster: TFCluster,
    gone: Iterable[TaskType],
    over: Container[TaskType],
    seen: Container[TaskType],
) -> str:
    """Why a run cannot go on without its Jobs that are gone; empty when it can."""
    mains = main_types(cluster)
    missing = [each for each in gone if each not in over]
    if all(each in over for each in mains):
        missing = [each for each in missing if each is not TaskType.PS]
    if not missing:
        return ""
    # the others may have gone with it
    first = next((each for each in mains if each in missing), missing[0])
    if first in seen:
        text = _("Somebody deleted the Job {name} while the run was active.")
    else:
        text = _(
            "The Job {name} was deleted, and no operator was there to see how its tasks ended."
        )
    return text.format(name=labels.job_name(cluster.metadata.name, first))


def unseen_success() -> str:
    """What is said of a success that follows from the Jobs' absence alone."""
    return _(
        "Nobody saw when: no operator was there, and Kubernetes has taken its Jobs away, as it "
        "does an hour after all their tasks have succeeded."
    )


def _complete(count: int, at: float) -> Object:
    ended = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"completedIndexes": f"0-{count - 1}", "completionTime": ended}
    return {"metadata": {}, "spec": {"completions": count}, "status": status}
