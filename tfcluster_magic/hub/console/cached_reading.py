"""Something as it was a moment ago, such as all runs: one reading at a time, however many look.

Promises that at most one reading is under way, that nobody waits for one while a recent one is
there, that readings take no more than a part of the time of who is read, that `version` tells
whether anything has changed, and that a reading is forgotten when it is as old as is said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

REST = 5.0
"""Times as long as a reading took nobody is asked again: a hub of hundreds has others to serve."""


class Listing(Generic[T]):
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
