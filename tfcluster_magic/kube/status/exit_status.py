"""The exit status of a task, read from its pod. Pure.

Kubernetes' own reason takes precedence over the termination message, which takes precedence over
the exit code. If something outside a program, such as an eviction, ended the program, the end is
never reported as an exit of the program itself. Only a task that the run asked to stop counts as
Stopped.

Ref: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions Ref:
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ...errors import program_lines
from ...lifecycle.messages import english_clause, with_detail
from ...spec import Cause, Clause, Message, TaskExit, conversion
from ..api.decoding import condition, epoch_seconds
from . import pod_problems
from .pod_problems import PodContext, shorten_message

_PRESSURE = re.compile(r"The node was low on resource: ([\w.-]+)")
_VOLUME = re.compile(r'Usage of EmptyDir volume "([^"]+)" exceeds the limit "([^"]+)"')
_DISK = re.compile(r"ephemeral local storage usage exceeds the total limit of containers (\S+?)\.")


def disruption_detail(reason: str, message: str, node: str) -> Clause:
    """Return a sentence that explains the reason and the message of a disruption."""
    if found := _PRESSURE.search(message):
        return Message("NodeWasLowOn", {"node": node, "resource": found.group(1)})
    if found := _VOLUME.search(message):
        return Message("VolumeFilled", {"where": found.group(1), "limit": found.group(2)})
    if found := _DISK.search(message):
        return Message("DiskFilled", {"limit": found.group(1)})
    if reason == "PreemptionByScheduler":
        # Kubernetes' message names the scheduler, which preempted the pod
        which = Message("Saying", {"words": shorten_message(message)})
        return Message("Preempted", {"said": which if message else ""})
    if reason == "EvictionByEvictionAPI":
        return Message("EvictedBySomebody")
    if reason == "DeletionByTaintManager":
        return Message("EvictedByTaint")
    return shorten_message(f"{reason}: {message}").rstrip(": ")


Object = dict[str, Any]

DISRUPTION = "DisruptionTarget"
DELETED_BY_SOMEBODY = "DeletedBySomebody"
"""Our own reason in the condition `DISRUPTION`: the pod was deleted, but neither by the run nor by
Kubernetes.
"""
_LOST = {"DeletionByTaintManager", "DeletionByPodGC", "NodeLost"}
_OVER = ("Succeeded", "Failed")
_NEVER_RAN = {"StartError", "ContainerCannotRun"}
_UNKNOWN = {"ContainerStatusUnknown", "Unknown"}
"""Reasons that a kubelet or containerd gives if it did not find the container after its own
restart.
"""
_UNSEEN = 255
"""Containerd's exit code for a container whose shim was killed. If the program itself
exits with this code, the pod also has a termination message.
"""
_SIGNAL = 128


def container_status(pod: Mapping[str, Any]) -> Object:
    """Return the status of the task's container; empty before it exists."""
    every = (pod.get("status") or {}).get("containerStatuses") or [{}]
    first: Object = every[0]
    return first


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod has ended, so that none of its containers runs."""
    return pod["status"].get("phase") in _OVER or "terminated" in container_status(pod).get(
        "state", {}
    )


def disruption(pod: Object) -> tuple[str, str] | None:
    """Return reason and message of a disruption that ended the pod, such as an eviction, a
    preemption or a lost node; None if there was none.
    """
    told = condition(pod, DISRUPTION)
    if told.get("status") == "True":
        return str(told.get("reason", "")), str(told.get("message", ""))
    reason = pod["status"].get("reason")
    # The status has a reason if the node rejected the pod, or if Kubernetes marked it as failed.
    return (str(reason), str(pod["status"].get("message", ""))) if reason else None


def pod_exit(pod: Object, *, asked: bool, now: float) -> TaskExit:
    """Return how the task in an ended pod ended. `asked` is true if the run had asked the task to
    stop.
    """
    ended = container_status(pod).get("state", {}).get("terminated") or {}
    message = _termination_message(ended)
    code: int | None = ended.get("exitCode")
    told = message or _from_code(code, _finish_time(pod, ended, now), ended)
    out_of_memory = ended.get("reason") == Cause.OOM.value
    # A container whose first process was killed for memory may exit with 0 and no message.
    believed = message is not None or not out_of_memory
    if told.cause is Cause.COMPLETED and code in (0, None) and believed:
        return told
    if out_of_memory:
        return with_detail(told, Cause.OOM, _memory_limit(pod) or told.detail)
    if asked:
        return replace(told, cause=Cause.STOPPED) if _is_from_outside(told) else told
    if told.cause is Cause.OOM:
        return told
    outside = disruption(pod)
    if outside is not None:
        return _disrupted(told, *outside, pod)
    if ended.get("reason") in _NEVER_RAN:
        return _never_ran(told, pod, ended)
    if message is None and (ended.get("reason") in _UNKNOWN or code == _UNSEEN):
        return with_detail(told, Cause.LOST, Message("ContainerLost"))
    if _is_from_outside(told) and pod["metadata"].get("deletionTimestamp"):
        return with_detail(told, Cause.KILLED, Message("PodDeleted"))
    if told.cause is Cause.STOPPED:
        return replace(told, cause=Cause.KILLED)
    return told


def reported_usage(pod: Mapping[str, Any]) -> str:
    """Return the usage samples in a pod's termination message, which follow the line with the exit;
    empty if there are none. The user's program may have forged them.
    """
    ended = container_status(pod).get("state", {}).get("terminated") or {}
    return str(ended.get("message") or "").partition("\n")[2]


def lost_pod_exit(pod: Object | None, *, asked: bool, now: float) -> TaskExit:
    """Return the end of a task whose pod disappeared before its end was observed."""
    if asked:
        return TaskExit(cause=Cause.STOPPED, finished_at=now)
    outside = disruption(pod) if pod is not None else None
    gone = TaskExit(cause=Cause.KILLED, finished_at=now)
    gone = with_detail(gone, Cause.KILLED, Message("PodDeleted"))
    return gone if pod is None or outside is None else _disrupted(gone, *outside, pod)


def _memory_limit(pod: Object) -> str:
    """Return the task's memory limit, set by the spec, the policy or the namespace."""
    limits = ((pod["spec"].get("containers") or [{}])[0].get("resources") or {}).get("limits") or {}
    # not translated: `lifecycle.messages` parses the amount
    return f"limit {limits['memory']}" if "memory" in limits else ""


