"""Suspension and resumption of Jobs, and reports to Kubernetes on deleted pods.

Every action can be repeated without harm. Tasks are started and stopped only by `spec.suspend`: an
active Job creates its pods, and a suspended Job has none. Ref:
https://kubernetes.io/docs/concepts/workloads/controllers/job/#suspending-a-job
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone

from ...kube.api import access, decoding, labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.decoding import condition
from ...kube.api.labels import TASK_TYPE
from ...kube.objects.run_objects import TTL_SECONDS, types_served_by_ps
from ...kube.status.exit_status import DELETED_BY_SOMEBODY, DISRUPTION, is_over
from ...kube.status.run_observer import RunObserver
from ...kube.status.task_pods import (
    ATTEMPT,
    completed_indexes,
    group_attempt,
    is_job_complete,
    is_suspended,
)
from ...lifecycle import Decision, Observation
from ...spec import Message, Status, TaskType, TFCluster
from ...spec.names import parse_task


def completed_jobs(
    cluster: TFCluster, status: Status, gone: Iterable[TaskType], *, unseen: float, now: float
) -> dict[TaskType, Object]:
    """Return the missing Jobs whose tasks all succeeded, each in its presumed final state.

    `unseen` is the number of seconds for which no operator acted before this one; 0 if this
    operator has seen the Jobs. If it is longer than the TTL after which Kubernetes deletes ended
    Jobs, missing Jobs of `types_served_by_ps` are presumed to have succeeded.
    """
    found = {}
    for task_type in gone:
        count = cluster.spec.replicas.of(task_type).count
        counted = status.counts.get(task_type.value)
        known = counted is not None and counted.succeeded >= count
        if known or (task_type in types_served_by_ps(cluster) and unseen >= TTL_SECONDS):
            found[task_type] = _completed_job(count, now - TTL_SECONDS)
    return found


def lost_job_message(
    cluster: TFCluster,
    gone: Iterable[TaskType],
    over: Container[TaskType],
    seen: Container[TaskType],
) -> Message | None:
    """Return a message that says why a run cannot continue without its missing Jobs; None if it
    can.
    """
    mains = types_served_by_ps(cluster)
    missing = [each for each in gone if each not in over]
    if all(each in over for each in mains):
        missing = [each for each in missing if each is not TaskType.PS]
    if not missing:
        return None
    # name the Job of workers or chief: if it is deleted, Kubernetes also deletes the parameter
    # servers' Job
    first = next((each for each in mains if each in missing), missing[0])
    code = "JobDeleted" if first in seen else "JobDeletedUnseen"
    return Message(code, {"name": labels.job_name(cluster.metadata.name, first)})


SUCCESS_UNSEEN = Message("SuccessUnseen")
"""The message of a success that is inferred only from missing Jobs."""


def _completed_job(count: int, at: float) -> Object:
    ended = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"completedIndexes": f"0-{count - 1}", "completionTime": ended}
    return {"metadata": {}, "spec": {"completions": count}, "status": status}


log = logging.getLogger(__name__)


class JobControl:
    """Suspends and resumes the Jobs of one run."""

    def __init__(self, api: Api, task_group: RunObserver) -> None:
        self._api, self._task_group = api, task_group
        self._changed: dict[TaskType, Object] = {}
        """The Jobs in the state after our last change; the cache may be older."""
        self._refused = ""

    def apply(self, decision: Decision, seen: Observation, jobs: Mapping[TaskType, Object]) -> str:
        """Suspend the Jobs whose tasks must stop, and resume the Jobs whose tasks must start.

        If the change of one Job is refused, the other Jobs are still changed, and the reason is
        returned. Raises ApiError if the API does not answer.
        """
        self._refused = ""
        stop = {parse_task(task)[0] for task in decision.stop}
        start = {parse_task(each.task)[0] for each in decision.start}
        status = decision.status
        over = status.phase.is_final or status.stop_at is not None
        alive = {parse_task(task.name)[0] for task in seen.tasks.values() if task.alive}
        for task_type, cached in jobs.items():
            job = self.newest(task_type, cached)
            if task_type in stop:
                self._restart_unrelated(task_type, decision, seen)
                self._set_suspended(job, task_type, suspend=True, attempt=0)
            elif over:
                # Suspend this Job although it has no known task: it may have created pods that no
                # cache has yet. A Job with running tasks, such as parameter servers, is suspended
                # only when the decision says so.
                counted = status.counts.get(task_type.value)
                succeeded = 0 if counted is None else counted.succeeded
                if task_type not in alive and not is_job_complete(job, succeeded):
                    self._set_suspended(job, task_type, suspend=True, attempt=0)
            else:
                behind = group_attempt(job) < status.attempt
                if behind or (task_type in start and is_suspended(job)):
                    self._set_suspended(job, task_type, suspend=False, attempt=status.attempt)
        return self._refused

    def newest(self, task_type: TaskType, cached: Object) -> Object:
        """Return the newest known state of a Job: the cached state, or the state after our last
        change.
        """
        return latest_job(cached, self._changed.get(task_type))

    def unusable_types(
        self, decision: Decision, seen: Observation, jobs: Mapping[TaskType, Object]
    ) -> list[TaskType]:
        """Return the types whose Jobs cannot start the tasks that the decision starts, because a
        Job never starts a succeeded index again. Types with a running task are left out.
        """
        alive = {parse_task(task.name)[0] for task in seen.tasks.values() if task.alive}
        starts = [parse_task(each.task) for each in decision.start]
        never = {t for t, index in starts if index in completed_indexes(jobs.get(t))}
        return sorted(never - alive)

    def _restart_unrelated(
        self, task_type: TaskType, decision: Decision, seen: Observation
    ) -> None:
        """Mark the running tasks that the decision does not stop, but that end because their whole
        Job is suspended. They count as a previous attempt, so that their end is no failure.
        """
        if decision.status.phase.is_final or decision.status.stop_at is not None:
            return
        caught = [
            task.name
            for task in seen.tasks.values()
            if task.alive and parse_task(task.name)[0] is task_type
        ]
        self._task_group.set_back((t for t in caught if t not in decision.stop), decision.status)

    def _set_suspended(
        self, job: Object, task_type: TaskType, *, suspend: bool, attempt: int
    ) -> None:
        if suspend:
            self._task_group.asked_to_stop(task_type)
            if is_suspended(job):
                return
        head = job["metadata"]
        change: Object = {"spec": {"suspend": suspend}}
        if attempt > 1:
            change["metadata"] = {"annotations": {ATTEMPT: str(attempt)}}
        try:
            where = path("jobs", head["namespace"], head["name"])
            self._changed[task_type] = decoding.trim_job(self._api.merge(where, change))
        except ApiError as error:
            if error.unanswered:
                raise
            if not error.gone:
                self._refused = str(access.explain_api_error(error, server=self._api.server))
                log.warning("%s: not changed: %s", head["name"], self._refused)
            return
        if not suspend:
            self._task_group.asked_to_go_on(task_type)
        log.info("%s: %s", head["name"], "suspended" if suspend else "resumed")


def latest_job(cached: Object, ours: Object | None) -> Object:
    """Return the newer of two states of one object."""
    if ours is None or ours["metadata"]["uid"] != cached["metadata"]["uid"]:
        return cached
    return max(cached, ours, key=lambda job: int(job["metadata"]["resourceVersion"]))


def report_deleted_pods(
    api: Api,
    pods: Iterable[Object],
    going: AbstractSet[TaskType],
    away: AbstractSet[str],
) -> None:
    """Report the end of pods that are being deleted, if Kubernetes does not report it.

    Pods on a lost node are marked as failed, because the node's kubelet will not report their end.
    A pod that somebody deleted is marked as disrupted, so that its end does not count as a failure,
    even if the operator does not observe the end. The Job replaces the pod 10 s after the pod's end
    in either case. `going` has the types that are not being stopped, `away` the lost nodes. If a
    report is refused, the other pods are still reported, and the next turn tries again. Raises
    ApiError if the API does not answer.
    """
    for pod in pods:
        head = pod["metadata"]
        if not head.get("deletionTimestamp") or is_over(pod):
            continue
        task_type = TaskType(head["labels"][TASK_TYPE])
        disturbed = condition(pod, DISRUPTION).get("status") == "True"
        if pod["spec"].get("nodeName") in away:
            words = "its node does not answer any more"
            told = [] if disturbed else _condition_patch(pod, "NodeLost", words)
            change = [*told, _failed_patch()]
        elif disturbed or task_type not in going:
            continue
        else:
            words = "somebody deleted it while the run was active"
            change = _condition_patch(pod, DELETED_BY_SOMEBODY, words)
        try:
            api.patch(path("pods", head["namespace"], head["name"], "status"), change)
        except ApiError as error:
            if error.status not in (404, 409, 422):
                raise
            if not error.gone:
                log.warning("%s: its status is not taken: %s", head["name"], error.message)


def _failed_patch() -> Object:
    return {"op": "add", "path": "/status/phase", "value": "Failed"}


def _condition_patch(pod: Object, reason: str, words: str) -> list[Object]:
    """Return the patch that adds a condition to a pod. If the pod has no list of conditions yet,
    the patch first creates the list.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    value = {
        "type": DISRUPTION,
        "status": "True",
        "reason": reason,
        "message": words,
        "lastTransitionTime": now,
    }
    if pod["status"].get("conditions"):
        return [{"op": "add", "path": "/status/conditions/-", "value": value}]
    seen = pod["metadata"]["resourceVersion"]  # refuse the patch if the pod has changed since
    return [
        {"op": "add", "path": "/metadata/resourceVersion", "value": seen},
        {"op": "add", "path": "/status/conditions", "value": [value]},
    ]
