"""Blocking calls that run outside of the event loop, and calls that hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tfcluster_magic.errors import BackendUnavailable, NotFound
from tfcluster_magic.server import worker as worker_module
from tfcluster_magic.server.worker import Worker


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Yield the event that releases hanging calls."""
    event = threading.Event()
    yield event
    event.set()


def hang(released: threading.Event, number: int = 0) -> int:
    released.wait(60)
    return number


def working() -> int:
    return sum(t.name in ("tfcluster-hang", "tfcluster-<lambda>") for t in threading.enumerate())


async def test_a_call_returns_and_raises_what_its_function_does() -> None:
    """A blocking function runs outside of the event loop, and its errors are raised unchanged."""

    def missing() -> None:
        raise NotFound("no such run")

    worker = Worker()
    assert await worker.call(divmod, 7, 2) == (3, 1)
    with pytest.raises(NotFound, match="no such run"):
        await worker.call(missing)


async def test_who_asks_hears_in_time(released: threading.Event) -> None:
    """A call that hangs is given up after its limit; the message says that clusters continue."""
    worker = Worker()
    with pytest.raises(BackendUnavailable, match=r"within 0\.1 s\. Clusters go on"):
        await worker.call(hang, released, within=0.1)


async def test_a_question_that_hangs_is_not_asked_again(released: threading.Event) -> None:
    """Only one thread waits for a hanging call, no matter how often it is requested; other calls
    still run.
    """
    worker = Worker(most=2)
    for _ in range(5):
        with pytest.raises(BackendUnavailable):
            await worker.call(hang, released, within=0.05)
    assert working() == 1
    assert await worker.call(divmod, 7, 2) == (3, 1)


async def test_when_all_hang_the_answer_is_immediate(released: threading.Event) -> None:
    """The number of hanging threads is limited; further callers are refused at once."""
    worker = Worker(most=3)
    for number in range(3):
        with pytest.raises(BackendUnavailable):
            await worker.call(hang, released, number, within=0.05)
    with pytest.raises(BackendUnavailable, match="does not answer"):
        await worker.call(hang, released, 7)
    assert working() == 3


async def test_it_recovers(released: threading.Event) -> None:
    """When a hanging call finishes, new calls run again."""
    worker = Worker(most=1)
    with pytest.raises(BackendUnavailable):
        await worker.call(hang, released, 1, within=0.05)
    released.set()
    assert await worker.call(hang, released, 1) == 1
    assert await worker.call(hang, released, 2) == 2


async def test_a_crowd_waits_for_its_turn() -> None:
    """If there are more calls than threads, all calls are answered."""
    worker = Worker(most=2)
    found = await asyncio.gather(*(worker.call(divmod, number, 10) for number in range(50)))
    assert found == [divmod(number, 10) for number in range(50)]


async def test_what_takes_long_keeps_nobody_from_looking(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even the maximum number of simultaneous launches leaves threads for reading."""
    monkeypatch.setattr(worker_module, "READ_WITHIN", 50.0)
    worker = Worker(most=2)
    slow = [asyncio.ensure_future(worker.call(hang, released, n, within=250)) for n in range(4)]
    await asyncio.sleep(0)
    assert await worker.call(divmod, 7, 2, within=50.0) == (3, 1)
    released.set()
    assert await asyncio.gather(*slow) == [0, 1, 2, 3]


async def test_two_of_the_same_that_hang_are_two(released: threading.Event) -> None:
    """If two calls of the same kind are made at the same time and both hang, they take two
    threads.
    """
    worker = Worker(most=2)
    both = (worker.call(hang, released, within=0.05) for _ in range(2))
    assert all(
        isinstance(e, BackendUnavailable)
        for e in await asyncio.gather(*both, return_exceptions=True)
    )
    with pytest.raises(BackendUnavailable, match="does not answer"):
        await worker.call(divmod, 7, 2)
