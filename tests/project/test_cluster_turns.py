"""Turns of test processes that share a cluster (tests/support/kube/turns.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from support.kube.turns import Turn


def soon(take: Callable[[], None]) -> threading.Event:
    """Take a turn in a thread; return an event that is set once it is taken."""
    taken = threading.Event()

    def wait() -> None:
        take()
        taken.set()

    threading.Thread(target=wait, daemon=True).start()
    return taken


def test_who_wants_it_alone_waits_for_those_who_share(tmp_path: Path) -> None:
    """An exclusive turn begins only when both shared turns are over."""
    first, second, third = (Turn(tmp_path / "it") for _ in range(3))
    first.share()
    second.share()
    alone = soon(third.alone)
    first.give()
    assert not alone.wait(0.2)
    second.give()
    assert alone.wait(10)
    shared = soon(first.share)
    assert not shared.wait(0.2)
    third.give()
    assert shared.wait(10)


def test_nobody_goes_before_one_who_waits_to_be_alone(tmp_path: Path) -> None:
    """A shared turn that is requested after an exclusive turn waits until the exclusive turn is
    over.
    """
    first, second, third = (Turn(tmp_path / "it") for _ in range(3))
    first.share()
    alone = soon(second.alone)
    assert not alone.wait(0.2)
    shared = soon(third.share)
    assert not shared.wait(0.2)
    first.give()
    assert alone.wait(10)
    assert not shared.is_set()
    second.give()
    assert shared.wait(10)


def test_two_who_share_may_both_ask_to_be_alone(tmp_path: Path) -> None:
    """Two processes with shared turns that both request an exclusive turn do not deadlock, because
    each releases its shared turn first.
    """
    first, second = (Turn(tmp_path / "it") for _ in range(2))
    first.share()
    second.share()
    alone = soon(first.alone)
    other = soon(second.alone)
    assert alone.wait(10) or other.wait(10)
    done, waiting = (first, other) if alone.is_set() else (second, alone)
    assert not waiting.is_set()
    done.give()
    assert waiting.wait(10)


def test_who_has_it_alone_and_asks_again_lets_nobody_in_between(tmp_path: Path) -> None:
    """A process that requests its exclusive turn again keeps it; processes that want a shared turn
    continue to wait.
    """
    first, second = (Turn(tmp_path / "it") for _ in range(2))
    first.alone()
    shared = soon(second.share)
    assert not shared.wait(0.2)
    first.alone()
    assert not shared.wait(0.2)
    first.share()
    assert shared.wait(10)
