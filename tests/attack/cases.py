"""Run attacks, each from a seed and within a time limit, and report which of them the product
withstood.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .target import Target

Attempt = Callable[["Target", random.Random], None]
"""One try of an attack. It returns if the product withstood the attack, and otherwise raises
NotTried or another error.
"""
LIMIT, LIMIT_KUBERNETES = 300, 1000
"""Time limit of a try in seconds; a try that takes longer counts as failed."""


class NotTried(Exception):
    """This machine or user lacks what the attack needs; the text names it."""


class Endless(BaseException):
    """A try takes too long. No `except Exception` in the try can catch this error."""


@dataclass
class Row:
    """The result of the tries of one case."""

    kind: str
    name: str
    attempt: Attempt = field(repr=False)
    tries: int = 0
    held: int = 0
    failure: str = ""
    again: str = ""
    not_tried: str = ""


def rows(kinds: Mapping[str, Mapping[str, Attempt]], only: Sequence[str] = ()) -> list[Row]:
    """Return a row for each case; `only` are names of kinds or cases.

    Raises:
        KeyError: there is no kind or case of that name.
    """
    every = [
        Row(kind, name, attempt) for kind, cases in kinds.items() for name, attempt in cases.items()
    ]
    if unknown := set(only) - {row.kind for row in every} - {row.name for row in every}:
        raise KeyError(", ".join(sorted(unknown)))
    return [row for row in every if not only or row.kind in only or row.name in only]


def attack(
    target: Target,
    chosen: Sequence[Row],
    seed: int,
    tries: int,
    seconds: float = 1e9,
    say: Callable[[str], None] = lambda _text: None,
) -> bool:
    """Try each case once, then again while there is time; return whether the product withstood
    every try.

    Try n of a case depends only on `seed + n` and the name of the case, so this try can be repeated
    without the others.
    """
    deadline = time.monotonic() + seconds
    for number in range(tries):
        for row in chosen:
            if row.failure or row.not_tried or (number and time.monotonic() > deadline):
                continue
            if time.monotonic() > deadline:
                row.not_tried = "there was no time left: give it more --minutes"
                continue
            began = time.monotonic()
            _try(target, row, seed + number)
            outcome = row.failure or (f"not tried: {row.not_tried}" if row.not_tried else "held")
            took = time.monotonic() - began
            if not number or row.failure:
                say(f"{row.kind:11} {row.name:24} {took:5.1f} s  {outcome.splitlines()[0][:150]}")
    return not any(row.failure for row in chosen)


def _try(target: Target, row: Row, seed: int) -> None:
    try:
        with _limited(LIMIT_KUBERNETES if row.kind == "kubernetes" else LIMIT):
            row.attempt(target, random.Random(f"{row.name} {seed}"))
    except NotTried as reason:
        row.not_tried = str(reason)
        return
    except (Exception, Endless) as error:  # noqa: BLE001  whatever it is, it is told
        told = f"{type(error).__name__}: {error}".strip()
        row.failure = told + _where(error)
        row.again = f'make attack ATTACK="--seed {seed} --only {row.name} --tries 1"'
    else:
        row.held += 1
    row.tries += 1


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in last if "/attack/" in frame.filename][-1:]
    return "".join(f"\n({frame.filename}:{frame.lineno}, {frame.name})" for frame in own)


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # SIGALRM can end a try only in the main thread. In other threads, the time limit of the
        # test suite ends it.
        yield
        return

    def over(_number: int, _frame: FrameType | None) -> None:
        raise Endless(f"it did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def table(tried: Sequence[Row]) -> str:
    """Return a table with a row for each kind, and each failure below it."""
    lines = [f"{'kind':12} {'cases':>5} {'tries':>5} {'held':>5}  first failure"]
    for kind in dict.fromkeys(row.kind for row in tried):
        of_kind = [row for row in tried if row.kind == kind]
        cases = sum(not row.not_tried for row in of_kind)
        counts = [cases, sum(row.tries for row in of_kind), sum(row.held for row in of_kind)]
        failed = [
            f"{row.name}: {row.failure.splitlines()[0][:100]}" for row in of_kind if row.failure
        ]
        reasons = dict.fromkeys(row.not_tried for row in of_kind)
        first = failed[0] if failed else "" if cases else f"not tried: {', '.join(reasons)}"
        lines.append(f"{kind:12} {counts[0]:5} {counts[1]:5} {counts[2]:5}  {first}".rstrip())
    lines += [f"\nnot tried: {row.name}: {row.not_tried}" for row in tried if row.not_tried]
    for row in tried:
        if row.failure:
            lines += [f"\nDID NOT HOLD: {row.kind}, {row.name}", row.failure, f"Again: {row.again}"]
    return "\n".join(lines)


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
