"""Hours in the console, on this machine and on Kubernetes, and as CSV."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from support.kube_server import KubeServer
from support.kubernetes_console import ADA, BOB, launched, server, within
from support.local_console import manager
from support.local_console import within as here

from tfcluster_magic.hub.console.sites.kubernetes import KubernetesSite
from tfcluster_magic.hub.console.sites.local import LocalSite
from tfcluster_magic.kube import hour_ledgers
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.output.documents import hours_csv
from tfcluster_magic.quota import ledger
from tfcluster_magic.quota.ledger import AccountedRun, Hours, HoursRow, Ledger
from tfcluster_magic.runs.manager import ClusterManager
from tfcluster_magic.spec import Usage

__all__ = ["manager", "server"]  # fixtures used by the tests below
DAY = "2026-11-20"


def test_a_person_is_asked_for_deleted_runs_too(manager: ClusterManager, tmp_path: Path) -> None:
    """A run's hours stay the same after its record is deleted."""
    (tmp_path / "short.py").write_text("print('done')\n")
    run = manager.launch("short.py", workers=1, worker_cpu=2)
    manager.wait(run.metadata.name)
    found: list[dict[str, ledger.HoursByDay]] = []

    async def look(world: LocalSite) -> None:
        found.append((await world.hours()).users)
        await asyncio.to_thread(manager.delete, run.metadata.name)
        found.append((await world.hours()).users)

    here(look)
    before, after = found
    assert before == after
    (row,) = ledger.hours_rows(after, "2000-01-01", "2999-01-01", "cluster")
    assert row.key == "ada/short"
    assert row.cpu > 0


def test_runs_count_from_their_ledger_or_their_record(server: KubeServer) -> None:
    """On Kubernetes, a run whose hours are in a ledger is not counted a second time from its
    record; an active run counts until now. Hours of a deleted namespace belong to its user, and an
    unreadable ledger is reported.
    """
    then = time.time() - 3600
    usage = Usage(at=then, holding={"worker": 2}, cores={"worker": 0.5})
    over = launched(server, ADA, "over-1", releasedAt=then, usage=msgspec.to_builtins(usage))
    launched(server, BOB, "long-1", usage=msgspec.to_builtins(usage))
    days = {DAY: {"ml101": {"over": Hours(cpu=3.0, gpu=1.0)}}}
    books = path("configmaps", "tfcluster-system")
    kept = Ledger(days=days, counted={over["metadata"]["uid"]: then})
    for namespace, user in ((ADA, "ada"), ("tfcluster-u-gone", "gone")):
        server.put(
            f"{books}/{hour_ledgers.ledger_name(namespace)}",
            hour_ledgers.write_ledger(namespace, user, kept),
        )
    broken = hour_ledgers.write_ledger("x", "x", kept)
    server.put(f"{books}/broken", {**broken, "data": {hour_ledgers.LEDGER_KEY: "{"}})

    async def look(world: KubernetesSite) -> None:
        await world.runs()  # waits for the first list
        held = await world.hours()
        rows = {row.key: row for row in ledger.hours_rows(held.users, DAY, "2999-01-01", "user")}
        assert set(rows) == {"ada", "bob", "gone"}
        assert (rows["ada"].cpu, rows["ada"].gpu) == (3.0, 1.0)
        assert rows["bob"].cpu == pytest.approx(1.0, abs=0.05)
        assert [one.detail.partition(" ")[0] for one in held.missed] == ["broken"]

    within(server, look)


def test_a_spreadsheet_runs_no_name_as_a_formula() -> None:
    """In the CSV file, a key that looks like a formula is written as text; missing measurements are
    empty.
    """
    rows = [
        HoursRow(key="=1+1", cpu=1.0, gpu=0.0),
        HoursRow(key="a,b", cpu=2, gpu=1, used=0.5, measured=2),
    ]
    assert hours_csv(rows, "user").splitlines() == [
        "user,cpuHours,gpuHours,usedCpuHours,measuredCpuHours",
        "'=1+1,1.000000,0.000000,,",
        '"a,b",2.000000,1.000000,0.500000,2.000000',
    ]


def test_a_record_is_read_without_its_spec() -> None:
    """The hours of a run are computed only from its status, whatever its spec says."""
    usage = {"at": 1.0, "days": {DAY: {"worker": 3600.0}}, "cores": {"worker": 2.0}}
    spec = {"replicas": {"worker": {"resources": {"gpu": 1}}, "ps": None}}
    found = {"metadata": {"name": "digits-1"}, "spec": spec, "status": {"usage": usage}}
    run = hour_ledgers.accounted_run_of(found, "ml101")
    assert isinstance(run, AccountedRun)
    assert ledger.hours_by_day(run, 2.0) == {DAY: Hours(cpu=2.0, gpu=1.0)}
    assert hour_ledgers.accounted_run_of({**found, "status": {}}, "") is None
