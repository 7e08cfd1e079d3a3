"""Local notebooks start in turn, so that a class that comes in at once does not stop the hub.

It promises that no more of them start at one time than the machine has cores: each keeps a core
busy for seconds, and forty together would keep the hub, too, from answering for seconds, and none
of them would be ready before all. Who waits sees how many are before. It never ends a notebook.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import can_connect
from traitlets import Integer

from ..i18n import _, ngettext

AT_ONCE = asyncio.Semaphore(max(2, os.cpu_count() or 1))
"""Notebooks that start at one time; who came first is first."""
LOOK = 0.2
"""Seconds between two looks at what starts."""


class StartsInTurn(LocalProcessSpawner):
    """A local process that has started when it listens, not when there is a process."""

    start_timeout = Integer(900, help="Seconds, those among them that others need first.").tag(
        config=True
    )
    ahead: ClassVar[list[StartsInTurn]] = []
    """Who waits, the first first."""

    async def start(self) -> Any:
        """Wait for a turn, and keep it until the notebook listens or has ended."""
        self.ahead.append(self)
        try:
            async with AT_ONCE:
                self.ahead.remove(self)
                place = await super().start()
                await self._listening()
                return place
        finally:
            if self in self.ahead:  # it was given up while it waited
                self.ahead.remove(self)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """What the page of a start says: how many are before it, then that it starts."""
        told = -1
        while self in self.ahead:
            before = self.ahead.index(self)
            if before != told:
                told = before
                yield {"progress": 10, "message": _waiting(before)}
            await asyncio.sleep(LOOK)
        yield {"progress": 50, "message": _("Starting the notebook.")}

    async def _listening(self) -> None:
        """What is wrong with one that has ended or hangs is said by the hub, which asks next."""
        until = time.monotonic() + self.http_timeout
        while time.monotonic() < until and await self.poll() is None:
            if await asyncio.to_thread(can_connect, self.ip, self.port):
                return
            await asyncio.sleep(LOOK)


def _waiting(before: int) -> str:
    if not before:
        return _("It starts as soon as another one has.")
    return ngettext(
        "{count} notebook waits to start before this one.",
        "{count} notebooks wait to start before this one.",
        before,
    ).format(count=before)
