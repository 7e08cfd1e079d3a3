"""The queue of keys: which timer counts when there are several."""

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
    """A key comes when its earliest timer rings, however often it is set again."""
    began = time.monotonic()
    work.add_in("digits-1", 0.2)
    for _ in range(1000):
        work.add_in("digits-1", 30)
    assert work.get() == "digits-1"
    assert 0.2 <= time.monotonic() - began < 10
    assert not work._timers


def test_an_earlier_timer_rings_first(work: WorkQueue[str]) -> None:
    """A key that is to come sooner than was said comes sooner, and once."""
    work.add_in("digits-1", 60)
    work.add_in("digits-1", 0.05)
    assert work.get() == "digits-1"
    work.done("digits-1")
    work.add_in("digits-2", 0.05)
    assert work.get() == "digits-2"


def test_a_key_that_rests_comes_once_afterwards(work: WorkQueue[str]) -> None:
    """What changes while a key rests is looked at together, when its rest is over; others go on."""
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
