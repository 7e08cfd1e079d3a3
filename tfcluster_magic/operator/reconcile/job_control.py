"""Suspends and resumes Jobs as a decision wants, and tells Kubernetes of a pod what it cannot know.

Each is harmless when done twice. `spec.suspend` is the one switch for tasks: Jobs make pods by
themselves, and a suspended one has none.
Ref: https://kubernetes.io/docs/concepts/workloads/controllers/job/#suspending-a-job
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
    """Those of the types whose tasks have all succeeded, each with its Job as it was at last.

    `unseen` are the seconds for which nobody looked before this; 0 for Jobs that we saw.
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
    """Why a run cannot go on without its Jobs that are gone; None when it can."""
    mains = types_served_by_ps(cluster)
    missing = [each for each in gone if each not in over]
    if all(each in over for each in mains):
        missing = [each for each in missing if each is not TaskType.PS]
    if not missing:
        return None
    # the others may have gone with it
    first = next((each for each in mains if each in missing), missing[0])
    code = "JobDeleted" if first in seen else "JobDeletedUnseen"
    return Message(code, {"name": labels.job_name(cluster.metadata.name, first)})


SUCCESS_UNSEEN = Message("SuccessUnseen")
"""The message of a success that follows from the absence of the Jobs alone."""


def _completed_job(count: int, at: float) -> Object:
    ended = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"completedIndexes": f"0-{count - 1}", "completionTime": ended}
    return {"metadata": {}, "spec": {"completions": count}, "status": status}


# What a decision means for Jobs and pods, and doing it: suspend, resume, and tell Kubernetes of a
# pod what it cannot know.
#
# Each is harmless when done twice. `spec.suspend` is the one switch for Jobs, which make pods by
# themselves: a suspended one has none.
# Ref: https://kubernetes.io/docs/concepts/workloads/controllers/job/#suspending-a-job

log = logging.getLogger(__name__)


class JobControl:
    """The Jobs of one run, as a decision wants them."""

    def __init__(self, api: Api, task_group: RunObserver) -> None:
        self._api, self._task_group = api, task_group
        self._changed: dict[TaskType, Object] = {}
        """The Jobs as they were after we changed them: the cache may be older."""
        self._refused = ""

    def apply(self, decision: Decision, seen: Observation, jobs: Mapping[TaskType, Object]) -> str:
        """Suspend the Jobs of tasks that shall stop, resume those of tasks that shall start.

        What the API does not take of one Job keeps nothing from the others; it is returned in
        words. Raises ApiError when nobody answers.
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
                # Its Job makes pods that nobody has seen yet; servers that still run are given
                # back when the decision says so.
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
        """A Job as it was last seen or changed here."""
        return latest_job(cached, self._changed.get(task_type))

    def unusable_types(
        self, decision: Decision, seen: Observation, jobs: Mapping[TaskType, Object]
    ) -> list[TaskType]:
        """The types whose Jobs will not start what shall start: a Job never starts an index again
        that has succeeded. Only those without a task that is alive.
        """
        alive = {parse_task(task.name)[0] for task in seen.tasks.values() if task.alive}
        starts = [parse_task(each.task) for each in decision.start]
        never = {t for t, index in starts if index in completed_indexes(jobs.get(t))}
        return sorted(never - alive)

    def _restart_unrelated(
        self, task_type: TaskType, decision: Decision, seen: Observation
    ) -> None:
        """What goes down with its Job, though it should not, is no failure: it starts again."""
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
    """The later of two states of one object."""
    if ours is None or ours["metadata"]["uid"] != cached["metadata"]["uid"]:
        return cached
    return max(cached, ours, key=lambda job: int(job["metadata"]["resourceVersion"]))


def report_deleted_pods(
    api: Api,
    pods: Iterable[Object],
    going: AbstractSet[TaskType],
    away: AbstractSet[str],
) -> None:
    """Say what Kubernetes does not know of pods that are being deleted.

    On a node that is lost nobody will ever report their end: they have failed. One that somebody
    deletes was disrupted: its end is nobody's failure, also when nobody sees it. Its Job puts
    another in its place 10 s after that end, whatever it is told. `going` are the types that
    nobody has stopped. What the API does not take of one pod keeps nothing from the others: the
    next turn tells it again. Raises ApiError when nobody answers.
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
    """The change that adds a condition; nothing can be added to a list that is not there."""
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
    seen = pod["metadata"]["resourceVersion"]  # in place of a list that came meanwhile: refused
    return [
        {"op": "add", "path": "/metadata/resourceVersion", "value": seen},
        {"op": "add", "path": "/status/conditions", "value": [value]},
    ]
