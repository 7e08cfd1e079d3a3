"""Syntax trees, on every Python that runs here.

Promises that parsing fails for what is wrong with the text and for nothing else. Python before
3.11.8 and 3.12.2 counts the depth of a tree once for the whole process, so a second thread that
parses (a traceback does, too) fails the first with SystemError: https://github.com/python/cpython/issues/106905
"""

from __future__ import annotations

import ast
import contextlib
import warnings
from collections.abc import Callable
from typing import TypeVar

_ATTEMPTS = 20
_T = TypeVar("_T")


def tree_of(content: bytes) -> ast.Module:
    """The syntax tree of a Python text, without its warnings: they are the program's own business.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as `ast.parse`.
    """

    def parse() -> ast.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)

    return undisturbed(parse)


def undisturbed(parse: Callable[[], _T]) -> _T:
    """What `parse` makes, tried again when another thread's parsing disturbed it."""
    for _attempt in range(_ATTEMPTS - 1):
        with contextlib.suppress(SystemError):
            return parse()
    return parse()
