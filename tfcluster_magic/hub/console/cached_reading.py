"""Cached readings of all runs, all storage, or anything else: one reading at a time.

At most one reading is under way, however many look; nobody waits for one while a recent one is
there; readings take no more than a part of the time of who is read. Whoever asks for the newest is
told what is so now, and nobody who is no user of the hub any more is shown.
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
"""Times as long as a reading took nobody is asked again: a hub of hundreds has others to serve."""


class CachedReading(Generic[T]):
    """The newest reading; to be used from one loop.

    Args:
        read: gives all of it as it is now.
        fresh: seconds in which a reading is new enough.
        old: seconds after which a new one is waited for: nobody has looked for a while.
        patience: seconds that are waited for a new one before that.
        keep: seconds after which the newest is forgotten; None: it is kept.
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
        """The newest, once there is one."""
        self._at = self._changed_at = float("-inf")
        self._took = 0.0
        self._task: asyncio.Task[None] | None = None
        self.version = 0

    async def seen(self, old: float | None = None) -> T:
        """What there is; at most `old` seconds ago if that is said. Raises what reading raises."""
        age, most = self.age, self._old if old is None else old
        if age > min(most, max(self._fresh, REST * self._took)):
            task = self._refresh()
            if age > most:
                await asyncio.shield(task)
            else:
                await asyncio.wait([task], timeout=self._patience)
        while not self._kept:  # something was changed while it was read for the first time
            await asyncio.shield(self._refresh())
        return self._kept[0]

    async def glance(self, patience: float) -> tuple[T, float]:
        """What there is, and its age in seconds: a new one as `seen` gives it when that is there
        within `patience`, else the newest, while the new one is read. Raises what reading raises.
        """
        looking = asyncio.ensure_future(self.seen())
        if self._will_do:
            await asyncio.wait([looking], timeout=patience)
        if not looking.done() and self._will_do:
            looking.cancel()  # the reading goes on
            return self._kept[0], self.age
        found = await looking
        return found, self.age

    @property
    def newest(self) -> T | None:
        """What was read last; None where nothing was, or it is forgotten."""
        return self._kept[0] if self._kept else None

    @property
    def age(self) -> float:
        """How many seconds ago the newest was read; endless where there is none."""
        return time.monotonic() - self._at

    @property
    def _will_do(self) -> bool:
        """Whether there is a reading, and nothing was changed since."""
        return bool(self._kept) and self._at > self._changed_at

    def expire(self) -> None:
        """Something was changed: who looks next waits for a reading that was begun after it."""
        self._at, self._changed_at = float("-inf"), time.monotonic()
        self._task = None

    def _refresh(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._again())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task

    async def _again(self) -> None:
        begun = time.monotonic()
        with language(None):  # whoever asks first; others are told, too
            found = await self._read()
        self._took = time.monotonic() - begun
        if begun < self._changed_at:
            return  # what it shows was so before
        if [found] != self._kept:
            self._kept, self.version = [found], self.version + 1
        self._at = time.monotonic()
        if self._keep is not None:
            if self._forgetting is not None:
                self._forgetting.cancel()
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(self._keep, self._kept.clear)


# -- all runs: what is so now, or at once what was so at the last look.
# The last look is told as such, is forgotten after ten minutes, and is gone as soon as the console
# has changed something. Whoever stops a run asks the site, never these rows.

RUNS_FRESH, RUNS_OLD, RUNS_LAST = 1.5, 3.0, 10.0
"""Seconds in which a look is new enough; after which another one is waited for; after which nobody
has looked for a while, and a page has the last one meanwhile.
"""
RUNS_PATIENCE = 0.1
"""Seconds that a page waits for a new look before it has the last one."""


class CachedRuns(Model, frozen=True):
    """Runs, and when they were seen in Unix seconds; `note` says so of those of the last look."""

    seen: SiteRuns
    at: float
    note: str = ""


class RunCache:
    """The runs of a site; to be used from one loop."""

    def __init__(self, site: Site, keep: float = RUNS_KEPT) -> None:
        self._site = site
        self._listing = CachedReading(site.runs, RUNS_FRESH, RUNS_OLD, keep=keep)

    @property
    def version(self) -> int:
        """Another one for other runs."""
        return self._listing.version

    def expire(self) -> None:
        """Something was changed: who looks next is told what is so then."""
        self._listing.expire()

    async def look(self, *, kept: bool = False) -> CachedRuns:
        """What is so now; with `kept` what was so at the last look, where a new one takes long."""
        if kept and self._listing.age > RUNS_LAST:
            seen, age = await self._listing.glance(RUNS_PATIENCE)
            if age > RUNS_LAST and (still := await self._still(seen)) is not None:
                return CachedRuns(seen=still, at=time.time() - age, note=_note(round(age)))
        seen, age = await self._listing.glance(float("inf"))
        return CachedRuns(seen=seen, at=time.time() - age)

    async def _still(self, seen: SiteRuns) -> SiteRuns | None:
        try:
            return await self._site.still(seen)
        except TFClusterError:  # nobody says who is a user: the new look tells why
            return None


def _note(seconds: int) -> str:
    text = ngettext(
        "as of {seconds} second ago; looking again…",
        "as of {seconds} seconds ago; looking again…",
        seconds,
    )
    return text.format(seconds=seconds)


# -- all storage.
# A disk is not walked more than twice a minute.

STORAGE_FRESH = 30.0
"""Seconds in which a measuring is new enough."""


class StorageCache:
    """The newest measuring of a site; to be used from one loop."""

    def __init__(self, site: Site) -> None:
        self._measuring = CachedReading(site.storage, STORAGE_FRESH, STORAGE_FRESH)

    def used(self) -> dict[str, float]:
        """What each user has in all, as far as it was measured; never waits for it."""
        found = self._measuring.newest
        used = {
            user: [each.used for each in volumes if each.used is not None]
            for user, volumes in (found.users if found else {}).items()
        }
        return {user: float(sum(amounts)) for user, amounts in used.items() if amounts}

    async def filled(self) -> SiteStorage:
        """All folders."""
        return await self._measuring.seen()
