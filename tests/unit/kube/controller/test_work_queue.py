"""The work queue: the timers of its keys, and its shares (such as namespaces), which are served in
turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tfcluster_magic.kube.controller.work_queue import WorkQueue


@pytest.fixture
def work() -> Iterator[WorkQueue[str]]:
    made: WorkQueue[str] = WorkQueue()
    yield made
    made.close()


def test_a_later_timer_takes_no_earlier_ones_place(work: WorkQueue[str]) -> None:
    """A key is due at its earliest timer, however often later timers are set."""
    began = time.monotonic()
    work.add_in("digits-1", 0.2)
    for _ in range(1000):
        work.add_in("digits-1", 30)
    assert work.get() == "digits-1"
    assert 0.2 <= time.monotonic() - began < 10
    assert not work._timers


def test_an_earlier_timer_rings_first(work: WorkQueue[str]) -> None:
    """A key that gets an earlier timer is due earlier, and only once."""
    work.add_in("digits-1", 60)
    work.add_in("digits-1", 0.05)
    assert work.get() == "digits-1"
    work.done("digits-1")
    work.add_in("digits-2", 0.05)
    assert work.get() == "digits-2"


def test_a_key_that_rests_comes_once_afterwards(work: WorkQueue[str]) -> None:
    """Changes during the rest of a key are handled together after the rest; other keys are not
    delayed.
    """
    work.add("digits-1")
    assert work.get() == "digits-1"
    began = time.monotonic()
    work.done("digits-1", 0.2)
    for _ in range(100):
        work.add("digits-1")
    work.add_in("digits-1", 0.01)
    work.add("digits-2")
    assert work.get() == "digits-2"
    assert work.get() == "digits-1"
    assert time.monotonic() - began >= 0.2
    assert len(work) == 0
    work.done("digits-1")
    work.add("digits-3")
    assert work.get() == "digits-3"


def test_shares_are_served_in_turn() -> None:
    """Keys of different shares are handled in turn, even if one share has many keys."""
    work: WorkQueue[tuple[str, int]] = WorkQueue(lambda key: key[0])
    for number in range(1000):
        work.add(("busy", number))
    assert work.get() == ("busy", 0)
    work.add(("b", 0))
    work.add(("c", 0))
    work.add(("b", 1))
    expected = [("busy", 1), ("b", 0), ("c", 0), ("busy", 2), ("b", 1), ("busy", 3)]
    assert [work.get() for _ in expected] == expected
    assert len(work) == 996


def test_one_share_leaves_workers_for_the_others() -> None:
    """Workers handle a limited number of keys of a share at once; when one key is done, they take
    the share's next key.
    """
    work: WorkQueue[tuple[str, int]] = WorkQueue(lambda key: key[0], most=2)
    for number in range(4):
        work.add(("busy", number))
    first, second = work.get(), work.get()
    assert (first, second) == (("busy", 0), ("busy", 1))
    work.add(("b", 0))
    assert work.get() == ("b", 0)
    assert first is not None
    work.done(first)
    assert work.get() == ("busy", 2)
