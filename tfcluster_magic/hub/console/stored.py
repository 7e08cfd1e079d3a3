"""Everyone's folders as they were a moment ago. Pure but for its clock.

Promises that at most one measuring is under way, however many pages look, and that a disk is not
walked more than twice a minute.
"""

from __future__ import annotations

import asyncio
import time

from .sites.base import Filled, World

FRESH = 30.0
"""Seconds in which a measuring is new enough."""


class Stored:
    """The newest measuring of a site; to be used from one loop."""

    def __init__(self, site: World) -> None:
        self._site = site
        self._task: asyncio.Task[Filled] | None = None
        self._at = float("-inf")

    def used(self) -> dict[str, float]:
        """What each user has in all, as far as it was measured; never waits for it."""
        if self._task is None or not self._task.done() or _failed(self._task):
            return {}
        used = {
            user: [each.used for each in volumes if each.used is not None]
            for user, volumes in self._task.result().users.items()
        }
        return {user: float(sum(amounts)) for user, amounts in used.items() if amounts}

    async def filled(self) -> Filled:
        """All folders."""
        late = time.monotonic() - self._at > FRESH
        if self._task is None or (late and self._task.done()) or _failed(self._task):
            self._at = time.monotonic()
            self._task = asyncio.ensure_future(self._site.storage())
        return await asyncio.shield(self._task)


def _failed(task: asyncio.Task[Filled]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
