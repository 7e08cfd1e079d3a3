"""Rate limits that all runs share: for writes of low priority, and for turns, in each of which the
operator handles one run.
"""

from __future__ import annotations

from support.clock import Clock

from tfcluster_magic.kube.controller.work_queue import (
    CHANGING,
    LONGEST_OF_MANY,
    LONGEST_REST,
    WorkQueue,
    rest_seconds,
)
from tfcluster_magic.operator.reconcile.status_writer import (
    BURST,
    LONGEST_WAIT,
    SECONDS_A_TASK,
    SECONDS_A_WRITE,
    WriteRateLimit,
)


def test_a_run_alone_is_written_at_once() -> None:
    """A small run that is written at most four times a second never waits."""
    clock = Clock()
    pace = WriteRateLimit(clock)
    for _ in range(40):
        assert pace.slot(10) <= clock.now
        clock.now += 0.25


def test_many_runs_have_a_place_each() -> None:
    """If sixty runs change together, some are written at once and the others one after the other,
    none later than after the maximum wait. One write of a large run counts as much as the
    writes of several small runs.
    """
    clock = Clock()
    pace = WriteRateLimit(clock)
    slots = [pace.slot(10) for _ in range(60)]
    assert slots == sorted(slots)
    assert sum(1 for slot in slots if slot <= clock.now) == 1 + BURST // (
        SECONDS_A_WRITE + 10 * SECONDS_A_TASK
    )
    assert slots[-1] == clock.now + LONGEST_WAIT
    clock.now += 60
    assert pace.slot(600) <= clock.now
    assert pace.slot(600) <= clock.now
    assert pace.slot(600) > clock.now


def test_the_more_change_the_longer_each_rests() -> None:
    """After a turn, a single run rests in proportion to the CPU time of the turn; if many runs
    change, together they get a fixed number of turns per second.
    """
    assert rest_seconds(0.0, 0) == 0.0
    assert rest_seconds(0.001, 0) == 0.019
    assert rest_seconds(1.0, 0) == LONGEST_REST
    assert rest_seconds(0.0, 25) == 25 / CHANGING
    assert rest_seconds(1.0, 1000) == LONGEST_OF_MANY


def test_keys_that_rest_are_counted() -> None:
    """Only keys whose next turn a worker has postponed are counted as resting."""
    work: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "c"):
        work.add(key)
    for key, seconds in (("a", 60.0), ("b", 60.0), ("c", 0.0)):
        assert work.get() == key
        work.done(key, seconds)
    assert work.resting("c") == 2


def test_a_key_rests_for_others_of_its_own_share() -> None:
    """The rest of a run after its turn depends on the number of resting runs: with fifty runs in
    fifty namespaces, it is as long as with fifty runs in one namespace. Next to a namespace with
    hundreds of changing runs, a run of another namespace rests as if there were only one other run.
    """
    work: WorkQueue[tuple[str, int]] = WorkQueue(lambda key: key[0])

    def rest(share: str, count: int) -> None:
        for number in range(count):
            work.add((share, number))
        for _ in range(count):
            key = work.get()
            assert key is not None
            work.done(key, 60.0)

    rest("a", 200)
    assert work.resting(("a", 200)) == 200
    assert work.resting(("b", 0)) == 1
    for number in range(48):
        rest(f"user-{number}", 1)
    assert work.resting(("b", 0)) == 49
