"""Observation of one run for the lifecycle, from its pods and Jobs: attempts, readiness, ends.
Pure.

Each pod of an index is an attempt of the task; attempts are numbered in the order of creation. The
end of each attempt is reported before the next attempt, even if both are seen at once. Once known,
an end stays known when its pod is gone. After a restart of the operator, a new `RunObserver`
reconstructs the same observation from the record, the pods and the Jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from ...lifecycle import Observation, ObservedTask
from ...spec import Cause, Mode, Phase, Spec, Status, TaskExit, TaskState, TaskType, TypeCounts
from ...spec.names import parse_task, task_name
from ..api.decoding import condition, epoch_seconds
from ..api.labels import INDEX_FAILURES, INDEX_IGNORED_FAILURES, task_of
from ..api.resource_amounts import pod_resources
from .exit_status import container_status, is_over, lost_pod_exit, pod_exit
from .task_pods import completed_indexes, group_attempt, is_suspended

Object = dict[str, Any]


def bound_since(pod: Object) -> float | None:
    """Return the time at which the pod was bound to its node, in seconds since the epoch; None if
    it is not bound.
    """
    bound = condition(pod, "PodScheduled")
    return epoch_seconds(bound.get("lastTransitionTime")) if bound.get("status") == "True" else None


def requested_cores(pod: Object) -> float:
    """Return the CPU cores that a pod requests, including defaults from the API server."""
    return pod_resources(pod["spec"]).get("cpu", 0.0)


@dataclass
class _SeenTask:
    """The stored facts about a task: the pod of its newest attempt, and the end of that pod."""

    uid: str
    attempt: int
    pod: Object | None
    exit: TaskExit | None = None
    since: float | None = None


class RunObserver:
    """The tasks of one run, over all attempts."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._known: dict[str, _SeenTask] = {}
        self._asked: set[TaskType] = set()
        self._cores: dict[str, float] = {}
        counts = spec.replicas.counts
        self._tasks = [(task_name(t, i), t) for t in counts for i in range(counts[t])]

    def asked_to_stop(self, task_type: TaskType) -> None:
        """Record that the operator suspended the Job of this type. The Job in the cache may not
        show this yet.
        """
        self._asked.add(task_type)

    def asked_to_go_on(self, task_type: TaskType) -> None:
        """Record that the operator resumed the Job of this type."""
        self._asked.discard(task_type)

    def going(self, jobs: Mapping[TaskType, Object]) -> set[TaskType]:
        """Return the task types whose Jobs are not suspended."""
        return {t for t, job in jobs.items() if t not in self._asked and not is_suspended(job)}

    def set_back(self, tasks: Iterable[str], status: Status) -> None:
        """Count the current pods of these tasks as part of the previous attempt of their group,
        because the pods end together with that attempt.
        """
        for task in tasks:
            self._known[task].attempt = min(self._known[task].attempt, _wanted(task, status) - 1)

    def observe(
        self,
        status: Status,
        pods: Iterable[Object],
        jobs: Mapping[TaskType, Object],
        now: float,
        away: AbstractSet[str] = frozenset(),
    ) -> Observation:
        """Return the state of the run; `away` are the nodes that are not ready."""
        every = _by_age(pods, {known.uid for known in self._known.values()})
        seen = {}
        for task, task_type in self._tasks:
            job = jobs.get(task_type)
            asked = task_type in self._asked or is_suspended(job)
            pod = self._in_turn(task, every.get(task, ()), status)
            if pod is not None:
                known = self._meet(task, pod, job, status)
                known.pod = pod
                known.since = known.since or bound_since(pod)
                if task_type.value not in self._cores:
                    self._cores[task_type.value] = requested_cores(pod)
                if known.exit is None and is_over(pod):
                    known.exit = pod_exit(pod, asked=asked, now=now)
            elif task in self._known:
                known = self._known[task]
                if known.exit is None:
                    known.exit = _without_pod(task, job) or lost_pod_exit(
                        known.pod, asked=asked, now=now
                    )
                known.pod = None
            else:
                past = _without_pod(task, job) or _recorded(task, job, status, now)
                if past is None:
                    continue
                known = self._known[task] = _SeenTask("", _wanted(task, status), None, past)
            seen[task] = self._shown(task, known, away)
        nodes = {of_task[-1]["spec"].get("nodeName") for of_task in every.values()}
        # The checkpoint is unknown here: checkpoints are on the user's volume, which the operator
        # does not mount.
        return Observation(
            tasks=seen, nodes_not_ready=bool(nodes & away), checkpoint="", cores=dict(self._cores)
        )

    def _in_turn(self, task: str, pods: Sequence[Object], status: Status) -> Object | None:
        """Return the pod that shows the task's state: the newest pod, but only after the ends of
        all earlier pods were reported.

        A Job may create several pods of an index between two turns, and no end in an active run may
        be missed. None means that there is no pod, or that the known pod is gone and its end must
        be reported first.
        """
        known = self._known.get(task)
        if not pods or status.phase not in (Phase.STARTING, Phase.RUNNING):
            return pods[-1] if pods else None
        if known is None:
            missed = (
                pods[-2:-1] if pods_counted_before(pods[-1]) > status.restarts.get(task, 0) else ()
            )
            untold = [p for p in missed if is_over(p) and _told_attempt(task, p, status) is None]
            return untold[0] if untold else pods[-1]
        at = next((n for n, p in enumerate(pods) if p["metadata"]["uid"] == known.uid), None)
        if known.exit is None:
            return None if at is None else pods[at]
        return pods[-1] if at is None else pods[at : at + 2][-1]

    def _meet(self, task: str, pod: Object, job: Object | None, status: Status) -> _SeenTask:
        """Return the task of this pod; a new pod is the task's next attempt."""
        uid = str(pod["metadata"]["uid"])
        known = self._known.get(task)
        if known is not None and known.uid == uid:
            return known
        if known is None:
            attempt = _attempt_of_found(task, pod, job, status)
        else:
            attempt = max(known.attempt + 1, _wanted(task, status))
        self._known[task] = _SeenTask(uid, attempt, pod)
        return self._known[task]

    def _shown(self, task: str, known: _SeenTask, away: AbstractSet[str]) -> ObservedTask:
        if known.exit is not None or known.pod is None:
            assert known.exit is not None
            state = _STATES.get(known.exit.cause, TaskState.FAILED)
            return ObservedTask(
                name=task,
                attempt=known.attempt,
                state=state,
                exit=known.exit,
                since=known.since,
            )
        state, ready = _state(known.pod)
        # Whether a server on an unreachable node is in use cannot be known.
        here = known.pod["spec"].get("nodeName") not in away
        tells = ready and here and self._spec.mode is Mode.IN_GRAPH
        idle = _idle_since(known.pod) if tells else None
        return ObservedTask(
            name=task,
            attempt=known.attempt,
            state=state,
            ready=ready,
            idle_since=idle,
            since=known.since,
            began=_began(known.pod),
        )


