"""A run's pods by task, and the tasks that have none. Pure.

Owns which pod speaks for a task: its newest; and in which state it keeps silent, so that one pod
can be asked for all that are in the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ...spec import TaskType
from ...spec.names import parse_task, task_name
from ..api import labels
from ..api.decoding import condition, seconds
from .exit_status import container, is_over
from .jobs import completed_indexes, is_suspended
from .said import Object

T = TypeVar("T")

LOG = "log"
_PATIENCE = 3.0
"""Seconds for which a pod may be on its way before anybody asks why."""
_UNPLACED = 3.0
"""Seconds in which the scheduler has said something of a pod, unless it waits for a claim."""
_QUIET = 4.0
"""Seconds for which a program that runs may keep its port closed before its output is read."""
_SPEAKING = {"ContainerCreating", "PodInitializing", ""}

State = tuple[str, str, str]
"""`Pod` or LOG, task type, node: pods of one state wait for the same thing."""


def newest(pods: Iterable[Object]) -> dict[str, Object]:
    """The newest pod of each task, in the order in which people read tasks."""
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


def type_of(found: Object) -> str:
    """The task type of a pod or a Job."""
    return str((found["metadata"].get("labels") or {}).get(labels.TASK_TYPE, ""))


def without_pod(job: Object, tasks: Mapping[str, Object]) -> list[str]:
    """Tasks of a Job that should have a pod and have none that is not over."""
    task_type = type_of(job)
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
    """Whether its container runs and its port, where it has one, is open."""
    status = container(pod)
    return "running" in (status.get("state") or {}) and bool(status.get("started"))


def claims_of(pod: Object) -> list[str]:
    """The claims that a pod mounts."""
    volumes = pod["spec"].get("volumes") or ()
    return [
        v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v
    ]


def silent(pod: Object, now: float | None = None) -> State | None:
    """The state in which a pod does not say why it waits; None when it does, or (with `now`) when
    it may only need a moment.
    """
    node = pod["spec"].get("nodeName") or ""
    if is_over(pod) or not node or is_up(pod):
        return None
    state = container(pod).get("state") or {}
    if "running" in state:
        since, patience, kind = seconds(state["running"].get("startedAt")), _QUIET, LOG
    elif (state.get("waiting") or {}).get("reason", "") in _SPEAKING:
        told = condition(pod, "PodScheduled").get("lastTransitionTime")
        since, patience, kind = seconds(told), _PATIENCE, "Pod"
    else:
        return None
    if now is not None and since is not None and now - since < patience:
        return None
    return kind, type_of(pod), node


def needs_claims(pod: Object, now: float) -> bool:
    """Whether only its claims can tell why no node is looked for, or why one is not found."""
    made = seconds(pod["metadata"].get("creationTimestamp")) or 0.0
    if pod["spec"].get("nodeName") or is_over(pod):
        return False
    told = condition(pod, "PodScheduled")
    if not told:
        return now - made >= _UNPLACED
    words = str(told.get("message", ""))
    return any(word in words for word in ("PersistentVolume", "persistent volumes"))


def read(tasks: Mapping[str, Object], answers: Mapping[str, Sequence[T]]) -> list[Object]:
    """The few pods of which something was read: `answer` looks at no others."""
    return [pod for pod in tasks.values() if pod["metadata"]["uid"] in answers]


def answer(
    pod: Object, others: Iterable[Object], answers: Mapping[str, Sequence[T]]
) -> Sequence[T]:
    """What was read of this pod, else of one in the same state, else of one of its type; `others`
    are those of which something was `read`.
    """
    own = answers.get(pod["metadata"]["uid"])
    if own is not None:
        return own
    state = silent(pod)
    near: Sequence[T] = ()
    for other in others:
        there = silent(other)
        if there is None or state is None:
            continue
        if there == state:
            return answers[other["metadata"]["uid"]]
        if there[:2] == state[:2] and not near:
            near = answers[other["metadata"]["uid"]]
    return near
