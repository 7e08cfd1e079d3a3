"""Graphs of usage over time, all with the same time axis; outliers come first, and restarts are
marked.
"""

from __future__ import annotations

import json

from tfcluster_magic.spec import (
    Event,
    Metadata,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    TFCluster,
)
from tfcluster_magic.usage.graphs import MOST_LINES, RunGraphs, run_graphs
from tfcluster_magic.usage.samples import Attempt, parse
from tfcluster_magic.usage.summary import run_usage, series

NOW = 1_800_000_000.0


def a_run(workers: int, *events: Event) -> TFCluster:
    """Return a running run whose workers ask for 4 CPU and 8 GiB."""
    worker = Replicas(count=workers, resources=Resources(cpu=4, memory="8Gi"))
    status = Status(phase=Phase.RUNNING, reason=Reason.RUNNING, events=events)
    head = Metadata(name="digits-2", cluster="digits", run=2, uid="u", created_at=NOW - 60)
    return TFCluster(metadata=head, spec=Spec(replicas=ReplicaSet(worker=worker)), status=status)


def lines(*rows: list[int], began: float = NOW, attempt: int = 1) -> bytes:
    """Return the text of one attempt as its task writes it."""
    head = {"v": 1, "at": began, "attempt": attempt}
    return "".join(f"{json.dumps(line)}\n" for line in [head, *rows]).encode()


def row(cpu: float, step: int = 0) -> list[int]:
    """Return a sample of two seconds with `cpu` cores, 1 GiB of memory, and 1 MiB/s received and
    sent.
    """
    return [20, round(cpu * 200), 16384, 2048, 2048, 0, 0, 0, 0, 0, 0, step]


def steady(cpu: float, count: int = 10) -> list[Attempt]:
    """Return the samples of a task that always uses `cpu` cores and makes 5 steps a second."""
    return parse(lines(*(row(cpu, 10 * (1 + n)) for n in range(count))))


def drawn(samples: dict[str, list[Attempt]], points: int = 10, *events: Event) -> RunGraphs:
    """Return the graphs of a run with these samples."""
    run = a_run(len(samples), *events)
    usage = run_usage(run, samples, {}, NOW + 20)
    return run_graphs(run, samples, usage, points)


def test_figures_are_on_one_axis() -> None:
    """All graphs have the same time axis, with one value for each of its points, in the units that
    `tfcluster top` uses.
    """
    found = drawn({"worker-0": steady(1.5), "worker-1": steady(1.5)})
    assert (found.began, found.at[0], found.at[-1]) == (NOW, NOW + 2, NOW + 20)
    (workers,) = found.types
    assert [graph.figure for graph in workers.graphs] == ["cpu", "memory", "network", "steps"]
    cpu, memory, network, steps = workers.graphs
    assert (cpu.middle, cpu.requested) == ((1.5,) * 10, 4)
    assert (memory.high, memory.requested) == ((1 << 30,) * 10, 8 << 30)
    assert network.low == (2 << 20,) * 10
    assert steps.middle == (None, *(5,) * 9), "the first step says nothing about a rate"
    assert [line.task for line in cpu.lines] == ["worker-0", "worker-1"]
    assert [(mark.at - NOW, mark.step) for mark in found.steps][:2] == [(2, 10), (4, 20)]


def test_fewer_points_keep_the_sums() -> None:
    """If a graph has fewer points than samples, each point stands for several samples: it has their
    mean CPU and their largest memory.
    """
    samples = {"worker-0": parse(lines(row(1), row(3), row(0), row(4)))}
    (cpu, *_others) = drawn(samples, 2).types[0].graphs
    assert cpu.middle == (2, 2)
    assert len(drawn(samples, 1).at) == 1
    assert series(samples["worker-0"], 2).cpu == (2, 0, 4)


def test_outliers_come_first_and_alone_of_many_tasks() -> None:
    """With many tasks, only tasks that differ from the others get a line of their own; the others
    are shown together as the band between `low` and `high`.
    """
    samples = {f"worker-{n}": steady(2 + n % 3 / 100) for n in range(40)}
    samples["worker-7"], samples["worker-9"] = steady(0.2), steady(0.9)
    (cpu, *_others) = drawn(samples).types[0].graphs
    assert [line.task for line in cpu.lines] == ["worker-7", "worker-9"]
    assert all(line.outlier for line in cpu.lines)
    assert (cpu.low[3], cpu.high[3]) == (0.2, 2.02)
    few = {name: samples[name] for name in [f"worker-{n}" for n in range(8, 8 + MOST_LINES)]}
    told = drawn({f"worker-{n}": each for n, each in enumerate(few.values())}).types[0].graphs[0]
    assert [(line.task, line.outlier) for line in told.lines][:2] == [
        ("worker-1", True),
        ("worker-0", False),
    ]


def test_restarts_and_events_are_marked() -> None:
    """A restart of a task leaves a gap and a mark; events from before the first sample are left
    out.
    """
    again = parse(
        lines(row(1), row(1)) + lines(row(1, 400), row(1, 420), began=NOW + 10, attempt=2)
    )
    early, late = (
        Event(at=NOW + at, reason=why, message=why) for at, why in ((-50, "Queued"), (5, "Healed"))
    )
    found = drawn({"worker-0": again}, 7, early, late)
    assert found.restarts == ((NOW + 10, "worker-0"),)
    assert [each.reason for each in found.events] == ["Healed"]
    cpu, *_others, steps = found.types[0].graphs
    assert cpu.middle == (1, 1, None, None, None, 1, 1)
    assert steps.middle == (None,) * 6 + (10,), "the rate of the first attempt is unknown"


def test_nothing_was_sampled() -> None:
    """Without samples, the graphs have no task types and no times."""
    found = drawn({"worker-0": []})
    assert (found.types, found.at, found.steps) == ((), (), ())
