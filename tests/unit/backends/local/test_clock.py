"""The clock process of schedules, which launches one run for each due time even if processes are
killed at any time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from support.fast_clock import FastClock, scheduler
from support.polling import wait_until
from support.project import ROOT

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.local import schedule_store
from tfcluster_magic.backends.local.schedule_store import LocalSchedules
from tfcluster_magic.errors import Conflict, NameTaken, NotFound
from tfcluster_magic.schedules import Occurrence, OccurrenceState
from tfcluster_magic.schedules.cron import CronTimes
from tfcluster_magic.spec import Phase, TFCluster

__all__ = ["scheduler"]  # a fixture used by the tests below
YEARLY = "0 0 1 1 *"


def occurrences(manager: ClusterManager, name: str) -> dict[float, Occurrence]:
    return {each.due: each for each in manager.schedules.history(name)}


def last(manager: ClusterManager, name: str) -> Occurrence:
    return manager.schedules.history(name)[0]


def settled(manager: ClusterManager, name: str, count: int = 1) -> bool:
    found = manager.schedules.history(name)
    return sum(each.state.is_settled for each in found) >= count


def text_of(manager: ClusterManager, run: str) -> str:
    return "\n".join(line.text for line in manager.logs(run) if line is not None)


def clock_of(manager: ClusterManager) -> FastClock:
    return FastClock(manager.backend.schedules().state_dir, time.time(), 1.0)


def test_it_launches_what_is_due_with_the_due_time(scheduler: ClusterManager) -> None:
    """A run of a schedule has its due time in its environment, its arguments and its record."""
    words = ["{scheduled_for:%Y}", "{previous_success:%Y}", '{"a": 1}']
    made = scheduler.schedules.create(
        "nightly", "tell.py", words, cron=YEARLY, time_zone="Asia/Shanghai", workers=1
    )
    for number in (1, 2):
        scheduler.schedules.run_now("nightly")
        wait_until(lambda number=number: settled(scheduler, "nightly", number))
    first, second = (scheduler.status(f"nightly-{n}") for n in (1, 2))
    assert first.metadata.scheduled is not None
    assert (first.metadata.scheduled.schedule, first.metadata.scheduled.uid) == (
        "nightly",
        made.uid,
    )
    year = CronTimes(YEARLY, "Asia/Shanghai").local(first.metadata.scheduled.due).year
    told = f"{first.metadata.scheduled.local} {year}"
    assert first.metadata.scheduled.local.endswith("+08:00")
    assert text_of(scheduler, "nightly-1").strip() == told + '  {"a": 1}'
    assert text_of(scheduler, "nightly-2").strip().endswith(f'{year} {year} {{"a": 1}}')
    assert second.spec.env == {}


def test_its_files_are_private_and_it_ends_with_the_last_schedule(
    scheduler: ClusterManager,
) -> None:
    """Only the user can read the files of schedules. When the last schedule is deleted, the clock
    process ends.
    """
    scheduler.schedules.create("nightly", "quick.sh", cron=YEARLY, workers=1)
    clock = clock_of(scheduler)
    wait_until(lambda: clock.pid() is not None)
    pid = clock.pid()
    folder = clock.state_dir / "schedules"
    modes = {path.stat().st_mode & 0o077 for path in folder.rglob("*")}
    assert modes == {0}
    status = Path(f"/proc/{pid}/status").read_text()
    (memory,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(memory.split()[1]) < 30 * 1024
    assert os.getsid(pid or 0) != os.getsid(0), "it would end with the shell"
    scheduler.schedules.delete("nightly")
    wait_until(lambda: clock.pid() is None, "the clock ends", 10)


def test_any_command_starts_it_again(scheduler: ClusterManager) -> None:
    """After a reboot, the first command or server starts the clock process; there is never a second
    process.
    """
    scheduler.schedules.create("nightly", "quick.sh", cron=YEARLY, workers=1)
    clock = clock_of(scheduler)
    wait_until(lambda: clock.pid() is not None)
    clock.kill()
    command = [sys.executable, "-c", "from tfcluster_magic.cli import main; main(['list'])"]
    both = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/", env={**os.environ})
        for _ in range(2)
    ]
    assert [process.wait() for process in both] == [0, 0]
    wait_until(lambda: clock.pid() is not None)
    mark = str(clock.state_dir).encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [pid] if mark in words and b"-I" in words else []
    assert found == [str(clock.pid())]


def test_a_failing_program_is_retried(scheduler: ClusterManager) -> None:
    """A failed run is retried according to the schedule's rules, and each retry is a separate
    run.
    """
    scheduler.schedules.create(
        "nightly", "fail.py", cron=YEARLY, workers=1, retries=1, retry_delays="0.1s"
    )
    scheduler.schedules.run_now("nightly")
    wait_until(lambda: settled(scheduler, "nightly"))
    failed = [e for e in scheduler.schedules.history("nightly") if e.state.is_settled][-1]
    assert (failed.state, failed.attempt) == (OccurrenceState.FAILED, 2)
    assert failed.earlier == ("nightly-1",)
    assert "nightly-2 failed" in str(failed.reason)


def test_forbid_and_replace_with_real_runs(scheduler: ClusterManager) -> None:
    """While a run is active, `forbid` skips the next due time, and `replace` stops the run and
    launches a new run.
    """
    scheduler.schedules.create("nightly", "sleep.py", cron=YEARLY, workers=1, grace=1)
    scheduler.schedules.run_now("nightly")
    wait_until(lambda: last(scheduler, "nightly").state is OccurrenceState.RUNNING)
    with pytest.raises(Conflict, match="nightly-1 had not ended"):
        scheduler.schedules.run_now("nightly")
    scheduler.schedules.update("nightly", overlap="replace")
    scheduler.schedules.run_now("nightly")
    wait_until(lambda: last(scheduler, "nightly").run == "nightly-2")
    first = scheduler.status("nightly-1")
    assert first.status.phase is Phase.STOPPED
    assert "later due time" in first.spec.stop.reason  # type: ignore[union-attr]


def test_a_snapshot_is_launched_and_track_reads_anew(scheduler: ClusterManager) -> None:
    """A schedule launches the program as it was at `create`; `update` takes a new snapshot, and
    `--track` reads the files at each due time.
    """
    scheduler.schedules.create("kept", "quick.sh", cron=YEARLY, workers=1)
    scheduler.schedules.create("read", "quick.sh", cron=YEARLY, workers=1, track=True)
    Path("quick.sh").write_text("echo changed\n")
    for name in ("kept", "read"):
        scheduler.schedules.run_now(name)
        wait_until(lambda name=name: settled(scheduler, name))
    assert "changed" not in text_of(scheduler, "kept-1")
    assert "changed" in text_of(scheduler, "read-1")
    scheduler.schedules.update("kept")
    scheduler.schedules.run_now("kept")
    wait_until(lambda: settled(scheduler, "kept", 2))
    assert "changed" in text_of(scheduler, "kept-2")
    Path("quick.sh").unlink()
    scheduler.schedules.run_now("read")
    wait_until(lambda: settled(scheduler, "read", 2))
    assert "no such file" in str(last(scheduler, "read").reason)


def test_a_name_that_another_run_has_is_passed_over(scheduler: ClusterManager) -> None:
    """If the user has launched a run by hand under the name that the schedule would use next, that
    run does not count as the schedule's run; the schedule uses the next number.
    """
    scheduler.schedules.create("nightly", "quick.sh", cron=YEARLY, workers=1)
    own = scheduler.launch("quick.sh", name="nightly", workers=1)
    assert own.metadata.name == "nightly-1"
    scheduler.schedules.run_now("nightly")
    wait_until(lambda: settled(scheduler, "nightly"))
    assert last(scheduler, "nightly").run == "nightly-2"


def test_two_changes_at_once_both_hold(scheduler: ClusterManager) -> None:
    """No two schedules get the same name, concurrent changes are not lost, and a deleted schedule
    is gone in every process.
    """
    scheduler.schedules.create("nightly", "quick.sh", cron=YEARLY, workers=1)
    with pytest.raises(NameTaken, match="update nightly"):
        scheduler.schedules.create("nightly", "quick.sh", cron=YEARLY, workers=1)
    scheduler.schedules.pause("nightly", "data repair")
    with pytest.raises(Conflict, match="resume nightly"):
        scheduler.schedules.run_now("nightly")
    scheduler.schedules.update("nightly", cron="0 3 * * *")
    found = scheduler.schedules.show("nightly")
    assert found.rules.cron == "0 3 * * *"
    assert found.status.paused is not None
    scheduler.schedules.delete("nightly")
    with pytest.raises(NotFound):
        scheduler.schedules.resume("nightly")


def test_a_damaged_status_launches_nothing_and_says_so(scheduler: ClusterManager) -> None:
    """If the status file is damaged, past results are unknown. Nothing is launched twice, and the
    list reports the damage.
    """
    scheduler.schedules.create("nightly", "quick.sh", cron="* * * * *", workers=1)
    store = scheduler.backend.schedules()
    assert isinstance(store, LocalSchedules)
    store.folder("nightly").status_file.write_text('{"cursor": 1')
    assert "is damaged" in scheduler.schedules.show("nightly").status.problem


def check_each_ran_once(
    manager: ClusterManager, name: str, cron: str, count: int, started: float
) -> None:
    """Check that each of the first `count` due times has exactly one run whose record names it."""
    wanted = [*islice(CronTimes(cron, "UTC").after(started), count)]
    runs: list[TFCluster] = [
        run for run in manager.list([name], all_runs=True) if run.status.started_at is not None
    ]
    assert all(run.metadata.scheduled for run in runs)
    ran = Counter(run.metadata.scheduled.due for run in runs if run.metadata.scheduled)
    assert {run.metadata.scheduled.attempt for run in runs if run.metadata.scheduled} == {1}
    assert {due: ran[due] for due in wanted} == dict.fromkeys(wanted, 1)
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_killed_at_any_moment_each_due_time_runs_once(
    scheduler: ClusterManager, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The clock process and managers are killed around due times of a fast clock, and each due time
    runs exactly once.
    """
    monkeypatch.setenv(schedule_store.NO_CLOCK, "1")
    made = scheduler.schedules.create(
        "often",
        "quick.sh",
        cron="* * * * *",
        time_zone="UTC",
        overlap="allow",
        catch_up="all",
        max_parallel=6,
        workers=1,
        reclaim_after=0,
    )
    started = made.status.cursor
    clock = FastClock(scheduler.backend.schedules().state_dir, started, 40.0)
    change = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tfcluster_magic import ClusterManager\n"
        "schedules, number = ClusterManager().schedules, 0\n"
        "while True:\n"
        "    schedules.update('often', pause_after=900 + number % 3)\n"
        "    number += 1\n"
    )
    chance, kills = random.Random(7), 0
    wanted = [*islice(CronTimes("* * * * *", "UTC").after(started), count)]

    def done() -> bool:
        states = {each.due: each.state for each in scheduler.schedules.history("often")}
        past = [states.get(due) for due in wanted]
        return all(state is None or state.is_settled for state in past) and states.get(
            wanted[-1]
        ) in (OccurrenceState.SUCCEEDED, OccurrenceState.FAILED)

    while not done():
        clock.start()
        manager = subprocess.Popen([sys.executable, "-c", change, str(ROOT)])
        # the kill comes around the next due second: before it, at it, or while its run is launched
        due = CronTimes("* * * * *", "UTC").next(clock.now()) or 0.0
        time.sleep(max(0.0, (due - clock.now()) / clock.speed) + chance.uniform(-0.1, 1.2) + 0.1)
        clock.kill()
        manager.send_signal(signal.SIGKILL)
        manager.wait()
        kills += 1
    check_each_ran_once(scheduler, "often", "* * * * *", count, started)
    assert kills >= 3
    assert not [*(clock.state_dir / "schedules").glob(".removed-*")]
    json.loads((clock.state_dir / "schedules" / "often" / "status.json").read_text())
    clock.start()  # the clock was killed: start it again, so that it can end regularly
