"""A run's Jobs and pods by task, and the tasks without pods. Pure.

The state of a task is the state of its newest pod. Pods in the same unexplained state wait for the
same thing, so it is enough to read the events or the log of one of these pods.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/#JobStatus
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from ...spec import Spec, TaskType
from ...spec.names import parse_task, task_name
from ..api import labels
from ..api.decoding import condition, epoch_seconds
from ..api.labels import GROUP
from .exit_status import container_status, is_over
from .pod_problems import Object

ATTEMPT = f"{GROUP}/attempt"
"""Annotation of a Job: the group attempt (`status.attempt`) that its pods belong to."""


def is_suspended(job: Object | None) -> bool:
    """Return whether a Job is suspended."""
    return job is not None and bool(job["spec"].get("suspend"))


def group_attempt(job: Object) -> int:
    """Return the group attempt that a Job's pods belong to."""
    return int((job["metadata"].get("annotations") or {}).get(ATTEMPT, 1))


def completed_indexes(job: Object | None) -> set[int]:
    """Return the indexes of a Job that have succeeded. The Job's status writes the indexes 1, 3, 4
    and 5 as "1,3-5".
    """
    text = "" if job is None else (job.get("status") or {}).get("completedIndexes") or ""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _dash, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def is_job_complete(job: Object, succeeded: int = 0) -> bool:
    """Return whether a Job creates no more pods; `succeeded` is the number of tasks known to have
    succeeded.
    """
    if any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Failed")):
        return True
    done = max(succeeded, len(completed_indexes(job)))
    return done >= int(job["spec"]["completions"])


def may_have_unseen_pods(
    spec: Spec,
    seen: Collection[str],
    jobs: Mapping[TaskType, Object],
    find: Callable[[TaskType], Object | None],
) -> bool:
    """Return whether Jobs may have created pods that the caches do not have yet.

    `seen` are the known tasks of the current attempt; `find` reads a Job that is not among `jobs`.
    A suspended Job counts as empty as soon as it has asked all its pods to end, even if some of
    them are still ending.
    """
    if len(seen) == spec.replicas.total:
        return False
    for task_type, count in spec.replicas.counts.items():
        if all(task_name(task_type, index) in seen for index in range(count)):
            continue
        job = jobs.get(task_type) or find(task_type)
        if job is not None and not (is_job_complete(job) or _is_job_empty(job)):
            return True
    return False


def _is_job_empty(job: Object) -> bool:
    """Return whether a Job has no pods and will create none."""
    if job["metadata"].get("deletionTimestamp"):
        return True
    status = job.get("status") or {}
    noted = condition(job, "Suspended").get("status") == "True"
    return is_suspended(job) and noted and not (status.get("active") or status.get("terminating"))


# Pods by task.

T = TypeVar("T")

LOG_QUESTION = "log"
_PATIENCE = 3.0
"""If a pod is still starting this many seconds after it got its node, the pod's events are read."""
_UNPLACED = 3.0
"""If the scheduler has reported nothing on a pod after this many seconds, the pod may wait for a
claim.
"""
_QUIET = 4.0
"""If a task's port is still closed this many seconds after its container started, the task's output
is read.
"""
_SPEAKING = {"ContainerCreating", "PodInitializing", ""}

SilentState = tuple[str, str, str]
"""The state of a pod that waits without giving a reason. It has three parts: what to read to find
the reason (`Pod` for the pod's events, `log` for its output), the task type, and the node. Pods in
the same state wait for the same thing.
"""


def newest_pods(pods: Iterable[Object]) -> dict[str, Object]:
    """Return the newest pod of each task, in display order."""
    found: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda each: str(each["metadata"].get("creationTimestamp", ""))):
        task = labels.task_of(pod)
        if task is not None:
            found[task] = pod
    order = list(TaskType)

    def place(task: str) -> tuple[int, int]:
        task_type, index = parse_task(task)
        return order.index(task_type), index

    return {task: found[task] for task in sorted(found, key=place)}


def task_type_of(found: Object) -> str:
    """Return the task type of a pod or a Job."""
    return str((found["metadata"].get("labels") or {}).get(labels.TASK_TYPE, ""))


def tasks_without_pod(job: Object, tasks: Mapping[str, Object]) -> list[str]:
    """Return the tasks of a Job that should have a running pod but have none."""
    task_type = task_type_of(job)
    if is_suspended(job) or task_type not in set(TaskType):
        return []
    done = completed_indexes(job)
    names = {i: task_name(task_type, i) for i in range(job["spec"].get("completions") or 0)}
    return [
        name
        for i, name in names.items()
        if i not in done and (name not in tasks or is_over(tasks[name]))
    ]


def is_up(pod: Object) -> bool:
    """Return whether a pod's container runs and its port, if it has one, is open."""
    status = container_status(pod)
    return "running" in (status.get("state") or {}) and bool(status.get("started"))


def claims_of(pod: Object) -> list[str]:
    """Return the claims that a pod mounts."""
    volumes = pod["spec"].get("volumes") or ()
    return [
        v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v
    ]


def unexplained_wait_state(pod: Object, now: float | None = None) -> SilentState | None:
    """Return the state of a pod that waits without giving a reason; None for any other pod. If
    `now` is given, return None also for a pod that has waited for less than a few seconds.
    """
    node = pod["spec"].get("nodeName") or ""
    if is_over(pod) or not node or is_up(pod):
        return None
    state = container_status(pod).get("state") or {}
    if "running" in state:
        since, patience, kind = (
            epoch_seconds(state["running"].get("startedAt")),
            _QUIET,
            LOG_QUESTION,
        )
    elif (state.get("waiting") or {}).get("reason", "") in _SPEAKING:
        told = condition(pod, "PodScheduled").get("lastTransitionTime")
        since, patience, kind = epoch_seconds(told), _PATIENCE, "Pod"
    else:
        return None
    if now is not None and since is not None and now - since < patience:
        return None
    return kind, task_type_of(pod), node


def needs_claims(pod: Object, now: float) -> bool:
    """Return whether only a pod's claims can explain why the pod has no node."""
    made = epoch_seconds(pod["metadata"].get("creationTimestamp")) or 0.0
    if pod["spec"].get("nodeName") or is_over(pod):
        return False
    told = condition(pod, "PodScheduled")
    if not told:
        return now - made >= _UNPLACED
    words = str(told.get("message", ""))
    return any(word in words for word in ("PersistentVolume", "persistent volumes"))


def representative_pods(
    tasks: Mapping[str, Object], answers: Mapping[str, Sequence[T]]
) -> list[Object]:
    """Return the pods about which `answers` has an answer, such as events or lines of output; pass
    them to `answer_for_pod` as `others`.
    """
    return [pod for pod in tasks.values() if pod["metadata"]["uid"] in answers]


def answer_for_pod(
    pod: Object, others: Iterable[Object], answers: Mapping[str, Sequence[T]]
) -> Sequence[T]:
    """Return the answer (events or lines of output) about this pod. If `answers` has none, return
    the answer about another pod that waits for the same thing: preferably a pod in the same state,
    otherwise a pod in a state that differs only in the node. If there is no such pod, return an
    empty sequence. `others` are the pods with an answer.
    """
    own = answers.get(pod["metadata"]["uid"])
    if own is not None:
        return own
    state = unexplained_wait_state(pod)
    near: Sequence[T] = ()
    for other in others:
        there = unexplained_wait_state(other)
        if there is None or state is None:
            continue
        if there == state:
            return answers[other["metadata"]["uid"]]
        if there[:2] == state[:2] and not near:
            near = answers[other["metadata"]["uid"]]
    return near