def _never_ran(told: TaskExit, pod: Object, ended: Object) -> TaskExit:
    """Return the end of a container that never ran because of its image, its command or its node.

    No kubelet starts a container of a Job's pod again, but the Job creates another pod.
    """
    image = (pod["spec"].get("containers") or [{}])[0].get("image", "")
    reason, words = str(ended.get("reason", "")), str(ended.get("message", ""))
    if not pod_problems.is_fault_of_image(words):
        why = shorten_message(words.removesuffix(": unknown"))
        detail = Message("NodeCouldNotStart", {"why": why or reason})
        return with_detail(told, Cause.LOST, detail, last_lines=())
    clause = pod_problems.container_waiting_problem(reason, words, PodContext(image=image))
    told_why = clause.text if clause else words[:500]
    return with_detail(told, Cause.NOT_STARTED, told_why, last_lines=())


def _disrupted(told: TaskExit, reason: str, words: str, pod: Object) -> TaskExit:
    if reason == DELETED_BY_SOMEBODY:
        return with_detail(told, Cause.KILLED, Message("PodDeleted"))
    if reason in _LOST:
        return with_detail(told, Cause.LOST, Message("NodeLost"))
    node = pod["spec"].get("nodeName") or ""
    return with_detail(told, Cause.EVICTED, disruption_detail(reason, words, node))


def _is_from_outside(told: TaskExit) -> bool:
    return told.cause in (Cause.KILLED, Cause.STOPPED)


def _termination_message(ended: Object) -> TaskExit | None:
    """Return the exit that the task's supervisor wrote; None if it wrote none."""
    line, _newline, _usage = str(ended.get("message") or "").partition("\n")
    try:
        told = conversion.decode(line, TaskExit)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return None
    try:
        if told.detail_message is not None:
            english_clause(told.detail_message)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return replace(told, detail_message=None)  # the program forged this message
    return told


def _from_code(code: int | None, at: float, ended: Object) -> TaskExit:
    if code is None:
        return TaskExit(cause=Cause.KILLED, finished_at=at)
    cause = Cause.ERROR
    by = code - _SIGNAL if code in (_SIGNAL + 9, _SIGNAL + 15) else None
    if code == 0:
        cause = Cause.COMPLETED
    elif by is not None:
        cause = Cause.KILLED
    lines = str(ended.get("message") or "").splitlines()
    return TaskExit(
        cause=cause,
        finished_at=at,
        exit_code=code,
        signal=by,
        last_lines=tuple(line[:500] for line in (program_lines(lines) or lines)[-20:]),
    )


def _finish_time(pod: Object, ended: Object, now: float) -> float:
    """Return the time at which the container ended. If this time is unknown, return the time at
    which Kubernetes marked the pod as not ready; if that is unknown too, return `now`.
    """
    return (
        epoch_seconds(ended.get("finishedAt"))
        or epoch_seconds(condition(pod, "ContainersReady").get("lastTransitionTime"))
        or now
    )
