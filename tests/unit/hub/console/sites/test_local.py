"""The console on this machine, which reads each user's runs by a process of that user."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from support.blocking_file import Blocking
from support.local_console import manager, within
from support.polling import wait_until_async

from tfcluster_magic.errors import Conflict, NotAllowed, NotFound
from tfcluster_magic.hub.console.sites.base import SiteRuns, SiteSchedule
from tfcluster_magic.hub.console.sites.local import LocalSite, ReaderClient
from tfcluster_magic.hub.console.sites.person_reader import ReaderRequest, RunsReader
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.schedules import Pause
from tfcluster_magic.spec import Stop

__all__ = ["manager"]  # a fixture used by the tests below
FORK_SERVER = "tfcluster_magic.hub.console.sites.person_reader"


async def seen_as(here: LocalSite, missed: list[str]) -> SiteRuns:
    """Wait for a listing with the run, in which exactly these users are missing."""

    async def seen() -> SiteRuns | None:
        found = await here.runs()
        return found if found.rows and [one.owner for one in found.missed] == missed else None

    # At first, a user is reported as missing while that user's reader starts.
    found = await wait_until_async(seen, every=0.05)
    assert found is not None
    return found


def test_runs_are_read_stopped_and_refused_by_their_own_reader(manager: ClusterManager) -> None:
    """The owner in a row is the account whose runs were read. A stop keeps its reason; a second
    stop is refused, and the refusal names the first stop.
    """
    manager.launch("sleep.py", name="digits", workers=2, worker_cpu=0.5, grace=1.0)

    async def look(here: LocalSite) -> None:
        row = (await seen_as(here, [])).rows[0]
        assert (row.owner, row.name, row.cpu) == ("ada", "digits-1", 1.0)
        assert row.tasks == {"worker": 2} and row.active
        with pytest.raises(Conflict, match="another run"):
            await here.stop("ada", "digits-1", "another", Stop(reason="an exam"))
        with pytest.raises(NotFound):
            await here.stop("nobody", "digits-1", "", Stop(reason="an exam"))
        await here.stop("ada", "digits-1", row.uid, Stop(reason="an exam", by="admin eve"))
        with pytest.raises(Conflict, match=r"admin eve|already ended"):
            await here.stop("ada", "digits-1", row.uid, Stop(reason="again"))
        with pytest.raises(NotFound, match="has no task"):
            await here.tail("ada", "digits-1", "worker-9", 5)

    within(look)
    ended = manager.wait("digits", until=Until.RELEASED)
    assert ended.status.message == "Stopped by admin eve: an exam."


def test_for_one_person_nobody_else_is_read(
    manager: ClusterManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the runs of one user, neither the hub nor the readers of other users are asked; an
    unknown account has no runs.
    """
    manager.launch("sleep.py", name="digits", workers=1, grace=1.0)

    async def nobody_asks() -> list[str]:
        raise AssertionError("the hub was asked")

    async def look(here: LocalSite) -> None:
        here._names = nobody_asks
        here._readers["slow"] = ReaderClient("slow", None, here._fork_server)
        asked: list[str] = []
        listed = ReaderClient.list

        def noted(reader: ReaderClient) -> object:
            asked.append(reader.name)
            return listed(reader)

        monkeypatch.setattr(ReaderClient, "list", noted)
        found = await here.runs_of("ada")
        assert [(row.owner, row.name) for row in found.rows] == [("ada", "digits-1")]
        assert asked == ["ada"] and found.missed == ()
        assert await here.runs_of("tfc-no-such-person") == SiteRuns()

    within(look)
    manager.stop("digits")
    manager.wait("digits", until=Until.RELEASED)


def test_what_starts_readers_is_started_again(manager: ClusterManager) -> None:
    """The fork server gets only PATH in its environment. If the fork server or a reader is killed,
    the next reading starts a new one.
    """
    manager.launch("sleep.py", name="digits", workers=1, grace=1.0)

    async def look(here: LocalSite) -> None:
        for _ in range(2):
            await seen_as(here, [])
            children = [
                one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE
            ]
            (fork_server,) = [one for one in children if FORK_SERVER in one.cmdline()]
            (reader,) = fork_server.children()
            assert fork_server.environ().keys() <= {"PATH", "LC_CTYPE"}
            fork_server.kill()
            await seen_as(here, [])  # readers survive the end of their fork server
            reader.kill()
            reader.wait(90)
            # the user is missing in one listing, until the killed reader is started again
            assert [one.owner for one in (await here.runs()).missed] == ["ada"]

    within(look)
    manager.stop("digits")
    manager.wait("digits", until=Until.RELEASED)