_STATES = {Cause.COMPLETED: TaskState.SUCCEEDED, Cause.STOPPED: TaskState.STOPPED}


def task_in_pod(pod: Object, now: float) -> tuple[TaskState, float | None]:
    """Return the state of a pod's task, and the start of this state in seconds since the epoch,
    using only the pod.

    So a task that was asked to stop is reported like a task that was killed.
    """
    if is_over(pod):
        ended = pod_exit(pod, asked=False, now=now)
        return _STATES.get(ended.cause, TaskState.FAILED), ended.finished_at
    return _state(pod)[0], _began(pod) or bound_since(pod)


def pods_counted_before(pod: Object) -> int:
    """Return the number of earlier pods of the same index that the Job counted as failures or
    disruptions.
    """
    notes = pod["metadata"].get("annotations") or {}
    return int(notes.get(INDEX_FAILURES, 0)) + int(notes.get(INDEX_IGNORED_FAILURES, 0))


def _by_age(pods: Iterable[Object], known: AbstractSet[str]) -> dict[str, list[Object]]:
    """Return the pods of each task, oldest first. Creation times are whole seconds, so several pods
    may have the same time. These pods are ordered by the number of earlier pods, then by whether
    they have ended and by whether they are in `known`.
    """

    def age(pod: Object) -> tuple[object, ...]:
        head = pod["metadata"]
        going = is_over(pod) or "deletionTimestamp" in head
        return (
            head["creationTimestamp"],
            pods_counted_before(pod),
            not going,
            head["uid"] not in known,
        )

    found: dict[str, list[Object]] = {}
    for pod in pods:
        task = task_of(pod)
        if task is not None:
            found.setdefault(task, []).append(pod)
    for of_task in found.values():
        if len(of_task) > 1:
            of_task.sort(key=age)
    return found


