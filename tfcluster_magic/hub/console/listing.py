"""All runs as they were a moment ago: one listing at a time, however many pages look.

Promises that at most one listing of the world is under way, that nobody waits for one while a
recent one is there, and that `version` tells whether anything has changed.
"""

from __future__ import annotations

import asyncio
import time

from .world import Seen, World

FRESH = 1.5
"""Seconds in which a listing is new enough."""
OLD = 3.0
"""Seconds after which it is waited for: nobody has looked for a while."""


class Listing:
    """The newest listing of a world; to be used from one loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = Seen()
        self._at = self._changed_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self.version = 0

    async def seen(self) -> Seen:
        """All runs."""
        age = time.monotonic() - self._at
        if age > FRESH:
            task = self._refresh()
            if age > OLD:
                await asyncio.shield(task)
        return self._seen

    def expire(self) -> None:
        """Something was changed: who looks next waits for a listing that was begun after it."""
        self._at, self._changed_at = float("-inf"), time.monotonic()
        self._task = None

    def _refresh(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._read())
        return self._task

    async def _read(self) -> None:
        begun = time.monotonic()
        seen = await self._world.runs()
        if begun < self._changed_at:
            return  # what it shows was so before
        if seen != self._seen:
            self._seen, self.version = seen, self.version + 1
        self._at = time.monotonic()
