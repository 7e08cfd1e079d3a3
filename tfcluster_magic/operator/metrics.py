"""The Prometheus metrics of the operator and its runs.

The number of series does not grow with users or runs: labels are phases, reasons, task types and
kinds of objects. A duration in the life of a run, such as the time in the queue, is observed once:
when the operator writes the status in which the duration has ended. Gauges are computed from the
caches when Prometheus asks. Ref:
https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as Counted
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..kube.api.client import Object
from ..kube.api.decoding import epoch_seconds
from ..kube.api.informer import Informer
from ..kube.api.labels import TASK_TYPE
from ..kube.controller.process import METRIC_PREFIX, labelled_metric, number_metrics
from ..kube.objects import custom_resource
from ..kube.status.exit_status import is_over
from ..spec import Lifecycle, Phase, Status, TaskType
from .cluster_state import ClusterCaches, run_key

STARTS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
QUEUES = (1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600)
RECLAIMS = (0.5, 1, 2, 5, 10, 30, 60, 300)
TURNS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
NUMBERS = {
    "turns_total": "Turns taken; in a turn the operator reads one run and acts.",
    "failed_turns_total": "Turns that failed and are retried.",
    "status_writes_total": "Writes of a run's status.",
    "options_writes_total": "Writes of a namespace's published options.",
    "waiting_turns": "Runs that wait for a turn.",
    "records": "TFClusters that the operator keeps in memory.",
    "schedules": "TFClusterSchedules that the operator keeps in memory.",
    "scheduled_launches_total": "Runs that schedules launched.",
    "pods": "Pods that the operator keeps in memory.",
    "leads": "1 for the operator that holds the Lease.",
    "network_policies_enforced": "1 if the network enforces NetworkPolicies.",
    "queue_oldest_seconds": "Age of the run that has been queued for longest.",
}
"""The help texts of the counters and gauges, by name."""
PATIENCE = 60.0
"""A running pod counts as overdue this many seconds after its deadline."""


class OperatorMetrics:
    """The measurements since this process started."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.status_writes = 0
        more: dict[str, Any] = {"namespace": METRIC_PREFIX, "registry": self.registry}
        self.queue = Histogram(
            "queue_wait_seconds",
            "Time that a run waited in the queue, from its creation to its start.",
            buckets=QUEUES,
            **more,
        )
        self.first = Histogram(
            "first_task_seconds",
            "Time from the start of a run until its first task was up.",
            buckets=STARTS,
            **more,
        )
        self.all = Histogram(
            "all_tasks_seconds",
            "Time from the start of a run until all of its tasks were up.",
            buckets=STARTS,
            **more,
        )
        self.reclaim = Histogram(
            "reclaim_delay_seconds",
            "Time from when the tasks of an ended run should be deleted until all are deleted.",
            buckets=RECLAIMS,
            **more,
        )
        self.turn = Histogram("turn_seconds", "Time of one turn of a run.", buckets=TURNS, **more)
        self.ended = Counted("runs_ended", "Runs that ended.", ("phase", "reason"), **more)

    def wrote(self, found: Object, before: Status, after: Status) -> None:
        """Record a status write that changed a run from `before` to `after`."""
        self.status_writes += 1
        began = after.started_at
        if began is not None:
            if before.started_at is None:
                made = epoch_seconds(found["metadata"].get("creationTimestamp")) or began
                self.queue.observe(max(0.0, began - made))
            if (
                _has_started_task(after)
                and not _has_started_task(before)
                and before.running_at is None
                and not after.restarts
            ):
                self.first.observe(max(0.0, time.time() - began))
            if after.running_at is not None and before.running_at is None:
                self.all.observe(max(0.0, after.running_at - began))
        if after.phase.is_final and not before.phase.is_final:
            self.ended.labels(after.phase.value, after.reason.value).inc()
        if after.released_at is not None and before.released_at is None and began is not None:
            due = _tasks_due_at(found, after.phase, after.finished_at or after.released_at)
            self.reclaim.observe(max(0.0, after.released_at - due))


def _has_started_task(status: Status) -> bool:
    return any(c.running + c.succeeded for c in status.counts.values())


def _tasks_due_at(found: Object, phase: Phase, finished: float) -> float:
    """Return the time by which the tasks of an ended run must be gone."""
    if phase is not Phase.SUCCEEDED or (found.get("spec") or {}).get("stop"):
        return finished
    stays = custom_resource.seconds_of(found, "reclaimAfterSeconds")
    return finished + (Lifecycle().reclaim_after if stays is None else stays)


class StateCollector(Collector):
    """A collector of metrics that describe the current state of runs, pods and caches.

    Args:
        caches: the operator's caches, of which the runs and pods are used.
        informers: the caches of objects; the time of the last update of each is a metric.
        numbers: counters (`…_total`) and gauges by name.
    """

    def __init__(
        self, caches: ClusterCaches, informers: Iterable[Informer], numbers: Mapping[str, float]
    ) -> None:
        self._caches, self._informers, self._numbers = caches, informers, numbers

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        now = time.time()
        phases = Counter({phase.value: 0 for phase in Phase})
        oldest = 0.0
        for found in self._caches.runs.every():
            phase = (found.get("status") or {}).get("phase") or Phase.QUEUED.value
            phases[phase] += 1
            if phase == Phase.QUEUED.value:
                made = epoch_seconds(found["metadata"].get("creationTimestamp")) or now
                oldest = max(oldest, now - made)
        yield labelled_metric("runs", "Runs on record by phase.", "phase", phases)
        yield from number_metrics({**self._numbers, "queue_oldest_seconds": oldest}, NUMBERS)
        yield from self._of_pods(now)
        ages: dict[str, float] = {}
        for each in self._informers:
            kind = each.where.rpartition("/")[2]
            ages[kind] = max(ages.get(kind, 0.0), time.monotonic() - each.heard)
        text = "Seconds since the API server last sent news of a kind; up to 60 are usual."
        yield labelled_metric("watch_age_seconds", text, "kind", ages)

    def _of_pods(self, now: float) -> Iterator[Metric]:
        types = [each.value for each in TaskType]
        running, overdue = Counter(dict.fromkeys(types, 0)), Counter(dict.fromkeys(types, 0))
        for pod in self._caches.pods.every():
            task_type = str((pod["metadata"].get("labels") or {}).get(TASK_TYPE, ""))
            if task_type not in running or is_over(pod):
                continue
            running[task_type] += 1
            overdue[task_type] += self._is_overdue(pod, now)
        yield labelled_metric("task_pods", "Task pods that have not ended.", "type", running)
        text = "Task pods whose run ended or was deleted longer ago than allowed."
        yield labelled_metric("overdue_task_pods", text, "type", overdue)

    def _is_overdue(self, pod: Object, now: float) -> bool:
        found = self._caches.runs.get(*run_key(pod))
        if found is None:
            made = epoch_seconds(pod["metadata"].get("creationTimestamp")) or now
            return now - made > PATIENCE
        status = found.get("status") or {}
        finished = custom_resource.ended_at(found)
        phase = Phase(status.get("phase") or Phase.QUEUED)
        if finished is None or not phase.is_final:
            return False
        said = custom_resource.seconds_of(found, "graceSeconds")
        grace = Lifecycle().grace if said is None else said
        return now > _tasks_due_at(found, phase, finished) + grace + PATIENCE
