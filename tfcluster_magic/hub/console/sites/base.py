"""The interface of a site of the console: runs of everyone, their end, their last words, and leaks.

The shapes name who owns what, and nothing of how a site finds out. Each verb comes to an end in
bounded time; what could not be read is told beside what could, and never hides it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from ....quota import limits
from ....quota.ledger import HoursByDay
from ....quota.storage import FolderUsage
from ....spec import Message, Model, Stop, TaskState, TaskType, TFCluster

MOST_ACTIVE, MOST_ENDED = 100, 20
"""Runs that the home page shows of one user."""
RUNS_KEPT = 600.0
"""Seconds for which the runs of the last look are kept when nobody looks."""


class SiteRun(Model, frozen=True, omit_defaults=False):
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
    messages: tuple[Message, ...] = ()
    """The sentences of `message` by their codes, to be shown in any language."""


class Missed(Model, frozen=True):
    """Whose runs could not be read, and why."""

    owner: str
    detail: str


class SiteRuns(Model, frozen=True):
    """All runs at one time."""

    rows: tuple[SiteRun, ...] = ()
    missed: tuple[Missed, ...] = ()


class UserRuns(Model, frozen=True):
    """One user's runs for the home page, the newest first: active ones, the last that ended, how
    many ended, and why some may be missing.
    """

    active: tuple[SiteRun, ...] = ()
    ended: tuple[SiteRun, ...] = ()
    ended_count: int = 0
    missed: tuple[str, ...] = ()


class SiteHours(Model, frozen=True):
    """CPU- and GPU-hours of everyone until now, by day, group and cluster."""

    users: dict[str, HoursByDay] = {}
    missed: tuple[Missed, ...] = ()


class SiteStorage(Model, frozen=True):
    """The folders or claims of everyone, by user."""

    users: dict[str, tuple[FolderUsage, ...]] = {}
    missed: tuple[Missed, ...] = ()


class Leak(Model, frozen=True, omit_defaults=False):
    """Something of ours that no run owns any more; `id` is how it is removed."""

    owner: str
    id: str
    kind: str
    what: str


class SiteLeaks(Model, frozen=True):
    """All leaks at one time."""

    items: tuple[Leak, ...] = ()
    missed: tuple[Missed, ...] = ()


class Site(Protocol):
    """One site; every method raises TFClusterErrors only."""

    async def runs(self) -> SiteRuns:
        """Every run of everyone that is on record."""

    async def still(self, seen: SiteRuns, /) -> SiteRuns:
        """What was seen some minutes ago, of those alone who may be read now; at once."""

    async def runs_of(self, owner: str, /) -> SiteRuns:
        """Every run of a user whom the hub has named; nobody else's are read."""

    async def stop(self, owner: str, name: str, uid: str, stop: Stop) -> None:
        """Ask for the end of a run, of this uid and no other when one is given.

        Raises:
            NotFound: there is no such person or run.
            Conflict: it has ended, is ending already, or is another run by now.
        """

    async def tail(self, owner: str, name: str, task: str, lines: int) -> list[str]:
        """The last lines of a task. Raises NotFound."""

    async def hours(self) -> SiteHours:
        """What everyone's runs have held, also those without a record."""

    async def storage(self) -> SiteStorage:
        """How much lies in everyone's folders. Takes its time."""

    async def pack(self, owner: str, out: int, tell: Callable[[str], None]) -> None:
        """Write a person's data into an open file; `tell` is told what is waited for.

        Raises NotFound: there is no such person, or nothing of them; OSError: the file is full.
        """

    def why_no_notebook(self, name: str) -> str:
        """Return why a user of this name would get no notebook; empty if they would."""

    async def leaks(self) -> SiteLeaks:
        """What nobody owns."""

    async def remove(self, owner: str, leak: str) -> None:
        """Remove a leak, if it is one still. Raises NotFound."""


# -- a run as a row of the table

LONGEST, MOST_MESSAGE, MOST_CODED, MOST_NAMES = 100, 1000, 4000, 40
"""Characters of a text of a row, of its message and of that by its codes; names of nodes and of
tasks.
"""


def run_row(cluster: TFCluster, nodes: tuple[str, ...] = ()) -> SiteRun:
    """A run as a row, of nobody yet; of its resources what it counts for at its owner's quota."""
    meta, spec, status = cluster.metadata, cluster.spec, cluster.status
    held = limits.resource_totals(meta.name, spec)
    failed = [task.name for task in status.attention if task.state is TaskState.FAILED]
    return SiteRun(
        owner="",
        name=meta.name,
        cluster=meta.cluster,
        run=meta.run,
        uid=meta.uid,
        phase=status.phase.value,
        reason=status.reason.value,
        message=status.message,
        messages=status.messages,
        created_at=meta.created_at,
        finished_at=status.finished_at,
        active=cluster.active,
        mode=spec.mode.value,
        tasks={t.value: count for t, count in spec.replicas.counts.items()},
        cpu=held.cpu,
        memory=round(held.memory),
        gpu=round(held.gpu),
        nodes=nodes,
        failed=tuple(dict.fromkeys([*(f.task for f in status.failures), *failed])),
    )


def bounded_row(row: SiteRun) -> SiteRun:
    """A row of a few KiB at most, whoever said it: those of everyone are kept for a while."""
    texts = {
        name: _cut(text)
        for name in row.__struct_fields__
        if isinstance(text := getattr(row, name), str)
    }
    return msgspec.structs.replace(
        row,
        **{**texts, "message": _cut(row.message, MOST_MESSAGE)},
        messages=row.messages if len(msgspec.json.encode(row.messages)) <= MOST_CODED else (),
        tasks={_cut(kind): count for kind, count in list(row.tasks.items())[: len(TaskType)]},
        nodes=tuple(map(_cut, row.nodes[:MOST_NAMES])),
        failed=tuple(map(_cut, row.failed[:MOST_NAMES])),
    )


def runs_for_home(found: SiteRuns) -> UserRuns:
    """Return what the home page shows of a user's runs."""
    rows = sorted(found.rows, key=lambda row: -row.created_at)
    ended = [row for row in rows if not row.active]
    return UserRuns(
        active=tuple(row for row in rows if row.active)[:MOST_ACTIVE],
        ended=tuple(ended[:MOST_ENDED]),
        ended_count=len(ended),
        missed=tuple(one.detail for one in found.missed),
    )


def _cut(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
