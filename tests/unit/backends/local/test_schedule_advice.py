"""A schedule on this machine that applies advice to its runs: a real program uses less memory than
it requested, so the next run gets less.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.fast_clock import scheduler
from support.polling import wait_until

from tfcluster_magic import ClusterManager
from tfcluster_magic.output import report
from tfcluster_magic.output import schedules as schedule_report
from tfcluster_magic.schedules import Occurrence, Schedule
from tfcluster_magic.spec import AdvisedOption, Message

__all__ = ["scheduler"]  # a fixture used by the tests below
YEARLY = "0 0 1 1 *"
TOTAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def run_now(manager: ClusterManager, number: int) -> Occurrence:
    """Run the schedule now, and return the due time of its run `number` once that run's result is
    final.
    """
    manager.schedules.run_now("nightly")

    def settled() -> Occurrence | None:
        last = manager.schedules.history("nightly")[0]
        return last if last.run == f"nightly-{number}" and last.state.is_settled else None

    found = wait_until(settled)
    assert found is not None
    return found


def test_the_second_run_has_the_memory_that_the_first_one_used(
    scheduler: ClusterManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a run that needed less memory, the schedule shows the advice for the next run. Once the
    next run is launched with the advised memory, its record, its status and the schedule's history
    show the advice. A rerun that a user launches by hand does not report the advice.
    """
    monkeypatch.setenv("TFCLUSTER_IDLE_SAMPLE", "0.2")
    Path("rest.py").write_text("import time\ntime.sleep(1)\n")
    scheduler.schedules.create(
        "nightly", "rest.py", cron=YEARLY, workers=1, worker_memory="1Gi", advised=True
    )
    assert "advised: no run has ended yet" in shown(scheduler.schedules.show("nightly"))
    first = run_now(scheduler, 1)
    assert first.advice is None
    wait_until(lambda: scheduler.schedules.show("nightly").status.judged == "nightly-1")
    told = shown(scheduler.schedules.show("nightly"))
    change = "--worker-memory 1Gi → 512Mi"
    assert f"advised: {change}, because of nightly-1: worker needs less memory" in told
    assert "--advised" in told
    second = run_now(scheduler, 2)
    assert str(second.advice) == f"Launched with {change}, advised by the usage of nightly-1."
    record = scheduler.status("nightly-2")
    assert record.spec.replicas.worker.resources.memory == "512Mi"
    assert f"advised: {change}, because of nightly-1" in report.status(record)
    assert f"Launched with {change}" in shown(scheduler.schedules.show("nightly"))
    by_hand = scheduler.rerun("nightly-2")
    assert by_hand.metadata.name == "nightly-3"
    assert "advised:" not in report.status(by_hand)
    scheduler.wait("nightly-3")
    scheduler.schedules.update("nightly", advised=False)
    assert run_now(scheduler, 4).advice is None
    assert scheduler.status("nightly-4").spec.replicas.worker.resources.memory == "1Gi"


def shown(schedule: Schedule) -> str:
    return schedule_report.schedule(schedule, time.time())


def test_a_change_that_is_refused_does_not_prevent_the_launch(scheduler: ClusterManager) -> None:
    """If more memory is advised than this machine has, the run is launched as the schedule says,
    and the history and the run's warnings say why.
    """
    own, value = f"{TOTAL * 6 // 10 >> 20}Mi", f"{TOTAL * 11 // 10 >> 20}Mi"
    scheduler.schedules.create(
        "nightly", "quick.sh", cron=YEARLY, workers=1, worker_memory=own, advised=True
    )
    why = Message("AdviceMemoryNearlyOut", {"task": "worker-0", "percent": 95, "peak": own})
    advised = AdvisedOption(option="worker_memory", own=own, value=value, run="nightly-0", why=why)

    def advise(schedule: Schedule) -> Schedule:
        return replace(schedule, status=replace(schedule.status, advised=(advised,)))

    scheduler.backend.schedules().change("nightly", advise)
    ended = run_now(scheduler, 1)
    assert ended.state.value == "Succeeded", ended
    told = f"Launched without the advised --worker-memory {own} → {value}: "
    assert str(ended.advice).startswith(told)
    record = scheduler.status("nightly-1")
    assert record.spec.replicas.worker.resources.memory == own
    assert [each for each in record.status.warnings if each.startswith(told)]
