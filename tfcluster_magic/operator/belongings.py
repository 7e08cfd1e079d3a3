"""Which pods and Jobs are a run's own, which only have its labels, and which have no run any more.

Promises that what the operator did not make is neither counted nor touched, whatever labels it
has: anybody who may make a Job may label it. Reads caches alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..i18n import _
from ..kube.api import labels
from ..kube.api.client import Object
from ..spec import TaskType, TFCluster
from .caches import Caches, Key


@dataclass(frozen=True)
class Belongings:
    """The pods of a run that are its tasks, its Jobs by type, and what only looks like them."""

    pods: tuple[Object, ...]
    jobs: Mapping[TaskType, Object]
    strangers: tuple[str, ...]


@dataclass(frozen=True)
class Sight:
    """A run as a turn sees it: the record, its pods, its Jobs by task type, its PodGroup."""

    cluster: TFCluster
    pods: Sequence[Object]
    jobs: Mapping[TaskType, Object]
    group: Object | None = None


def of_run(caches: Caches, key: Key, uid: str) -> Belongings:
    """What the caches have of the run of this uid."""
    every = [job for job in caches.jobs.of(key) if uid_of(job) == uid]
    jobs = {task_type: job for job in every if (task_type := type_of(job)) is not None}
    pods = [pod for pod in caches.pods.of(key) if uid_of(pod) == uid]
    return Belongings(
        pods=tuple(pod for pod in pods if labels.task_of(pod) is not None),
        jobs=jobs,
        strangers=tuple(sorted(j["metadata"]["name"] for j in every if type_of(j) is None)),
    )


def of_others(caches: Caches, key: Key, uid: str) -> Iterator[tuple[str, Object]]:
    """Pods and Jobs of the run's name that carry another uid, each with its kind."""
    for pod in caches.pods.of(key):
        if uid_of(pod) != uid and labels.task_of(pod) is not None:
            yield "Pod", pod
    for job in caches.jobs.of(key):
        if uid_of(job) != uid and type_of(job) is not None:
            yield "Job", job


def type_of(job: Object) -> TaskType | None:
    """The type of the tasks that a Job of ours makes; None for one that we did not make."""
    head = job["metadata"]
    marks = head.get("labels") or {}
    told = marks.get(labels.TASK_TYPE)
    if told not in set(TaskType) or "completions" not in job["spec"]:
        return None
    task_type = TaskType(told)
    name = labels.job_name(marks.get(labels.NAME, ""), task_type)
    return task_type if head["name"] == name else None


def uid_of(found: Object) -> str:
    """The uid of the run that an object says it is of."""
    return str((found["metadata"].get("labels") or {}).get(labels.UID, ""))


def warning(stranger: str) -> str:
    """What a record says of a Job that has its labels."""
    return _("Job {name} has the labels of this run and is none of its Jobs: it is ignored").format(
        name=stranger
    )
