"""Regular expressions from the page: their matches in a whole log, and refused expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.server.calls import Api, Launch, assert_problem
from support.server.log_items import items, lines

from tfcluster_magic.backends.base import LogLine
from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.server.expressions import (
    MOST_SOURCE,
    ExpressionRefused,
    Matcher,
    python_source,
)
from tfcluster_magic.server.log_streams import Search

# The page is tested with the same table: labextension/test/lines.test.ts.
TABLE = json.loads((Path(__file__).parents[1] / "data" / "expressions.json").read_text())
REFUSED = [
    r"\p{L}",
    r"\A",
    r"\08",
    "(?P<n>x)",
    "(?i)x",
    "(?i:x)",
    "a*+",
    "a{2",
    "a]",
    "(",
    "[a",
    "[z-a]",
    "*",
    "(?<=a+)b",
    r"\1(a)",
    r"\k<n>",
    "a{99999999999}",
    r"\u{110000}",
    "a\\",
    "(" * 900,
]
HOSTILE = {"(a+)+$": "a" * 5000 + "b", "(?:(?:a?){200}){200}b": "a" * 20_000}


def matches(source: str, *texts: str, case: bool = False) -> list[bool]:
    """Return for each text whether the expression matches it, evaluated in a separate process."""
    with closing(Matcher(source, case)) as matcher:
        (found,) = (answer for answer in matcher.matches(texts) if answer is not None)
    return list(found)


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['source']} in {row['text']}")
def test_an_expression_matches_what_the_page_matches(row: dict[str, Any]) -> None:
    """Character classes, escapes, references and case have the same meaning as in JavaScript."""
    source = python_source(row["source"])
    assert matches(row["source"], row["text"]) == [row["matches"]], source


def test_upper_and_lower_case_differ_on_demand() -> None:
    assert matches("nan", "NaN", "nan", case=True) == [False, True]


@given(st.text())
def test_every_character_can_be_written(text: str) -> None:
    """A text whose syntax characters are escaped matches itself, inside or outside of a character
    class.
    """
    escaped = re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)
    assert re.fullmatch(python_source(escaped), text)
    for character in text:
        one = "\\-" if character == "-" else re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", character)
        assert re.fullmatch(python_source(f"[{one}]"), character)


@pytest.mark.parametrize("source", [*REFUSED, "x" * (MOST_SOURCE + 1)])
def test_what_python_has_nothing_like_is_refused(source: str) -> None:
    """A regular expression of JavaScript that Python cannot express is refused, and no process is
    left.
    """
    before = children()
    with pytest.raises(ExpressionRefused):
        Matcher(source, case=False)
    assert children() == before


@pytest.mark.parametrize("source", HOSTILE)
def test_an_expression_that_never_ends_is_given_up(source: str) -> None:
    """An expression that does not finish is given up with advice, and its process ends."""
    before = children()
    log = [LogLine("worker-0", "b"), LogLine("worker-0", HOSTILE[source])]
    with pytest.raises(InvalidRequest, match="too long or too much memory: simplify it"):
        list(Search(source, ["worker-0"], regex=True)(log))
    assert children() == before


def test_a_search_that_nobody_waits_for_leaves_no_process() -> None:
    """When the reader closes the search, the matching process ends."""
    before = children()

    def log() -> Iterator[LogLine | None]:
        yield LogLine("worker-0", "found")
        while True:
            yield None

    search = iter(Search("f.und", ["worker-0"], regex=True)(log()))
    assert next(line for line in search if line is not None).text == "found"
    assert len(children()) == len(before) + 1
    del search
    assert children() == before


async def test_an_expression_is_looked_for_in_the_whole_log(api: Api, ended: Launch) -> None:
    """A search with `regex` returns the matching lines, and ends as a search for text does. A wrong
    expression is refused at once.
    """
    await ended("for i in range(3000): print('\\x1b[1mStep\\x1b[0m', i)")
    path = "clusters/digits/logs?regex=1&search="
    found = items(await api("GET", path + r"^step 2(99)\d?$"))
    assert lines(found) == [
        ("worker-0", f"\x1b[1mStep\x1b[0m {n}") for n in (299, *range(2990, 3000))
    ]
    assert found[-1] == {"end": True, "printed": {"worker-0": 3000}}
    few = items(await api("GET", path + "step&most=3"))
    assert len(lines(few)) == 3
    assert_problem(await api("GET", path + r"\p{L}"), 422, r"cannot search for \p")
    assert_problem(await api("GET", path + "("), 422, "simplify it, or search for a text")
