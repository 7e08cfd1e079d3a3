"""All runs as a page shows them: what is so now, or at once what was so at the last look.

Promises that who does not ask for the last look is told what is so now; that the last look is told
as such, shows nobody who is no user of the hub any more, is forgotten after ten minutes, and is
gone as soon as the console has changed something. Whoever stops a run asks the site, never these
rows.
"""

from __future__ import annotations

import time

from ....errors import TFClusterError
from ....i18n import ngettext
from ....spec import Model
from ..cached_reading import Listing
from .base import KEPT, Seen, World

FRESH, OLD, LAST = 1.5, 3.0, 10.0
"""Seconds in which a look is new enough; after which another one is waited for; after which nobody
has looked for a while, and a page has the last one meanwhile.
"""
PATIENCE = 0.1
"""Seconds that a page waits for a new look before it has the last one."""


class Look(Model, frozen=True):
    """Runs, and when they were seen in Unix seconds; `note` says so of those of the last look."""

    seen: Seen
    at: float
    note: str = ""


class Looks:
    """The runs of a site; to be used from one loop."""

    def __init__(self, site: World, keep: float = KEPT) -> None:
        self._site = site
        self._listing = Listing(site.runs, FRESH, OLD, keep=keep)

    @property
    def version(self) -> int:
        """Another one for other runs."""
        return self._listing.version

    def expire(self) -> None:
        """Something was changed: who looks next is told what is so then."""
        self._listing.expire()

    async def look(self, *, kept: bool = False) -> Look:
        """What is so now; with `kept` what was so at the last look, where a new one takes long."""
        if kept and self._listing.age > LAST:
            seen, age = await self._listing.glance(PATIENCE)
            if age > LAST and (still := await self._still(seen)) is not None:
                return Look(seen=still, at=time.time() - age, note=_note(round(age)))
        seen, age = await self._listing.glance(float("inf"))
        return Look(seen=seen, at=time.time() - age)

    async def _still(self, seen: Seen) -> Seen | None:
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
