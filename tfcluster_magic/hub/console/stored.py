"""Everyone's folders as they were a moment ago, and rows of them as somebody asks. Pure but for its
clock.

Promises that at most one measuring is under way, however many pages look, that a disk is not walked
more than twice a minute, and that what the site's policy allows stands beside what is used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...quota.storage import WARN, Part, Volume
from ...spec import Model
from .asking import read
from .sites.base import Filled, World

FRESH = 30.0
"""Seconds in which a measuring is new enough."""
COLUMNS: dict[str, Callable[[StorageRow], Any]] = {
    "owner": lambda row: row.owner,
    "name": lambda row: row.name,
    "used": lambda row: row.used or 0,
    "allowed": lambda row: row.allowed or 0,
    "share": lambda row: row.share,
}


class StorageRow(Model, frozen=True, omit_defaults=False):
    """One folder or claim of a user; see `storage.Volume`."""

    owner: str
    name: str
    path: str
    used: int | None
    allowed: int | None
    share: float
    at_least: bool
    largest: tuple[Part, ...]
    note: str


class StorageQuery(Model, frozen=True):
    """What somebody wants to see; with `full` only what is warned of."""

    text: str = ""
    owner: str = ""
    full: bool = False
    sort: str = "share"
    descending: bool = True
    limit: int = 100
    offset: int = 0


class Stored:
    """The newest measuring of a world; to be used from one loop."""

    def __init__(self, world: World) -> None:
        self._world = world
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
            self._task = asyncio.ensure_future(self._world.storage())
        return await asyncio.shield(self._task)


def _failed(task: asyncio.Task[Filled]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def rows(filled: Filled, allowed: Mapping[str, Mapping[str, int]]) -> list[StorageRow]:
    """Every folder; `allowed` by user and folder where the world itself does not know it."""
    found = []
    for owner, volumes in filled.users.items():
        for each in volumes:
            most = allowed.get(owner, {}).get(each.name) if each.allowed is None else each.allowed
            found.append(_row(owner, replace(each, allowed=most)))
    return found


def _row(owner: str, volume: Volume) -> StorageRow:
    fields = {name: getattr(volume, name) for name in volume.__struct_fields__}
    return StorageRow(owner=owner, share=round(volume.share, 4), **fields)


def query(given: Mapping[str, Sequence[str]]) -> StorageQuery:
    """What the words of an address ask for.

    Raises:
        InvalidRequest: a word or a value is not known; all of them are named.
    """
    said = read(given, COLUMNS, "-share", words=("owner",), one={"full": ("true", "false")})
    return StorageQuery(
        text=said.text,
        owner=said.last.get("owner", ""),
        full=said.last.get("full") == "true",
        sort=said.sort,
        descending=said.descending,
        limit=said.limit,
        offset=said.offset,
    )


def page(every: Sequence[StorageRow], asked: StorageQuery) -> dict[str, Any]:
    """The rows that are asked for, how many fit, and how many of all are nearly full."""
    fits = [row for row in every if _fits(row, asked)]
    fits.sort(key=lambda row: (row.owner, row.name))  # the same order at each look
    fits.sort(key=COLUMNS[asked.sort], reverse=asked.descending)
    return {
        "items": fits[asked.offset : asked.offset + asked.limit],
        "total": len(fits),
        "all": len(every),
        "full": sum(row.share >= WARN for row in every),
    }


def _fits(row: StorageRow, asked: StorageQuery) -> bool:
    if (asked.owner and row.owner != asked.owner) or (asked.full and row.share < WARN):
        return False
    where = (row.owner, row.name, row.path, row.note)
    return not asked.text or asked.text in "\n".join(where).casefold()
