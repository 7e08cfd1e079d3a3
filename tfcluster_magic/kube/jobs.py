"""What a Job says of its pods. Pure.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/#JobStatus
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..lifecycle import ObservedTask
from ..models import Spec, TaskState, TaskType
from .ends import condition
from .labels import GROUP

Object = dict[str, Any]

ATTEMPT = f"{GROUP}/attempt"
"""Annotation of a Job: the group attempt (`status.attempt`) that its pods belong to."""
FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: how many pods of its index the Job counted before it."""
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Beside it: how many were lost to disruptions, where the Job counts these apart."""


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
    seen: Iterable[ObservedTask],
    jobs: Mapping[TaskType, Object],
    find: Callable[[TaskType], Object | None],
) -> bool:
    """Whether Jobs may have made tasks that nobody has seen: what is followed comes late, and a Job
    makes the next pod of an index when the one that was seen has ended.

    `find` asks for a Job that is not among `jobs`. Of one that is suspended its controller says so
    when it has asked all pods to end, of which some may be ending still. Types with a task that is
    alive are waited for anyhow.
    """
    tasks = list(seen)
    alive = {_kind(task) for task in tasks if task.alive}
    for task_type in spec.replicas.counts:
        if task_type.value in alive:
            continue
        done = [task for task in tasks if task.state is TaskState.SUCCEEDED]
        succeeded = sum(_kind(task) == task_type.value for task in done)
        job = jobs.get(task_type) or find(task_type)
        if job is not None and not (is_complete(job, succeeded) or _is_empty(job)):
            return True
    return False


def _kind(task: ObservedTask) -> str:
    return task.name.rpartition("-")[0]


def _is_empty(job: Object) -> bool:
    """Whether a Job has no pods, and its controller will make none."""
    if job["metadata"].get("deletionTimestamp"):
        return True
    status = job.get("status") or {}
    noted = condition(job, "Suspended").get("status") == "True"
    return is_suspended(job) and noted and not (status.get("active") or status.get("terminating"))
