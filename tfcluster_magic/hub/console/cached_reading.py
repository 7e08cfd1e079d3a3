"""A cache of one expensive reading, such as all runs or all storage of a site.

At most one reading is in progress, however many callers there are. Nobody waits while a recent
reading is cached. After each reading there is a pause in proportion to its duration, so that the
source has time for other work. A caller that asks for current data waits for the data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ...errors import TFClusterError
from ...i18n import language, ngettext
from ...spec import Model
from .sites.base import RUNS_KEPT, Site, SiteRuns, SiteStorage

T = TypeVar("T")

REST = 5.0
"""Pause after a reading, as a multiple of its duration, so that a large hub has time for other
requests.
"""


class CachedReading(Generic[T]):
    """A cache of the newest reading, to be used in one event loop.

    Args:
        read: makes a new reading.
        fresh: seconds for which a reading is current.
        old: age in seconds; if the cached reading is older, callers wait until a new one is
            complete.
        patience: maximum seconds that a caller waits for a new reading if the cached one is not
            current, but younger than `old`. After this time, the caller gets the cached one.
        keep: seconds after which a reading is dropped; None keeps it.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        fresh: float,
        old: float,
        patience: float = 0.0,
        keep: float | None = None,
    ) -> None:
        self._read, self._fresh, self._old, self._patience = read, fresh, old, patience
        self._keep = keep
        self._forgetting: asyncio.TimerHandle | None = None
        self._kept: list[T] = []
        """The newest reading, if any."""
        self._at = self._changed_at = float("-inf")
        self._took = 0.0
        self._task: asyncio.Task[None] | None = None
        self.version = 0

    async def seen(self, old: float | None = None) -> T:
        """Return a reading that is at most `old` seconds old. Raises what `read` raises.

        If `old` is None, the `old` of the constructor applies.
        """
        age, most = self.age, self._old if old is None else old
        if age > min(most, max(self._fresh, REST * self._took)):
            task = self._refresh()
            if age > most:
                await asyncio.shield(task)
            else:
                await asyncio.wait([task], timeout=self._patience)
        while not self._kept:  # `expire` was called during the first reading
            await asyncio.shield(self._refresh())
        return self._kept[0]

    async def glance(self, patience: float) -> tuple[T, float]:
        """Return a reading and its age in seconds. Raises what `read` raises.

        If the result of `seen` arrives within `patience` seconds, return it. Otherwise return the
        cached reading, unless it is outdated, and let the new reading continue.
        """
        looking = asyncio.ensure_future(self.seen())
        if self._will_do:
            await asyncio.wait([looking], timeout=patience)
        if not looking.done() and self._will_do:
            looking.cancel()  # cancels only this caller's wait
            return self._kept[0], self.age
        found = await looking
        return found, self.age

    @property
    def newest(self) -> T | None:
        """The newest reading; None if there is none or it was dropped."""
        return self._kept[0] if self._kept else None

    @property
    def age(self) -> float:
        """Seconds since the newest reading; infinite if there is none or it is outdated."""
        return time.monotonic() - self._at

    @property
    def _will_do(self) -> bool:
        """Whether there is a reading, and `expire` has not been called since."""
        return bool(self._kept) and self._at > self._changed_at

    def expire(self) -> None:
        """Mark the reading as outdated: the next caller waits for a reading that begins after this
        call.
        """
        self._at, self._changed_at = float("-inf"), time.monotonic()
        self._task = None

    def _refresh(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._again())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task

    async def _again(self) -> None:
        begun = time.monotonic()
        with language(None):  # the reading is shared by callers of all languages
            found = await self._read()
        self._took = time.monotonic() - begun
        if begun < self._changed_at:
            return  # outdated by `expire`
        if [found] != self._kept:
            self._kept, self.version = [found], self.version + 1
        self._at = time.monotonic()
        if self._keep is not None:
            if self._forgetting is not None:
                self._forgetting.cancel()
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(self._keep, self._kept.clear)


# -- runs
# Callers get the runs of a current reading. A caller that does not want to wait (`kept`) gets the
# runs of the last reading, with a note that says how old they are. The last reading is dropped
# after ten minutes, and each change that the console makes outdates it. It never shows people who
# are no longer users of the hub. To stop a run, the console does not rely on the cached runs: it
# asks the site.

RUNS_FRESH, RUNS_OLD, RUNS_LAST = 1.5, 3.0, 10.0
"""Ages of a reading, in seconds. A reading is current until RUNS_FRESH. If it is older than
RUNS_OLD, callers wait for a new reading. If it is even older than RUNS_LAST, a caller with `kept`
does not wait: it gets the old runs, with a note, while a new reading is made.
"""
RUNS_PATIENCE = 0.1
"""Maximum seconds that a caller with `kept` waits for new runs before it gets the old runs."""


class CachedRuns(Model, frozen=True):
    """Runs, and the time at which they were read, in Unix seconds. If the runs are outdated, `note`
    says how old they are; otherwise it is empty.
    """

    seen: SiteRuns
    at: float
    note: str = ""


class RunCache:
    """A cache of the runs of a site, to be used in one event loop."""

    def __init__(self, site: Site, keep: float = RUNS_KEPT) -> None:
        self._site = site
        self._listing = CachedReading(site.runs, RUNS_FRESH, RUNS_OLD, keep=keep)

    @property
    def version(self) -> int:
        """A number that changes whenever the runs change."""
        return self._listing.version

    def expire(self) -> None:
        """Mark the runs as outdated, so that the next caller gets current runs."""
        self._listing.expire()

    async def look(self, *, kept: bool = False) -> CachedRuns:
        """Return the current runs; with `kept`, the runs of the last reading if a new one takes
        long.
        """
        if kept and self._listing.age > RUNS_LAST:
            seen, age = await self._listing.glance(RUNS_PATIENCE)
            if age > RUNS_LAST and (still := await self._still(seen)) is not None:
                return CachedRuns(seen=still, at=time.time() - age, note=_note(round(age)))
        seen, age = await self._listing.glance(float("inf"))
        return CachedRuns(seen=seen, at=time.time() - age)

    async def _still(self, seen: SiteRuns) -> SiteRuns | None:
        try:
            return await self._site.still(seen)
        except TFClusterError:  # the users cannot be read; the new reading reports why
            return None


def _note(seconds: int) -> str:
    text = ngettext(
        "from {seconds} second ago; updating…",
        "from {seconds} seconds ago; updating…",
        seconds,
    )
    return text.format(seconds=seconds)


# -- storage, measured at most twice a minute

STORAGE_FRESH = 30.0
"""Seconds for which a measurement is current."""


class StorageCache:
    """A cache of the newest measurement of a site's storage, to be used in one event loop."""

    def __init__(self, site: Site) -> None:
        self._measuring = CachedReading(site.storage, STORAGE_FRESH, STORAGE_FRESH)

    def used(self) -> dict[str, float]:
        """Return the measured bytes of each user; does not wait for a measurement."""
        found = self._measuring.newest
        used = {
            user: [each.used for each in volumes if each.used is not None]
            for user, volumes in (found.users if found else {}).items()
        }
        return {user: float(sum(amounts)) for user, amounts in used.items() if amounts}

    async def filled(self) -> SiteStorage:
        """Return a current measurement of everyone's folders."""
        return await self._measuring.seen()
