"""The cache of all users' runs, which shows the last reading at once, with its age."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from support.console_rows import row
from support.local_console import within

from tfcluster_magic.errors import BackendUnavailable, NotFound
from tfcluster_magic.hub.console import cached_reading
from tfcluster_magic.hub.console.cached_reading import CachedReading, RunCache
from tfcluster_magic.hub.console.sites.base import Missed, SiteRuns, bounded_row
from tfcluster_magic.hub.console.sites.local import LocalSite, ReaderClient
from tfcluster_magic.spec import Message, Stop


class Clock:
    """The clock that times readings."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()


class Slow:
    """A site whose readings take as long as the test wants."""

    def __init__(self) -> None:
        self.rows = [row("ada", 1), row("bob", 2)]
        self.users: set[str] | None = {"ada", "bob"}
        self.open = asyncio.Event()
        self.open.set()

    async def runs(self) -> SiteRuns:
        await self.open.wait()
        return SiteRuns(rows=tuple(self.rows))

    async def still(self, seen: SiteRuns) -> SiteRuns:
        if self.users is None:
            raise BackendUnavailable("the hub does not answer")
        return SiteRuns(rows=tuple(one for one in seen.rows if one.owner in self.users))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test sets; pages do not wait for a new reading."""
    made = Clock()
    monkeypatch.setattr(cached_reading, "time", made)
    monkeypatch.setattr(cached_reading, "RUNS_PATIENCE", 0.01)
    return made


def of(do: Callable[[Slow, RunCache], Awaitable[None]], keep: float = 600.0) -> None:
    """Run `do` with a slow site and its cache, in an event loop of its own."""

    async def whole() -> None:
        slow = Slow()
        await do(slow, RunCache(slow, keep))  # type: ignore[arg-type]

    asyncio.run(whole())


def owners(seen: SiteRuns) -> list[str]:
    return [one.owner for one in seen.rows]


def test_a_page_has_the_rows_of_the_last_look_at_once(clock: Clock) -> None:
    """A page, which reads with `kept`, gets the last rows at once, with their age, until the new
    rows arrive; callers without `kept` wait for the new rows.
    """

    async def look(slow: Slow, found: RunCache) -> None:
        first = await found.look(kept=True)
        assert (owners(first.seen), first.note) == (["ada", "bob"], "")
        clock.now += 61
        slow.open.clear()
        slow.rows.pop()
        last = await found.look(kept=True)
        assert owners(last.seen) == ["ada", "bob"]
        assert last.note == "from 61 seconds ago; updating…"
        assert round(first.at - last.at) == 61
        waiting = asyncio.ensure_future(found.look())
        await asyncio.sleep(0)
        assert not waiting.done()
        slow.open.set()
        assert (owners((await waiting).seen), (await waiting).note) == (["ada"], "")
        now = await found.look(kept=True)
        assert (owners(now.seen), now.note) == (["ada"], "")

    of(look)


async def is_waited_for(slow: Slow, found: RunCache) -> None:
    """Check that a page waits for the new reading."""
    waiting = asyncio.ensure_future(found.look(kept=True))
    await asyncio.sleep(0.05)  # a page that uses the cached reading would be done by now
    assert not waiting.done()
    slow.open.set()
    assert (await waiting).note == ""


def test_a_page_that_is_open_reads_no_old_rows(clock: Clock) -> None:
    """Shortly after a reading, a page waits for the next reading even if it is slow."""

    async def look(slow: Slow, found: RunCache) -> None:
        await found.look(kept=True)
        clock.now += 5
        slow.open.clear()
        await is_waited_for(slow, found)

    of(look)


def test_the_last_look_shows_nobody_who_is_no_user_any_more(clock: Clock) -> None:
    """Removed users are not shown; if the hub cannot name its users, nothing old is shown."""

    async def look(slow: Slow, found: RunCache) -> None:
        await found.look()
        clock.now += 61
        slow.open.clear()
        slow.users = {"ada"}
        assert owners((await found.look(kept=True)).seen) == ["ada"]
        slow.users = None
        await is_waited_for(slow, found)

    of(look)


def test_after_a_change_there_is_no_last_look(clock: Clock) -> None:
    """After a run was stopped, no page shows rows that were read before the stop."""

    async def look(slow: Slow, found: RunCache) -> None:
        await found.look()
        found.expire()
        clock.now += 61
        slow.open.clear()
        await is_waited_for(slow, found)

    of(look)


def test_a_reading_is_forgotten_after_its_time() -> None:
    """The cached reading is deleted `keep` seconds after it was made."""

    async def whole() -> None:
        async def read() -> int:
            return 1

        kept = CachedReading(read, fresh=100.0, old=100.0, keep=0.05)
        assert await kept.seen() == 1
        while kept._kept:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        assert await kept.seen() == 1

    asyncio.run(whole())


def test_a_row_is_kept_in_a_few_kib() -> None:
    """A row with huge values is shortened; a normal row is unchanged."""
    usual = row("ada", 1, message="worker-0 was killed", nodes=("here",), failed=("worker-0",))
    usual = msgspec.structs.replace(usual, messages=(Message("Stopped"),))
    assert bounded_row(usual) == usual
    long = "x" * 100_000
    many = tuple(f"{long}{number}" for number in range(1000))
    giant = row("ada", 1, uid=long, message=long, nodes=many, failed=many)
    told = tuple(Message("TasksFinished", {"tasks": [each]}) for each in many)
    giant = msgspec.structs.replace(giant, tasks=dict.fromkeys(many, 1), messages=told)
    assert len(msgspec.json.encode(bounded_row(giant))) < 16 * 1024
    assert bounded_row(giant).message.endswith("x…")


def test_who_was_removed_is_neither_shown_nor_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached rows of removed users are not shown, and actions on their runs are refused."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    async def look(here: LocalSite) -> None:
        here._readers["gone"] = ReaderClient("gone", None, here._fork_server)
        every = SiteRuns(
            rows=(row("ada", 1), row("gone", 2)),
            missed=(Missed(owner="gone", detail="x"), Missed(owner="", detail="y")),
        )
        still = await here.still(every)
        assert owners(still) == ["ada"]
        assert [one.detail for one in still.missed] == ["y"]
        with pytest.raises(NotFound):
            await here.stop("gone", "digits-2", "", Stop(reason="an exam"))

    within(look)
