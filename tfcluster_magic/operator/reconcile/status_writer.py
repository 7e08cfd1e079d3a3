"""Writes a run's status: at once when somebody waits for it, else limited in rate.

At most four times a second, once while its tasks come up, and less often when many runs or large
ones change together (`WriteRateLimit`). There is one patch for each write, and a write is refused
when anybody else changed the object since we last saw it: an operator that lost its Lease without
noticing can never undo what the next one wrote. It decides nothing about what is written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ...kube.api.client import Api, ApiError, Object, path
from ...kube.objects import custom_resource
from ...spec import Phase, Status
from ..metrics import OperatorMetrics

INTERVAL, COMING_UP = 0.25, 1.0
"""Seconds between two writes that nobody waits for, and the same while tasks come up."""

log = logging.getLogger(__name__)


class StatusConflict(Exception):
    """Somebody else wrote the status: what we know of the run is old."""


class StatusWriter:
    """The status of one run; `write_limit` says when a write may be."""

    def __init__(
        self, api: Api, found: Object, metrics: OperatorMetrics, write_limit: WriteRateLimit
    ) -> None:
        head = found["metadata"]
        self._found, self._metrics, self._write_limit = found, metrics, write_limit
        self._last: Status | None = None
        self._api = api
        self._where = path("tfclusters", head["namespace"], head["name"])
        self._version = str(head["resourceVersion"])
        self._generation = int(head.get("generation") or 0)
        self._there: Object | None = found.get("status")
        self._written: Object | None = None
        self._not_before = 0.0
        self._slot: float | None = None

    def refresh(self, found: Object) -> None:
        """The cache shows this; it may be older than what we wrote ourselves.

        Raises:
            StatusConflict: it is newer, and its status is not ours.
        """
        head = found["metadata"]
        version = str(head["resourceVersion"])
        self._generation = max(self._generation, int(head.get("generation") or 0))
        if int(version) > int(self._version):
            if (found.get("status") or None) != (self._there or None):
                raise StatusConflict(self._where)
            self._version = version

    def write(self, status: Status, before: Status) -> float | None:
        """Write `status`, now or in so many seconds: then `write` it again. None: it is written.

        Raises:
            ApiError: the API does not take it.
            StatusConflict: the status is not the one that was last written here.
        """
        wanted = custom_resource.write_status(status, self._generation, self._there or {})
        if wanted == self._written:
            return None
        now = time.monotonic()
        if self._written is not None and not is_urgent(before, status):
            if self._slot is None:
                tasks = sum(each.desired for each in status.counts.values())
                self._slot = self._write_limit.slot(tasks)
            if (rest := max(self._slot, self._not_before) - now) > 0:
                return rest
        answer = self._patch(wanted)
        self._metrics.wrote(self._found, self._last or before, status)
        self._last = status
        self._version = str(answer["metadata"]["resourceVersion"])
        self._there = answer.get("status")
        rests = COMING_UP if status.phase is Phase.STARTING else INTERVAL
        self._written, self._not_before, self._slot = wanted, now + rests, None
        return None

    def _patch(self, wanted: Object) -> Object:
        try:
            return self._api.patch(f"{self._where}/status", self._operations(wanted))
        except ApiError as error:
            if error.status != 409:
                raise
        self._read_again()
        return self._api.patch(f"{self._where}/status", self._operations(wanted))

    def _operations(self, wanted: Object) -> list[Object]:
        return [
            {"op": "add", "path": "/metadata/resourceVersion", "value": self._version},
            {"op": "add", "path": "/status", "value": wanted},
        ]

    def _read_again(self) -> None:
        found = self._api.get(self._where)
        if (found.get("status") or None) != (self._there or None):
            raise StatusConflict(self._where)
        self._version = str(found["metadata"]["resourceVersion"])


def is_urgent(before: Status, after: Status) -> bool:
    """Whether somebody waits for this change: a phase, a reason, an attempt, a task that ended."""
    if (before.phase, before.reason, before.restarts) != (
        after.phase,
        after.reason,
        after.restarts,
    ):
        return True
    return after.released_at != before.released_at or _end_counts(before) != _end_counts(after)


def _end_counts(status: Status) -> list[tuple[int, int, int]]:
    return [(c.succeeded, c.failed, c.stopped) for c in status.counts.values()]


# The rate limit of writes that nobody waits for, of all runs together.
# An API server takes milliseconds for each, the more the larger the run, at the very time at which
# it has pods to make: eleven writes for each of 50 users who launch together were a fifth of its
# work.

SECONDS_A_WRITE, SECONDS_A_TASK = 0.2, 0.001
"""Seconds that a write takes of the limit, and each task of its run: five small runs a second, or
one of 800 tasks.
"""
BURST, LONGEST_WAIT = 1.0, 10.0
"""Seconds that may be used at once after a rest, and that a write waits at the longest."""


class WriteRateLimit:
    """One rate limit for all runs; `clock` counts seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() - BURST
        self._lock = threading.Lock()

    def slot(self, tasks: int) -> float:
        """The moment from which a run of so many tasks may be written once; it is this run's."""
        with self._lock:
            now = self._clock()
            slot = min(max(self._next, now - BURST), now + LONGEST_WAIT)
            self._next = slot + SECONDS_A_WRITE + SECONDS_A_TASK * tasks
            return slot
