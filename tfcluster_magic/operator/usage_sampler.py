"""CPU usage of runs from `metrics.k8s.io`, if the cluster has it.

The metrics of our pods are listed once a minute; a cluster without metrics is asked every ten
minutes. The requested cores of a pod are summed only for the time in which its usage is measured,
so that time without measurements does not count as time in which nothing was used. Sums are kept
only in memory, so after a restart of the operator only the rest of a run is measured.
Ref: https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..kube.api import labels
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.api.resource_amounts import parse_quantity
from ..kube.controller.work_queue import BackgroundThread
from ..kube.status import run_observer
from .cluster_state import OWN_OBJECTS, ClusterCaches

log = logging.getLogger(__name__)

METRICS_API = "/apis/metrics.k8s.io/v1beta1"
SAMPLE_PERIOD = 60.0
"""Seconds between two samples; usually, a metrics server updates its values every 15 seconds."""
RETRY_WITHOUT_METRICS = 600.0
"""Seconds between two tries if the cluster has no metrics or does not let us read them."""


class UsageSampler(BackgroundThread):
    """A thread that measures how many CPU seconds each run uses.

    Args:
        api: the connection to the API server.
        namespace: the namespace of the pods; empty for all.
        caches: the operator's caches, of which the pods are used, with their requests.
        leads: returns whether this process is the leader, which alone may act.
    """

    def __init__(
        self, api: Api, namespace: str, caches: ClusterCaches, leads: Callable[[], bool]
    ) -> None:
        self._api, self._caches, self._leads = api, caches, leads
        self._where = path("pods", namespace).replace("/api/v1", METRICS_API, 1)
        super().__init__("metrics")
        self._found: dict[str, tuple[float, float]] = {}
        self._last: float | None = None

    def usage_of(self, uid: str) -> tuple[float, float] | None:
        """Return the CPU seconds that a run has used, and the CPU seconds that its pods requested
        in the measured time; None if never measured.
        """
        return self._found.get(uid)

    def forget(self, uid: str) -> None:
        """Forget a run whose usage the ledger has recorded."""
        self._found.pop(uid, None)

    def _run(self) -> None:
        rest = 0.0
        while not self._enough.wait(rest):
            rest = SAMPLE_PERIOD
            if not self._leads() or not self._caches.synced:
                self._last, rest = None, 1.0
                continue
            try:
                self.sample(time.monotonic(), time.time())
            except ApiError as error:
                self._last = None
                rest = RETRY_WITHOUT_METRICS if error.status in (403, 404) else SAMPLE_PERIOD
                log.info("no metrics of tasks: %s", error.message or error.reason)
            except Exception:  # the accounting of hours must continue even if there are no metrics
                self._last = None
                log.exception("metrics of tasks cannot be read")

    def sample(self, now: float, clock: float) -> None:
        """Add the usage of each pod since the last sample, or since the pod was bound. `now` is
        monotonic; `clock` is in seconds since the epoch. Raises ApiError.
        """
        told = self._api.every(self._where, labelSelector=OWN_OBJECTS).items
        last, self._last = self._last, now
        if last is None:
            return  # the first sample only begins a period
        for each in told:
            self._add(each, min(now - last, 2 * SAMPLE_PERIOD), clock)

    def _add(self, told: Object, seconds: float, clock: float) -> None:
        head = told["metadata"]
        pod = self._caches.pods.get(head["namespace"], head["name"])
        since = None if pod is None else run_observer.bound_since(pod)
        if pod is None or since is None or clock <= since:
            return
        seconds = min(seconds, clock - since)
        uid = pod["metadata"]["labels"].get(labels.UID, "")
        used = sum(parse_quantity(c["usage"].get("cpu", 0)) for c in told.get("containers") or ())
        before = self._found.get(uid, (0.0, 0.0))
        self._found[uid] = (
            before[0] + used * seconds,
            before[1] + run_observer.requested_cores(pod) * seconds,
        )
