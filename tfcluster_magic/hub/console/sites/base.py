"""What the console asks of a site: runs of everyone, their end, their last words, and leaks.

Promises shapes that name who owns what, and nothing of how a site finds out. Each verb comes to an
end in bounded time; what could not be read is told beside what could, and never hides it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ....quota.ledger import Days
from ....quota.storage import Volume
from ....spec import Model, Stop

KEPT = 600.0
"""Seconds for which the runs of the last look are kept when nobody looks."""


class Row(Model, frozen=True, omit_defaults=False):
    """One run in the table. `owner` is whom the hub knows by that name."""

    owner: str
    name: str
    cluster: str
    run: int
    uid: str
    phase: str
    reason: str
    message: str
    created_at: float
    finished_at: float | None
    active: bool
    mode: str
    tasks: dict[str, int]
    cpu: float
    memory: int
    gpu: int
    nodes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Tasks that failed, for a look at their last lines."""


class Missed(Model, frozen=True):
    """Whose runs could not be read, and why."""

    owner: str
    detail: str


class Seen(Model, frozen=True):
    """All runs at one time."""

    rows: tuple[Row, ...] = ()
    missed: tuple[Missed, ...] = ()


class Held(Model, frozen=True):
    """CPU- and GPU-hours of everyone until now, by day, group and cluster."""

    users: dict[str, Days] = {}
    missed: tuple[Missed, ...] = ()


class Filled(Model, frozen=True):
    """The folders or claims of everyone, by user."""

    users: dict[str, tuple[Volume, ...]] = {}
    missed: tuple[Missed, ...] = ()


class Leak(Model, frozen=True, omit_defaults=False):
    """Something of ours that no run owns any more; `id` is how it is removed."""

    owner: str
    id: str
    kind: str
    what: str


class Leaks(Model, frozen=True):
    """All leaks at one time."""

    items: tuple[Leak, ...] = ()
    missed: tuple[Missed, ...] = ()


class World(Protocol):
    """One site; every method raises TFClusterErrors only."""

    async def runs(self) -> Seen:
        """Every run of everyone that is on record."""

    async def still(self, seen: Seen, /) -> Seen:
        """What was seen some minutes ago, of those alone who may be read now; at once."""

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """Ask for the end of a run, of this uid and no other when one is given.

        Raises:
            NotFound: there is no such person or run.
            Conflict: it has ended, is ending already, or is another run by now.
        """

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """The last lines of a task. Raises NotFound."""

    async def hours(self) -> Held:
        """What everyone's runs have held, also those without a record."""

    async def storage(self) -> Filled:
        """How much lies in everyone's folders. Takes its time."""

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """Write a person's data into an open file; `tell` is told what is waited for.

        Raises NotFound: there is no such person, or nothing of them; OSError: the file is full.
        """

    async def leaks(self) -> Leaks:
        """What nobody owns."""

    async def remove(self, owner: str, leak: str) -> None:
        """Remove a leak, if it is one still. Raises NotFound."""
