"""Rows of the table as somebody asks for them: filtered, sorted, one page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...models import Model, Phase, Reason
from .world import Row

MOST = 1000
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
_WORDS = {"phase": {p.value for p in Phase}, "reason": {r.value for r in Reason}}


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
    known = {"q", "owner", "phase", "reason", "sort", "limit", "offset"}
    wrong = [
        Problem(name, values[-1], _("use {words}").format(words=", ".join(sorted(known))))
        for name, values in given.items()
        if name not in known
    ]
    last = {name: values[-1] for name, values in given.items() if values}
    phases = tuple(word for words in given.get("phase", ()) for word in words.split(",") if word)
    for name, said in (("phase", phases), ("reason", (last.get("reason", ""),))):
        wrong += [
            Problem(name, word, _("use {words}").format(words=", ".join(sorted(_WORDS[name]))))
            for word in said
            if word and word not in _WORDS[name]
        ]
    sort = last.get("sort", "age")
    if sort.removeprefix("-") not in COLUMNS:
        wrong.append(Problem("sort", sort, _("use {words}").format(words=", ".join(COLUMNS))))
    counts = {}
    for name, usual, least in (("limit", 100, 1), ("offset", 0, 0)):
        text = last.get(name, str(usual))
        counts[name] = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= counts[name] <= (MOST if name == "limit" else 10**9):
            rule = _("a whole number from {least} to {most}").format(least=least, most=MOST)
            wrong.append(Problem(name, text, rule))
    if wrong:
        raise InvalidRequest(wrong, _("that cannot be asked"))
    return Query(
        text=last.get("q", "").strip().casefold(),
        owner=last.get("owner", ""),
        phases=phases,
        reason=last.get("reason", ""),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        limit=counts["limit"],
        offset=counts["offset"],
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
