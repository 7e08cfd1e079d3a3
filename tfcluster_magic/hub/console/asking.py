"""What the words of an address ask of a table: known words, choices, the order, the page. Pure.

Promises that every word that is wrong is named at once, with what is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...spec import Model

MOST = 1000
KEPT = {"kept": ("true", "false")}
"""Of tables with runs: whether those of the last look will do where a new one takes long."""
ALWAYS = ("limit", "offset", "q", "sort")


class Asked(Model, frozen=True):
    """What every table is asked for; `last` is each word's last value, `chosen` the choices."""

    last: dict[str, str]
    chosen: dict[str, tuple[str, ...]]
    text: str
    sort: str
    descending: bool
    limit: int
    offset: int


def read(
    given: Mapping[str, Sequence[str]],
    columns: Collection[str],
    sort: str,
    words: Collection[str] = (),
    one: Mapping[str, Sequence[str]] = {},  # never changed
    many: Mapping[str, Sequence[str]] = {},
) -> Asked:
    """Read an address.

    Args:
        given: its words and their values.
        columns: by what the table can be sorted, and by which it is unless asked.
        sort: the same, with a `-` before it for descending.
        words: what else may be asked for, with any value.
        one: with one value of these.
        many: with several of these, separated by commas or in words of their own.

    Raises:
        InvalidRequest: a word or a value is not known; all of them are named.
    """
    known = sorted((*ALWAYS, *words, *one, *many))
    use = _("use {words}")
    wrong = [
        Problem(name, values[-1], use.format(words=", ".join(known)))
        for name, values in given.items()
        if name not in known
    ]
    last = {name: values[-1] for name, values in given.items() if values}
    chosen = {
        name: tuple(word for value in given.get(name, ()) for word in value.split(",") if word)
        for name in many
    }
    chosen |= {name: (last[name],) for name in one if last.get(name)}
    allowed = {**many, **one}
    wrong += [
        Problem(name, word, use.format(words=", ".join(allowed[name])))
        for name in allowed
        for word in chosen.get(name, ())
        if word not in allowed[name]
    ]
    by = last.get("sort", sort)
    if by.removeprefix("-") not in columns:
        wrong.append(Problem("sort", by, use.format(words=", ".join(columns))))
    counts = {}
    for name, usual, least in (("limit", 100, 1), ("offset", 0, 0)):
        text = last.get(name, str(usual))
        counts[name] = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= counts[name] <= (MOST if name == "limit" else 10**9):
            rule = _("a whole number from {least} to {most}").format(least=least, most=MOST)
            wrong.append(Problem(name, text, rule))
    if wrong:
        raise InvalidRequest(wrong, _("that cannot be asked"))
    return Asked(
        last=last,
        chosen=chosen,
        text=last.get("q", "").strip().casefold(),
        sort=by.removeprefix("-"),
        descending=by.startswith("-"),
        limit=counts["limit"],
        offset=counts["offset"],
    )
