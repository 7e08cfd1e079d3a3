"""What tasks really use of their CPU, as the cluster's `metrics.k8s.io` tells, where it has that.

Promises one list a minute of our own pods, that a cluster without such metrics is asked again only
every ten minutes, and that what was not measured is told from what was not used: beside what was
used stands how much was held while somebody measured. Keeps it in memory: of a run that an operator
which has ended began to measure, the rest is known.

Ref: https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..kube.api import labels
from ..kube.api.amounts import quantity
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.controller.background import Background
from ..kube.status import held
from .caches import OURS, Caches

METRICS = "/apis/metrics.k8s.io/v1beta1"
PERIOD = 60.0
"""Seconds between two looks: a metrics server scrapes four times in them at most."""
ABSENT = 600.0
"""The same where the cluster has no metrics, or does not tell them to us."""

log = logging.getLogger(__name__)


class Meter(Background):
    """CPU seconds by run.

    Args:
        api: the connection.
        namespace: only that one's pods; empty for all.
        caches: of the pods, which say what they hold.
        leads: whether this process acts.
    """

    def __init__(self, api: Api, namespace: str, caches: Caches, leads: Callable[[], bool]) -> None:
        self._api, self._caches, self._leads = api, caches, leads
        self._where = path("pods", namespace).replace("/api/v1", METRICS, 1)
        super().__init__("metrics")
        self._found: dict[str, tuple[float, float]] = {}
        self._last: float | None = None

    def usage_of(self, uid: str) -> tuple[float, float] | None:
        """CPU seconds that a run has used, of so many that it held meanwhile; None: nobody told."""
        return self._found.get(uid)

    def forget(self, uid: str) -> None:
        """The run is written down."""
        self._found.pop(uid, None)

    def _run(self) -> None:
        rest = 0.0
        while not self._enough.wait(rest):
            rest = PERIOD
            if not self._leads() or not self._caches.synced:
                self._last, rest = None, 1.0
                continue
            try:
                self.sample(time.monotonic(), time.time())
            except ApiError as error:
                self._last = None
                rest = ABSENT if error.status in (403, 404) else PERIOD
                log.info("no metrics of tasks: %s", error.message or error.reason)
            except Exception:  # hours go on without
                self._last = None
                log.exception("metrics of tasks cannot be read")

    def sample(self, now: float, clock: float) -> None:
        """Count what pods use since the last look, or since they were bound; `clock` is in epoch
        seconds. Raises ApiError.
        """
        told = self._api.every(self._where, labelSelector=OURS).items
        last, self._last = self._last, now
        if last is None:
            return  # since when it is used so is not known
        for each in told:
            self._add(each, min(now - last, 2 * PERIOD), clock)

    def _add(self, told: Object, seconds: float, clock: float) -> None:
        head = told["metadata"]
        pod = self._caches.pods.get(head["namespace"], head["name"])
        since = None if pod is None else held.since(pod)
        if pod is None or since is None or clock <= since:
            return
        seconds = min(seconds, clock - since)
        uid = pod["metadata"]["labels"].get(labels.UID, "")
        used = sum(quantity(c["usage"].get("cpu", 0)) for c in told.get("containers") or ())
        before = self._found.get(uid, (0.0, 0.0))
        self._found[uid] = before[0] + used * seconds, before[1] + held.cores(pod) * seconds
