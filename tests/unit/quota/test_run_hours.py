"""CPU- and GPU-hours of a run by day, which stay exact when the process that counts them
restarts.
"""

from __future__ import annotations

import random
from datetime import datetime, timezone

import pytest

from tfcluster_magic.lifecycle import Observation, ObservedTask, decide
from tfcluster_magic.quota import ledger
from tfcluster_magic.spec import (
    Cause,
    Mode,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    TaskExit,
    TaskState,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc).timestamp()
MIDNIGHT = NOON + 12 * 3600
CORES = {"worker": 2.0, "ps": 0.5}


def test_nothing_is_written_before_a_task_holds_something() -> None:
    """A run whose tasks were never bound to a node has no usage."""
    assert ledger.update_usage(None, [("worker", None, None)], NOON, CORES) is None
    assert ledger.update_usage(None, [("worker", None, NOON - 1)], NOON, CORES) is None


def test_time_counts_from_a_tasks_own_start_to_its_own_end() -> None:
    """Hours do not depend on the time of the observation, which here comes 100 s after a start and
    50 s after an end.
    """
    first = ledger.update_usage(None, [("worker", NOON, None)], NOON + 100, CORES)
    assert ledger.seconds_by_type(first, NOON + 100) == {"worker": 100}
    last = ledger.update_usage(first, [("worker", NOON, NOON + 150)], NOON + 200, CORES)
    assert ledger.seconds_by_type(last, NOON + 9999) == {"worker": 150}


def test_what_runs_is_counted_without_a_write() -> None:
    """While no task starts or ends, the recorded usage of a run does not change, so nothing is
    written; still, its seconds count until now.
    """
    spans = [("worker", NOON, None), ("ps", NOON + 10, None)]
    first = ledger.update_usage(None, spans, NOON + 20, CORES)
    assert ledger.update_usage(first, spans, NOON + 5000, CORES) is first
    assert ledger.seconds_by_type(first, NOON + 5000) == {"worker": 5000, "ps": 4990}


def test_a_day_ends_at_midnight() -> None:
    """Seconds after midnight in UTC count for the next day."""
    held = ledger.update_usage(None, [("worker", MIDNIGHT - 60, None)], MIDNIGHT - 30, CORES)
    assert held is not None
    assert ledger.seconds_by_day(held, MIDNIGHT + 5) == {
        "2026-11-22": {"worker": 60},
        "2026-11-23": {"worker": 5},
    }


def test_of_very_long_runs_the_oldest_days_are_one() -> None:
    """The oldest days of very long runs are merged, without a lost second."""
    held = None
    for day in range(100):
        start = NOON + day * ledger.DAY
        held = ledger.update_usage(held, [("worker", start, start + 10)], start + 20, CORES)
    assert held is not None
    assert len(held.days) == ledger.MOST_USAGE_DAYS
    assert ledger.seconds_by_type(held, NOON) == {"worker": 1000}


def test_an_end_without_a_beginning_is_of_a_task_that_was_held() -> None:
    """The end of a task counts even if its start, or the task itself, is unknown after a
    restart.
    """
    first = ledger.update_usage(
        None, [("worker", NOON, None), ("worker", NOON, None)], NOON + 10, CORES
    )
    told = [("worker", None, NOON + 30), ("worker", None, NOON + 40), ("worker", None, NOON + 50)]
    last = ledger.update_usage(first, told, NOON + 60, CORES)
    # only two workers had resources, so only two of the ends count
    assert ledger.seconds_by_type(last, NOON + 60) == {"worker": 70}


@pytest.mark.parametrize("seed", range(20))
def test_looking_more_or_less_often_gives_the_same_sum(seed: int) -> None:
    """For any number of observations, even if the counter restarts before each, the result is the
    tasks' real hours.
    """
    chance = random.Random(seed)
    spans = [
        (kind, start := NOON + chance.uniform(0, 500), start + chance.uniform(1, 90000))
        for kind in ("worker", "ps")
        for _ in range(8)
    ]
    looks = sorted(chance.uniform(NOON, NOON + 100000) for _ in range(chance.randrange(60)))
    held = None
    for now in [*looks, NOON + 200000]:
        seen = [
            (kind, start if start <= now else None, end if end <= now else None)
            for kind, start, end in spans
        ]
        held = ledger.update_usage(held, seen, now, CORES)
    for kind, seconds in ledger.seconds_by_type(held, NOON + 300000).items():
        assert seconds == pytest.approx(sum(e - s for k, s, e in spans if k == kind))


def _spec() -> Spec:
    return Spec(
        mode=Mode.BETWEEN_GRAPH,
        replicas=ReplicaSet(
            ps=Replicas(count=1, resources=Resources(cpu=0.5)),
            worker=Replicas(count=2, resources=Resources(cpu=2, gpu=1)),
        ),
    )


def _seen(name: str, since: float, ended: float | None = None) -> ObservedTask:
    over = None if ended is None else TaskExit(cause=Cause.COMPLETED, finished_at=ended)
    state = TaskState.RUNNING if over is None else TaskState.SUCCEEDED
    return ObservedTask(
        name=name, attempt=1, state=state, ready=over is None, exit=over, since=since
    )


def test_a_run_has_its_cpu_and_gpu_hours() -> None:
    """The hours of a run are the sum over its tasks: here two workers with 2 cores and a GPU for an
    hour, and a parameter server with half a core.
    """
    spec = _spec()
    status = Status(phase=Phase.STARTING, reason=Reason.STARTING, started_at=NOON)
    tasks = {n: _seen(n, NOON) for n in ("ps-0", "worker-0", "worker-1")}
    running = decide(spec, "digits-1", status, Observation(tasks=tasks), NOON + 5).status
    assert ledger.run_hours(running.usage, spec, NOON + 3600) == (4.5, 2.0)

    over = {n: _seen(n, NOON, NOON + 3600) for n in ("worker-0", "worker-1")}
    seen = Observation(tasks={**tasks, **over})
    ended = decide(spec, "digits-1", running, seen, NOON + 3700).status
    assert ended.phase is Phase.SUCCEEDED
    # the parameter server still uses half a core
    assert ledger.run_hours(ended.usage, spec, NOON + 7200) == (5.0, 2.0)


def test_what_the_world_asks_for_comes_before_the_spec() -> None:
    """If a task has no request, the default of the Kubernetes cluster counts."""
    spec = Spec(
        mode=Mode.BETWEEN_GRAPH,
        replicas=ReplicaSet(worker=Replicas(count=1)),
    )
    status = Status(phase=Phase.STARTING, reason=Reason.STARTING, started_at=NOON)
    seen = Observation(tasks={"worker-0": _seen("worker-0", NOON)}, cores={"worker": 0.5})
    running = decide(spec, "digits-1", status, seen, NOON + 1).status
    assert ledger.run_hours(running.usage, spec, NOON + 3600) == (0.5, 0.0)
