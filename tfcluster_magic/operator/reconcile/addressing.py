"""When the Service of a run is there, which gives its tasks their names.

Promises that it is made once every task has an address, or as many as come within a moment, and
that it goes when the run is asked to stop. Kubernetes writes all addresses of a Service anew each
time a pod gets or loses one: for 600 tasks that come and go together this was a third of all that
their launch costs the control plane, for 50 users with ten tasks each an eighth. Nobody misses the
names before: a task's program begins when the tasks that it needs have theirs, and it asks for them
so that no name server keeps that they are not there yet (`runtime/existence.py`).
Ref: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...kube.api.client import Object
from ...spec import Status, TFCluster
from .creation import Maker

SETTLED = 1.0
"""Seconds without another address after which no more are waited for: a task has no room, say."""
LONGEST = 10.0
"""Seconds after the first address for which others are waited for while they still come."""


class Addressing:
    """The Service of one run; `clock` counts seconds that only grow."""

    def __init__(self, creator: Maker, clock: Callable[[], float] = time.monotonic) -> None:
        self._creator, self._clock = creator, clock
        self._there: bool | None = None
        """Whether the Service is; None when only the API knows."""
        self.lacking = False
        """Whether it was tried in vain: tasks that run have no names, and wait for them."""
        self._count = 0
        self._first = self._last = 0.0

    def update(self, cluster: TFCluster, status: Status, pods: Sequence[Object]) -> float | None:
        """Make or delete it when it is time; seconds until that may be, None without need.

        Raises:
            ApiError: the API does not let us.
            StillThere: one of an earlier run is in the way.
            InvalidRequest: its program does not fit.
        """
        if status.stop_at is not None:
            if self._there is not False:
                self._creator.delete_service(cluster)
                self._there = False
            return None
        if self._there or status.phase.is_final:
            return None
        left = self._left(cluster, pods)
        if left is None or left > 0.0:
            return left
        self.lacking = True
        self._creator.create_service(cluster)
        self._there, self.lacking = True, False
        return None

    def _left(self, cluster: TFCluster, pods: Sequence[Object]) -> float | None:
        """Seconds until it is made; None while no task has an address."""
        count, now = sum(bool(pod["status"].get("podIP")) for pod in pods), self._clock()
        if not count:
            return None
        if count != self._count:
            self._first = self._first or now
            self._last, self._count = now, count
        if count >= cluster.spec.replicas.total:
            return 0.0
        return max(0.0, min(self._last + SETTLED, self._first + LONGEST) - now)
