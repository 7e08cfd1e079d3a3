"""The times of status writes, which are immediate for a phase and throttled for counts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tfcluster_magic.operator.metrics import OperatorMetrics
from tfcluster_magic.operator.reconcile import status_writer
from tfcluster_magic.operator.reconcile.status_writer import (
    COMING_UP,
    INTERVAL,
    StatusWriter,
    WriteRateLimit,
)
from tfcluster_magic.spec import Phase, Reason, Status, TypeCounts

HEAD = {"namespace": "ada", "name": "digits-1", "resourceVersion": "1"}


class Recorder:
    """An API that accepts every write of a status and records the statuses."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def patch(self, _where: str, operations: list[Any]) -> dict[str, Any]:
        """Record the status that is written; return the object, as the API does."""
        self.written.append(operations[-1]["value"])
        head = {**HEAD, "resourceVersion": str(len(self.written) + 1)}
        return {"metadata": head, "status": operations[-1]["value"]}


class World:
    """A writer of one run's status, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.api = 100.0, Recorder()
        monkeypatch.setattr(status_writer.time, "monotonic", lambda: self.now)
        found = {"metadata": HEAD, "spec": {"replicas": {"worker": {"count": 10}}}}
        pace = WriteRateLimit(lambda: self.now)
        self.writer = StatusWriter(self.api, found, OperatorMetrics(), pace)  # type: ignore[arg-type]
        self.status = Status(phase=Phase.QUEUED, reason=Reason.QUEUED)

    def put(self, phase: Phase, running: int) -> float | None:
        """Put a status in which `running` of ten tasks run. Return None if it was written,
        otherwise the seconds to wait.
        """
        before, reason = self.status, Reason.STARTING
        counts = {"worker": TypeCounts(desired=10, running=running)}
        self.status = replace(before, phase=phase, reason=reason, counts=counts)
        return self.writer.write(self.status, before)


@pytest.mark.parametrize(
    ("phase", "seconds"), [(Phase.STARTING, COMING_UP), (Phase.RUNNING, INTERVAL)]
)
def test_counts_are_written_now_and_then(
    monkeypatch: pytest.MonkeyPatch, phase: Phase, seconds: float
) -> None:
    """The number of running tasks is written once a second while they start, later four times a
    second.
    """
    world = World(monkeypatch)
    assert world.put(phase, 0) is None
    assert world.put(phase, 1) == seconds
    world.now += seconds
    assert world.put(phase, 2) is None
    assert [each["counts"]["worker"].get("running", 0) for each in world.api.written] == [0, 2]


def test_a_phase_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase is written at once, however recent the last write was."""
    world = World(monkeypatch)
    assert world.put(Phase.STARTING, 0) is None
    assert world.put(Phase.STARTING, 9) is not None
    assert world.put(Phase.RUNNING, 10) is None
    assert [each["phase"] for each in world.api.written] == ["Starting", "Running"]
