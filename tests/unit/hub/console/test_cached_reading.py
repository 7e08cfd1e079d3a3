"""Cached readings that callers share: only one reading is in progress at a time, and after a change
that the console knows of, no caller gets an older reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tfcluster_magic.errors import BackendUnavailable
from tfcluster_magic.hub.console import cached_reading as listings
from tfcluster_magic.hub.console.cached_reading import CachedReading


class Slow:
    """A source whose readings wait until the test releases them."""

    def __init__(self) -> None:
        self.now, self.read = 1, 0
        self.begun, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def __call__(self) -> int | None:
        self.read += 1
        self.begun.set()
        found = self.now
        await self.open.wait()
        if found < 0:
            raise BackendUnavailable("nobody answers")
        return found or None


def of(do: Callable[[Slow], Awaitable[None]]) -> None:
    """Run `do` with a slow source, in an event loop of its own."""

    async def whole() -> None:
        await do(Slow())

    asyncio.run(whole())


def test_nobody_waits_while_there_is_a_recent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reading runs in the background, once for all callers."""
    # otherwise, a slow first reading would cause a long pause
    monkeypatch.setattr(listings, "REST", 0.0)

    async def look(slow: Slow) -> None:
        listing = CachedReading(slow, fresh=0.0, old=100.0, patience=0.01)
        assert await listing.seen() == 1
        slow.now = 2
        slow.open.clear()
        assert [await listing.seen() for _ in range(3)] == [1, 1, 1]
        assert (slow.read, listing.version) == (2, 1)
        slow.open.set()
        assert await listing.seen(0.0) == 2
        assert listing.version == 2

    of(look)


def test_who_is_slow_is_not_asked_all_the_time() -> None:
    """After a slow reading there is a pause; meanwhile only a caller that needs the current state
    triggers another reading.
    """

    async def look(slow: Slow) -> None:
        listing = CachedReading(slow, fresh=0.0, old=100.0)
        slow.open.clear()
        first = asyncio.ensure_future(listing.seen())
        await asyncio.sleep(1.0)  # makes the first reading take a second
        slow.open.set()
        assert await first == 1
        assert [await listing.seen() for _ in range(3)] == [1, 1, 1]
        assert slow.read == 1
        assert await listing.seen(0.0) == 1
        assert slow.read == 2

    of(look)


def test_after_a_change_nobody_sees_what_was_before() -> None:
    """A reading that was in progress during the change is discarded."""

    async def look(slow: Slow) -> None:
        listing = CachedReading(slow, fresh=100.0, old=100.0)
        slow.open.clear()
        before = asyncio.ensure_future(listing.seen())
        await slow.begun.wait()
        slow.now = 2
        listing.expire()
        slow.open.set()
        assert await listing.seen() == 2
        assert await before == 2

    of(look)


def test_what_is_nothing_is_known_too() -> None:
    """An empty result is cached, too."""

    async def look(slow: Slow) -> None:
        slow.now = 0
        listing = CachedReading(slow, fresh=100.0, old=100.0)
        assert [await listing.seen() for _ in range(2)] == [None, None]
        assert slow.read == 1

    of(look)


def test_a_reading_that_fails_is_told_to_who_waits_for_it() -> None:
    """If a reading fails, callers that need the current state get the error, and others keep the
    cached result.
    """

    async def look(slow: Slow) -> None:
        listing = CachedReading(slow, fresh=0.0, old=100.0, patience=1.0)
        assert await listing.seen() == 1
        slow.now = -1
        assert await listing.seen() == 1
        with pytest.raises(BackendUnavailable):
            await listing.seen(0.0)

    of(look)
