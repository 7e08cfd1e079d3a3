"""Allocated and used hours of real processes on this machine. The hours stay when the records of
runs are deleted, and budgets count them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from support.local_runs import SLEEP, Launch, over

from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import PreflightRefused
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.quota import ledger
from tfcluster_magic.spec import Replicas, ReplicaSet, Resources, Spec, Stop

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
TWO = Resources(cpu=2)


@pytest.fixture
def allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that sets the hub's limits."""

    def say(**budget: float) -> None:
        file = tmp_path / "limits.json"
        file.write_text(json.dumps({"group": "ml101", "budget": budget}))
        monkeypatch.setenv("TFCLUSTER_LIMITS", str(file))

    return say


def hours(backend: LocalBackend) -> ledger.HoursRow:
    """Return all hours of this user."""
    (row,) = ledger.hours_rows({"": backend.hours().days}, "2000-01-01", "2999-01-01", "user")
    return row


def test_what_a_run_held_and_used_outlives_its_record(
    backend: LocalBackend, launch: Launch, allow
) -> None:
    """Requested CPU-hours are stored next to the processes' own CPU time, and both stay when the
    record is deleted.
    """
    allow(cpuHours=20)
    run = launch(BUSY, resources=TWO, worker=2)
    over(backend, run.metadata.name)
    before = hours(backend)
    assert before.used is not None
    assert before.used * 3600 >= 0.6
    assert before.measured == before.cpu > 0
    backend.delete(run.metadata.name)
    assert backend.list() == []
    assert hours(backend) == before
    again = launch(BUSY, resources=TWO, worker=2)
    over(backend, again.metadata.name)
    assert hours(backend).cpu > before.cpu
    day = next(iter(backend.hours().days.values()))
    assert list(day) == ["ml101"]


def test_records_that_are_old_enough_leave_their_hours(
    backend: LocalBackend, launch: Launch
) -> None:
    """A launch deletes records that were kept for long enough, but not their hours."""
    run = launch(BUSY, resources=TWO, worker=1)
    over(backend, run.metadata.name)
    before = hours(backend)
    backend._store.sweep(backend.log_dir, time.time() + 365 * 86400)
    assert backend.list() == []
    assert hours(backend) == before


def test_a_writer_that_is_killed_leaves_nothing(
    backend: LocalBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a client dies between writing the hours and deleting the record, the next client completes
    the deletion.
    """
    run = launch("pass", worker=1)
    over(backend, run.metadata.name)
    before = hours(backend)
    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "replace", lambda *_: os._exit(9))
        backend.delete(run.metadata.name)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert list(backend.state_dir.glob(".hours.json.*"))
    backend.delete(run.metadata.name)
    assert hours(backend) == before
    assert not list(backend.state_dir.glob(".*"))


def test_what_runs_counts_until_now(backend: LocalBackend, launch: Launch) -> None:
    """The allocated hours of an active run are counted until now, without a write to a file; its
    used hours are unknown.
    """
    run = launch(SLEEP, resources=TWO, worker=1)
    deadline = time.monotonic() + 90
    while not backend.hours().days:
        assert time.monotonic() < deadline
    first = hours(backend)
    while hours(backend).cpu <= first.cpu:
        assert time.monotonic() < deadline
    assert (first.used, first.measured) == (None, None)
    written = os.stat(Path(run.status.paths["logs"]).parent / "status.json").st_mtime_ns
    later = hours(backend)
    assert later.cpu > first.cpu
    now = os.stat(Path(run.status.paths["logs"]).parent / "status.json").st_mtime_ns
    assert now == written


def test_without_hours_left_nothing_starts_and_what_runs_goes_on(
    backend: LocalBackend, launch: Launch, allow
) -> None:
    """A launch that the budget refuses says how to continue; deleting a record frees no hours, but
    a larger budget does.
    """
    run = launch(SLEEP, resources=TWO, worker=1)
    spec = Spec(replicas=ReplicaSet(worker=Replicas(count=1, resources=TWO)))
    allow(cpuHours=1e-9)
    deadline = time.monotonic() + 90
    while not backend.preflight(spec).problems:
        assert time.monotonic() < deadline
    with pytest.raises(PreflightRefused) as refused:
        backend.create(LaunchRequest(cluster="more", spec=run.spec))
    assert "administrator" in str(refused.value)
    assert "2 cores" in str(refused.value)
    assert backend.get(run.metadata.name).active
    backend.stop(run.metadata.name, Stop(reason="enough"))
    over(backend, run.metadata.name)
    backend.delete(run.metadata.name)
    assert backend.preflight(spec).problems
    allow(cpuHours=20)
    verdict = backend.preflight(spec)
    assert not [p for p in verdict.problems if str(p.field).startswith("budget")]
    assert verdict.told == ("20 of 20 CPU·h left this week",)


def test_a_budget_of_gpus_alone_is_told(backend: LocalBackend, allow) -> None:
    """A budget without GPU-hours does not limit CPU-hours."""
    allow(gpuHours=0)
    spec = Spec(replicas=ReplicaSet(worker=Replicas(count=1, resources=Resources(gpu=1))))
    assert next(p.field for p in backend.preflight(spec).problems) == "budget.gpuHours"
    none = Spec(replicas=ReplicaSet(worker=Replicas(count=1)))
    fields = [str(p.field) for p in backend.preflight(none).problems]
    assert not [field for field in fields if field.startswith("budget")]
