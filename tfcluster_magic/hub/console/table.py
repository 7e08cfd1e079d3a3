"""Rows of the table as somebody asks for them: filtered, sorted, one page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...spec import Model, Phase, Reason
from .asking import KEPT, read
from .sites.base import Row

COLUMNS: dict[str, Callable[[Row], Any]] = {
    "owner": lambda row: row.owner,
    "name": lambda row: (row.cluster, row.run),
    "phase": lambda row: row.phase,
    "reason": lambda row: row.reason,
    "age": lambda row: -row.created_at,
    "tasks": lambda row: sum(row.tasks.values()),
    "cpu": lambda row: row.cpu,
    "memory": lambda row: row.memory,
    "gpu": lambda row: row.gpu,
    "node": lambda row: row.nodes,
}
"""By what a table can be sorted."""
_PHASE = {"phase": sorted(p.value for p in Phase)}
_REASON = {"reason": sorted(r.value for r in Reason)}


class Query(Model, frozen=True):
    """What somebody wants to see; no `phases` are all of them."""

    text: str = ""
    owner: str = ""
    phases: tuple[str, ...] = ()
    reason: str = ""
    sort: str = "age"
    descending: bool = False
    limit: int = 100
    offset: int = 0
    kept: bool = False
    """Whether rows of the last look will do where a new one takes long."""


class Page(Model, frozen=True, omit_defaults=False):
    """Some rows of those that fit. `phases` counts what the other filters leave."""

    items: tuple[Row, ...]
    total: int
    all: int
    phases: dict[str, int]


def query(given: Mapping[str, Sequence[str]]) -> Query:
    """What the words of an address ask for.

    Raises:
        InvalidRequest: a word or a value is not known; all of them are named.
    """
    said = read(given, COLUMNS, "age", words=("owner",), one={**_REASON, **KEPT}, many=_PHASE)
    return Query(
        text=said.text,
        owner=said.last.get("owner", ""),
        phases=said.chosen["phase"],
        reason=said.last.get("reason", ""),
        sort=said.sort,
        descending=said.descending,
        limit=said.limit,
        offset=said.offset,
        kept=said.last.get("kept") == "true",
    )


def page(rows: Sequence[Row], asked: Query) -> Page:
    """The rows that are asked for."""
    fits = [row for row in rows if _fits(row, asked)]
    phases = Counter(row.phase for row in fits)
    if asked.phases:
        fits = [row for row in fits if row.phase in asked.phases]
    fits.sort(key=lambda row: (row.owner, row.cluster, row.run))  # the same order at each look
    fits.sort(key=COLUMNS[asked.sort], reverse=asked.descending)
    return Page(
        items=tuple(fits[asked.offset : asked.offset + asked.limit]),
        total=len(fits),
        all=len(rows),
        phases={phase.value: phases[phase.value] for phase in Phase},
    )


def _fits(row: Row, asked: Query) -> bool:
    if (asked.owner and row.owner != asked.owner) or (asked.reason and row.reason != asked.reason):
        return False
    where = (row.owner, row.name, row.phase, row.reason, row.message, *row.nodes)
    return not asked.text or asked.text in "\n".join(where).casefold()