def test_a_home_that_hangs_holds_up_its_own_rows_alone(
    manager: ClusterManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If reading one user's files hangs, the rows of other users are shown, and that user is
    reported as missing.
    """
    manager.launch("sleep.py", name="digits", workers=1, grace=1.0)
    hanging = tmp_path / "hanging"
    (hanging / "runs" / "never" / "1").mkdir(parents=True)
    (hanging / "runs" / "never" / "1" / "record.json").write_text("{}")
    blocking = Blocking(hanging / "runs" / "never" / "1" / "record.json")

    async def look(here: LocalSite) -> None:
        assert [row.name for row in (await seen_as(here, [])).rows] == ["digits-1"]
        here._readers["slow"] = ReaderClient("slow", None, here._fork_server)
        monkeypatch.setenv("TFCLUSTER_STATE_DIR", str(hanging))
        for _ in range(2):
            seen = await seen_as(here, ["slow"])
            assert [row.name for row in seen.rows] == ["digits-1"]

    try:
        within(look)
    finally:
        blocking.end()
    monkeypatch.setenv("TFCLUSTER_STATE_DIR", str(manager.state_dir))
    manager.stop("digits")
    manager.wait("digits", until=Until.RELEASED)


def test_schedules_are_read_paused_and_resumed_by_their_own_reader(
    manager: ClusterManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator's pause replaces the owner's pause. Until an administrator resumes the
    schedule, the owner's resume is refused.
    """
    monkeypatch.setenv("TFCLUSTER_NO_CLOCK", "1")
    verbs = manager.schedules
    made = verbs.create("nightly", "sleep.py", cron="0 2 * * *", time_zone="Asia/Shanghai")
    verbs.pause("nightly", "data repair")

    async def look(here: LocalSite) -> None:
        async def row() -> SiteSchedule | None:
            return next(iter((await here.runs()).schedules), None)

        seen = await wait_until_async(row)
        assert seen is not None
        assert (seen.owner, seen.cron, seen.time_zone) == ("ada", "0 2 * * *", "Asia/Shanghai")
        assert (seen.state, seen.reason, seen.locked) == ("Paused", "data repair", False)
        with pytest.raises(Conflict, match="not paused by an administrator"):
            await here.resume("ada", "nightly", "")
        with pytest.raises(Conflict, match="created again meanwhile"):
            await here.pause("ada", "nightly", "another", LOCK)
        for name in ("../runs", "none", ""):
            with pytest.raises(NotFound):
                await here.pause("ada", name, "", LOCK)
        await here.pause("ada", "nightly", made.uid, LOCK)
        with pytest.raises(Conflict, match="already paused by admin eve"):
            await here.pause("ada", "nightly", made.uid, LOCK)
        seen = await row()
        assert seen is not None
        assert (seen.state, seen.by, seen.locked) == ("Paused", "admin eve", True)
        for refused in (verbs.resume, verbs.run_now):
            with pytest.raises(NotAllowed, match="only an administrator can resume it: an exam"):
                refused("nightly")
        assert verbs.pause("nightly", "mine").status.paused == LOCK
        await here.resume("ada", "nightly", made.uid)
        seen = await row()
        assert seen is not None and seen.state == "Active" and seen.next_at is not None

    within(look)


def test_a_schedule_that_has_not_changed_is_not_read_again(
    manager: ClusterManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule is read again only after its files have changed."""
    monkeypatch.setenv("TFCLUSTER_NO_CLOCK", "1")
    manager.schedules.create("nightly", "sleep.py", cron="0 2 * * *")
    reader = RunsReader()

    def seen() -> SiteSchedule:
        (row,) = reader.answer(ReaderRequest(do="list")).schedules
        return row

    first = seen()
    assert seen() is first
    manager.schedules.pause("nightly")
    paused = seen()
    assert (first.state, paused.state) == ("Active", "Paused")
    manager.schedules.delete("nightly")
    assert reader.answer(ReaderRequest(do="list")).schedules == ()


LOCK = Pause(at=1.0, by="admin eve", reason="an exam", locked=True)
