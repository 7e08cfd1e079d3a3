"""Writes a run's status: at once when somebody waits for it, else at most four times a second, once
while its tasks come up, and less often when many runs or large ones change together (`pace`).

Promises one patch for each write, and that a write is refused when anybody else changed the object
since we last saw it: an operator that lost its Lease without noticing can never undo what the next
one wrote. It decides nothing about what is written.
"""

from __future__ import annotations

import logging
import time

from ...kube.api.client import Api, ApiError, Object, path
from ...kube.objects import custom_resource
from ...spec import Phase, Status
from ..metrics import Measures
from .pace import Pace

INTERVAL, COMING_UP = 0.25, 1.0
"""Seconds between two writes that nobody waits for, and the same while tasks come up."""

log = logging.getLogger(__name__)


class Overtaken(Exception):
    """Somebody else wrote the status: what we know of the run is old."""


class Writer:
    """The status of one run; `write_limit` says when a write may be."""

    def __init__(self, api: Api, found: Object, metrics: Measures, write_limit: Pace) -> None:
        head = found["metadata"]
        self._found, self._metrics, self._write_limit = found, metrics, write_limit
        self._last: Status | None = None
        self._api = api
        self._where = path("tfclusters", head["namespace"], head["name"])
        self._version = str(head["resourceVersion"])
        self._there: Object | None = found.get("status")
        self._written: Object | None = None
        self._not_before = 0.0
        self._slot: float | None = None

    def refresh(self, found: Object) -> None:
        """The cache shows this; it may be older than what we wrote ourselves.

        Raises:
            Overtaken: it is newer, and its status is not ours.
        """
        version = str(found["metadata"]["resourceVersion"])
        if int(version) > int(self._version):
            if (found.get("status") or None) != (self._there or None):
                raise Overtaken(self._where)
            self._version = version

    def write(self, status: Status, before: Status) -> float | None:
        """Write `status`, now or in so many seconds: then `write` it again. None: it is written.

        Raises:
            ApiError: the API does not take it.
            Overtaken: the status is not the one that was last written here.
        """
        wanted = custom_resource.status_of(status)
        if wanted == self._written:
            return None
        now = time.monotonic()
        if self._written is not None and not weighty(before, status):
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
            raise Overtaken(self._where)
        self._version = str(found["metadata"]["resourceVersion"])


def weighty(before: Status, after: Status) -> bool:
    """Whether somebody waits for this change: a phase, a reason, an attempt, a task that ended."""
    if (before.phase, before.reason, before.restarts) != (
        after.phase,
        after.reason,
        after.restarts,
    ):
        return True
    return after.released_at != before.released_at or _ended(before) != _ended(after)


def _ended(status: Status) -> list[tuple[int, int, int]]:
    return [(c.succeeded, c.failed, c.stopped) for c in status.counts.values()]
