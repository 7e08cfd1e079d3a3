"""Polling of a condition, if nothing signals that it has become true. No other module of the tests
polls in a loop, except `kubenode`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 180.0
"""Timeout in seconds, much longer than any operation takes on a busy machine."""
REST = 0.5
"""Maximum seconds between two slow checks, which must not use up the machine's time."""
Words = str | Callable[[], str]
"""A description of the condition. A function is called only if the condition fails."""


def wait_until(
    condition: Callable[[], T], what: Words = "", within: float = PATIENCE, *, every: float = 0.02
) -> T:
    """Return the condition's first true value; an assertion fails after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < deadline, _failure(condition, what, within)
        time.sleep(max(every, min(now - began, REST)))


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]],
    what: Words = "",
    within: float = PATIENCE,
    *,
    every: float = 0.02,
) -> T:
    """Wait as `wait_until` in a coroutine; the condition may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        answer = condition()
        found: T = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        assert time.monotonic() < deadline, _failure(condition, what, within)
        await asyncio.sleep(every)


def _failure(condition: object, what: Words, within: float) -> str:
    words = what() if callable(what) else what
    return f"not within {within:g} s: {words or condition}"
