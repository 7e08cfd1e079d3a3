"""Standstills that the operator finds in logs, and evaluators that failed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.operator_world import World, up
from support.polling import wait_until

from tfcluster_magic.lifecycle import phases
from tfcluster_magic.operator.reconcile import status_rules

QUIET = b"tfcluster: quiet since 2026-11-21T20:15:00Z: it prints nothing, writes no event file\n"
SESSION = b"I] CreateSession still waiting for response from worker: /job:worker/replica:0/task:0\n"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report a standstill after a second, and read logs again after half a second."""
    monkeypatch.setattr(phases, "STALL_TOLD", 1.0)
    monkeypatch.setattr(status_rules, "QUIET_PAUSE_SUSPECTED", 0.5)


def prints(world: World, pod: str, text: bytes) -> None:
    """Set the last lines of a pod's log to `text`."""

    def log(_query: Mapping[str, str]) -> bytes:
        return text

    world.server.logs[pod] = log


@pytest.mark.usefixtures("quick")
def test_a_standstill_is_known_from_the_logs(world: World) -> None:
    """If a worker has finished and the logs of all other tasks show no work, the run reports which
    task waits for which. The report ends as soon as a task works; the run ends at its
    `stallTimeout`.
    """
    up(world, workers=2, ps=1, stall_timeout=4.0)
    prints(world, "digits-1-worker-1-first", QUIET + SESSION)
    prints(world, "digits-1-ps-0-first", QUIET)
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    told = world.wait("digits-1", lambda status: status.get("reason") == "Stalled")
    assert told["phase"] == "Running"
    assert "worker-1 waits for worker-0, which finished at " in told["message"]
    prints(world, "digits-1-worker-1-first", QUIET + SESSION + b"step 7\n")
    world.wait("digits-1", lambda status: status.get("reason") == "Running")
    prints(world, "digits-1-worker-1-first", QUIET + SESSION)
    status = world.phase("digits-1", "Failed")
    assert (status["reason"], status["culprit"]) == ("Stalled", "worker-1")
    for job in ("digits-1-ps", "digits-1-worker"):
        wait_until(lambda job=job: world.job(job)["spec"].get("suspend") is True)


def test_an_evaluator_that_failed_is_not_made_again(world: World) -> None:
    """If the evaluator fails, its Job is suspended, and the run continues without it and
    succeeds.
    """
    up(world, workers=1, evaluator=1, reclaim_after=0.0)
    world.pod("digits-1-evaluator", "failed", 0, "digits-1-evaluator-0-first")
    status = world.wait("digits-1", lambda status: "evaluator" in status)
    assert status["phase"] == "Running"
    assert status["evaluator"]["task"] == "evaluator-0"
    wait_until(lambda: world.job("digits-1-evaluator")["spec"].get("suspend") is True)
    world.operate()
    world.pod("digits-1-worker", "succeeded", 0, "digits-1-worker-0-first")
    status = world.phase("digits-1", "Succeeded")
    assert "; the evaluator failed: " in status["message"]
