"""Pods recorded on a real node, their Job, and the observer that reads both."""

from __future__ import annotations

import copy
import json
from typing import Any

from support.project import DATA
from tfcluster_magic.kube.api import decoding
from tfcluster_magic.kube.status.run_observer import RunObserver
from tfcluster_magic.kube.status.task_pods import ATTEMPT
from tfcluster_magic.spec import Mode, Phase, Reason, Replicas, ReplicaSet, Spec, Status, TaskType

Object = dict[str, Any]
PODS = DATA / "pods"
NOW = 2_000_000_000.0
RUNNING = Status(phase=Phase.RUNNING, reason=Reason.RUNNING, started_at=1.0, running_at=1.0)


def recorded(name: str, uid: str = "", index: int = 0, **status: object) -> Object:
    """Return a pod that was recorded on a real node, with only the fields that the operator's
    caches keep.
    """
    pod: Object = decoding.trim_pod(json.loads((PODS / f"{name}.json").read_text()))
    pod = copy.deepcopy(pod)
    pod["metadata"]["uid"] = uid or f"{name}-{index}"
    pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)
    pod["status"].update(status)
    return pod


def job(suspend: bool = False, completed: str = "", attempt: int = 1) -> dict[TaskType, Object]:
    return {
        TaskType.WORKER: {
            "metadata": {"annotations": {ATTEMPT: str(attempt)}},
            "spec": {"suspend": suspend},
            "status": {"completedIndexes": completed, "startTime": "2033-05-18T03:33:00Z"},
        }
    }


def observer(workers: int = 1, mode: Mode = Mode.BETWEEN_GRAPH) -> RunObserver:
    return RunObserver(Spec(mode=mode, replicas=ReplicaSet(worker=Replicas(count=workers))))
