"""What a Job says of its pods. Pure.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/#JobStatus
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...spec import Spec, TaskType
from ...spec.names import task_name
from ..api.decoding import condition
from ..api.labels import GROUP
from .said import Object

ATTEMPT = f"{GROUP}/attempt"
"""Annotation of a Job: the group attempt (`status.attempt`) that its pods belong to."""


def is_suspended(job: Object | None) -> bool:
    """Whether a Job lets no pod run."""
    return job is not None and bool(job["spec"].get("suspend"))


def group_attempt(job: Object) -> int:
    """The group attempt that a Job's pods belong to."""
    return int((job["metadata"].get("annotations") or {}).get(ATTEMPT, 1))


def completed_indexes(job: Object | None) -> set[int]:
    """The indexes of a Job that have succeeded: "1,3-5" stands for 1, 3, 4, 5."""
    text = "" if job is None else (job.get("status") or {}).get("completedIndexes") or ""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def is_complete(job: Object, succeeded: int = 0) -> bool:
    """Whether a Job makes no more pods; `succeeded` tasks are known to be done."""
    if any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Failed")):
        return True
    done = max(succeeded, len(completed_indexes(job)))
    return done >= int(job["spec"]["completions"])


def may_come(
    spec: Spec,
    seen: Collection[str],
    jobs: Mapping[TaskType, Object],
    find: Callable[[TaskType], Object | None],
) -> bool:
    """Whether Jobs may have made tasks that nobody has seen: what is followed comes late.

    `seen` are those of the attempt that is wanted. `find` asks for a Job that is not among `jobs`.
    Of one that is suspended its controller says so when it has asked all pods to end, of which some
    may be ending still.
    """
    if len(seen) == spec.replicas.total:
        return False
    for task_type, count in spec.replicas.counts.items():
        if all(task_name(task_type, index) in seen for index in range(count)):
            continue
        job = jobs.get(task_type) or find(task_type)
        if job is not None and not (is_complete(job) or _is_empty(job)):
            return True
    return False


def _is_empty(job: Object) -> bool:
    """Whether a Job has no pods, and its controller will make none."""
    if job["metadata"].get("deletionTimestamp"):
        return True
    status = job.get("status") or {}
    noted = condition(job, "Suspended").get("status") == "True"
    return is_suspended(job) and noted and not (status.get("active") or status.get("terminating"))