def _wanted(task: str, status: Status) -> int:
    return 1 + status.restarts.get(task, 0)


def _told_attempt(task: str, pod: Object, status: Status) -> int | None:
    """Return the attempt of an ended pod, from the recorded failure that has the same end time;
    None if there is no such failure.
    """
    ended = pod_exit(pod, asked=False, now=0.0).finished_at
    same = [f for f in status.failures if f.task == task and f.exit.finished_at == ended]
    return same[-1].attempt if same else None


def _attempt_of_found(task: str, pod: Object, job: Object | None, status: Status) -> int:
    """Return the attempt of a pod that was created before this observer."""
    wanted = _wanted(task, status)
    after = max([wanted, *(f.attempt + 1 for f in status.failures if f.task == task)])
    if is_over(pod):
        return _told_attempt(task, pod, status) or after
    flushing = job is not None and (is_suspended(job) or group_attempt(job) < status.attempt)
    return wanted - 1 if flushing and wanted > 1 and not status.phase.is_final else after


def _without_pod(task: str, job: Object | None) -> TaskExit | None:
    """Return the end of a task without a pod, if its Job counts the task as succeeded."""
    if job is None or parse_task(task)[1] not in completed_indexes(job):
        return None
    at = epoch_seconds(job["status"].get("completionTime")) or epoch_seconds(
        job["status"].get("startTime")
    )
    return TaskExit(cause=Cause.COMPLETED, finished_at=at or 0.0, exit_code=0)


def _recorded(task: str, job: Object | None, status: Status, now: float) -> TaskExit | None:
    """Return the end of a task whose pod is gone, from the record or the Job."""
    ended = [f for f in status.failures if f.attempt == _wanted(task, status)]
    for failure in filter(None, [*ended, status.evaluator]):
        if failure.task == task and failure.attempt >= _wanted(task, status):
            return failure.exit
    for each in status.attention:
        if each.name == task and each.exit is not None and status.phase.is_final:
            return each.exit
    if not is_suspended(job) or (status.stop_at is None and not status.phase.is_final):
        return None
    if _never_had_a_pod(task, status):
        return None
    assert job is not None
    since = epoch_seconds(condition(job, "Suspended").get("lastTransitionTime"))
    return TaskExit(cause=Cause.STOPPED, finished_at=since or now)


def _never_had_a_pod(task: str, status: Status) -> bool:
    """Return whether, according to the record, the task never had a pod, and so has no end."""
    for each in status.attention:
        if each.name == task:
            return each.state is TaskState.PENDING and not each.restarts
    counted = status.counts.get(parse_task(task)[0].value)
    return counted is not None and counted == TypeCounts(desired=counted.desired)


def _state(pod: Object) -> tuple[TaskState, bool]:
    """Return the state of a task whose pod has not ended, and whether the task is ready."""
    told = container_status(pod)
    if "running" not in told.get("state", {}):
        return TaskState.PENDING, False
    if told.get("started"):
        return TaskState.RUNNING, True
    return TaskState.STARTING, False


def _began(pod: Object) -> float | None:
    """Return the time at which the container started; None if it has not started."""
    running = (container_status(pod).get("state") or {}).get("running") or {}
    return epoch_seconds(running.get("startedAt"))


def _idle_since(pod: Object) -> float | None:
    """Return the time since which a server has been unused, from its readiness probe; None if it is
    in use.
    """
    ready = condition(pod, "Ready")
    if ready.get("status") != "False":
        return None
    return max(epoch_seconds(ready.get("lastTransitionTime")) or 0.0, _began(pod) or 0.0)
