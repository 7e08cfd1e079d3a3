"""Parsing of a program while other code parses, too."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfcluster_magic.program.inspection import parse_python, retry_parsing

CONTENT = Path(__file__).read_bytes() * 4


@contextmanager
def disturbed(times: int) -> Iterator[list[int]]:
    """While the caller parses, parse something else in between, up to `times` times, as another
    thread could. For this, a hook of the garbage collector parses when a collection starts while
    Python builds a tree.
    """
    left = list(range(times))

    def parse(phase: str, _info: object) -> None:
        if left and phase == "start":
            left.pop()
            ast.parse("a = b")

    before = gc.get_threshold()
    gc.callbacks.append(parse)
    gc.set_threshold(50)
    try:
        yield left
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(parse)


def test_a_program_is_parsed_while_others_parse() -> None:
    """A tree is complete although something else was parsed while it was built."""
    whole = ast.dump(ast.parse(CONTENT))

    with disturbed(5) as left:
        tree = parse_python(CONTENT)

    assert not left
    assert ast.dump(tree) == whole


def test_an_error_that_stays_is_not_hidden() -> None:
    """An error that occurs at each attempt is raised in the end."""
    with pytest.raises(SystemError, match="always"):
        retry_parsing(_fail)


def _fail() -> None:
    raise SystemError("always")
