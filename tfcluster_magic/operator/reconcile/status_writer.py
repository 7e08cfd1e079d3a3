"""Writing of a run's status: urgent changes at once, others at a limited rate.

The rate for one run is at most four writes a second, one a second while its tasks start, and less
when many or large runs change together (`WriteRateLimit`). Each write is one patch, which the API
refuses if somebody else has changed the object since we read it. So an operator that lost its Lease
without noticing cannot undo a write of the next operator.
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
"""INTERVAL: minimum seconds between two writes that are not urgent. COMING_UP: the same, for a run
in the phase Starting.
"""

log = logging.getLogger(__name__)


class StatusConflict(Exception):
    """Another client changed the status, so our copy is outdated."""


class StatusWriter:
    """Writes the status of one run; `write_limit` limits the rate."""

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
        """Use the version of `found`, the cached object, for the next write if it is newer than our
        last write.

        Raises:
            StatusConflict: the cached state is newer, and another client has changed its status.
        """
        head = found["metadata"]
        version = str(head["resourceVersion"])
        self._generation = max(self._generation, int(head.get("generation") or 0))
        if int(version) > int(self._version):
            if (found.get("status") or None) != (self._there or None):
                raise StatusConflict(self._where)
            self._version = version

    def write(self, status: Status, before: Status) -> float | None:
        """Write `status` and return None, or return the seconds to wait before writing.

        Raises:
            ApiError: the API refuses the write.
            StatusConflict: another client has changed the status.
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
    """Return whether a change is urgent: a new phase, reason or attempt, or a task that ended."""
    if (before.phase, before.reason, before.restarts) != (
        after.phase,
        after.reason,
        after.restarts,
    ):
        return True
    return after.released_at != before.released_at or _end_counts(before) != _end_counts(after)


def _end_counts(status: Status) -> list[tuple[int, int, int]]:
    return [(c.succeeded, c.failed, c.stopped) for c in status.counts.values()]


# The rate limit of writes that are not urgent, for all runs together. Each write costs the API
# server milliseconds, and more for larger runs, at a time when it also has to create pods. When 50
# users launched together, eleven writes for each user were a fifth of the API server's work.

SECONDS_A_WRITE, SECONDS_A_TASK = 0.2, 0.001
"""Seconds that the rate limit reserves for one write: a constant part, and a part for each task of
the run. This allows five writes a second for small runs, or one for a run of 800 tasks.
"""
BURST, LONGEST_WAIT = 1.0, 10.0
"""BURST: after a pause, writes whose reserved seconds sum up to this number are allowed at once.
LONGEST_WAIT: maximum seconds for which a write is delayed.
"""


class WriteRateLimit:
    """A limit of the rate at which the statuses of all runs together are written; `clock` returns
    monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() - BURST
        self._lock = threading.Lock()

    def slot(self, tasks: int) -> float:
        """Reserve a write of the status of a run with `tasks` tasks; return the time from which it
        may be written.
        """
        with self._lock:
            now = self._clock()
            slot = min(max(self._next, now - BURST), now + LONGEST_WAIT)
            self._next = slot + SECONDS_A_WRITE + SECONDS_A_TASK * tasks
            return slot
