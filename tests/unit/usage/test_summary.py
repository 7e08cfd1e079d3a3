"""The usage of tasks compared with their requests: summaries, sentences and the table."""

from __future__ import annotations

import json

import pytest

from tfcluster_magic.output.usage import in_order, usage_table
from tfcluster_magic.spec import (
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
from tfcluster_magic.usage.samples import Attempt, parse
from tfcluster_magic.usage.summary import RunUsage, memory_words, run_usage, series, usage_lines

NOW = 1_800_000_000.0
GIB = 1 << 30


def a_run(phase: Phase = Phase.RUNNING) -> TFCluster:
    """Return a run of 2 workers with requests and 1 parameter server without a request."""
    worker = Replicas(count=2, resources=Resources(cpu=4, memory="8Gi", gpu=1))
    return TFCluster(
        metadata=Metadata(name="digits-2", cluster="digits", run=2, uid="u", created_at=NOW - 60),
        spec=Spec(replicas=ReplicaSet(worker=worker, ps=Replicas(count=1))),
        status=Status(phase=phase, reason=Reason.RUNNING),
    )


def sampled(*rows: list[int], ago: float = 0.0, **head: object) -> list[Attempt]:
    """Return one attempt whose last interval ended `ago` seconds before now."""
    began = NOW - ago - sum(row[0] for row in rows) / 10
    lines = [{"v": 1, "at": began, "attempt": 1, **head}, *rows]
    return parse("".join(f"{json.dumps(line)}\n" for line in lines).encode())


BUSY = [20, 260, 2 * 16384, 4096, 8192, 0, 0, 50, 100, 16384]
"""A sample of two seconds with 1.3 CPU, 2 GiB, 2 MiB/s received, 4 MiB/s sent, 25 % throttled, half
a GPU.
"""


def usage(phase: Phase = Phase.RUNNING) -> RunUsage:
    """Return the usage of a run whose worker-1 is idle."""
    samples = {
        "worker-0": sampled([100, 0, 16384], BUSY, BUSY, BUSY),
        "worker-1": sampled([20, 2, 1600, *[0] * 7, 3 * 16384]),
        "ps-0": sampled([20, 10, 1600], ago=60, memory=GIB, cpu=2.0),
    }
    return run_usage(a_run(phase), samples, {"worker-0": 12.5}, NOW)


def test_the_current_rates_are_those_of_the_last_seconds() -> None:
    """Older samples count only in averages, and a task without new samples has no current rate."""
    tasks = {task.name: task for task in usage().tasks}
    now, average = tasks["worker-0"].current, tasks["worker-0"].average
    assert now is not None
    assert average is not None
    assert (now.cpu, now.memory, now.gpu, now.throttled) == (1.3, 2 * GIB, 0.5, 0.25)
    assert (now.received, now.sent) == (2 << 20, 4 << 20)
    assert (average.cpu, average.seconds) == (0.488, 16)
    assert GIB < average.memory < 2 * GIB
    assert tasks["worker-0"].steps_per_second == 12.5
    assert tasks["ps-0"].current is None
    assert tasks["ps-0"].average is not None


def test_the_limit_of_a_container_stands_in_for_a_missing_request() -> None:
    """Without a request in the launch, the container's limit is shown."""
    tasks = {task.name: task for task in usage().tasks}
    assert (tasks["ps-0"].cpu_requested, tasks["ps-0"].memory_requested) == (2.0, GIB)
    assert tasks["worker-0"].memory_requested == 8 * GIB


def test_a_sentence_for_each_type_names_request_use_and_peak() -> None:
    """The largest peak is shown with its task, and CPU usage as the mean over the tasks."""
    worker, server = usage_lines(usage(Phase.SUCCEEDED))
    assert server == "ps: asked for 2 CPU, used 0.05; peak of memory 100 MiB of 1 GiB (ps-0)"
    assert worker == (
        "worker: asked for 4 CPU, used 0.25; peak of memory 3 of 8 GiB (worker-1); "
        "GPUs: asked for 1, used 0.1"
    )
    assert usage_lines(run_usage(a_run(), {}, {}, NOW)) == []
    (partly,) = usage_lines(run_usage(a_run(), {"worker-0": sampled(BUSY)}, {}, NOW))
    assert partly == (
        "worker: asked for 4 CPU, used 1.3; peak of memory 2 of 8 GiB (worker-0); "
        "GPUs: asked for 1, used 0.5 (of 1 of 2 tasks)"
    )


def test_the_table_has_the_largest_first() -> None:
    """Tasks without a current figure are last, and columns without a figure are left out."""
    found = usage()
    head, *rows = usage_table(found).split("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == ["worker-0", "worker-1", "ps-0"]
    assert "1.30 of 4" in rows[0]
    assert "2 of 8 GiB" in rows[0]
    assert "4 MiB/s" in rows[0]
    assert "25%" in rows[0]
    assert "STEPS/S" in head
    assert "READ" not in head
    assert [task.name for task in in_order(found, "task")] == ["worker-0", "worker-1", "ps-0"]
    assert in_order(found, "memory")[0].name == "worker-0"


def test_the_table_of_an_ended_run_has_averages() -> None:
    """After the end, the table shows averages instead of current rates."""
    text = usage_table(usage(Phase.SUCCEEDED))
    assert "0.49 of 4" in text
    assert "The run has ended: these are averages." in text
    assert "STEPS/S" not in text
    assert usage_table(run_usage(a_run(), {}, {}, NOW)) == "No task has been sampled yet."


def test_attempts_add_up() -> None:
    """The usage of a restarted task is the sum over its attempts."""
    first, second = sampled([20, 100, 900], ago=10), sampled([20, 300, 500])
    found = run_usage(a_run(), {"worker-0": [*first, *second]}, {}, NOW)
    task = next(task for task in found.tasks if task.name == "worker-0")
    assert (task.attempts, task.cpu_seconds, task.memory_peak) == (2, 4.0, 900 << 16)


def test_a_task_that_ended_within_a_sample_has_no_peak() -> None:
    """A task that ended before its memory was read has no peak, and neither the table nor a
    sentence claims that it used no memory.
    """
    found = run_usage(a_run(Phase.FAILED), {"worker-0": sampled([7, 60])}, {}, NOW)
    assert usage_lines(found) == []
    assert "PEAK" not in usage_table(found) and "worker-0" in usage_table(found)


def test_series_are_columns() -> None:
    """A series has a column for the time, for the attempt and for each figure, such as CPU; each
    column has one value for each sample.
    """
    told = series(sampled([20, 100, 900], [40, 100, 800]))
    assert told.at == (NOW - 4, NOW)
    assert (told.cpu, told.memory, told.attempt) == ((0.5, 0.25), (900 << 16, 800 << 16), (1, 1))


@pytest.mark.parametrize(
    ("used", "asked", "text"),
    [
        (2.1 * GIB, 8 * GIB, "2.1 of 8 GiB"),
        (40 << 20, None, "40 MiB"),
        (300 << 20, 2 * GIB, "300 MiB of 2 GiB"),
        (0, 512 << 20, "0 of 512 MiB"),
        (123.4 * GIB, None, "123 GiB"),
    ],
)
def test_memory_has_the_unit_of_its_amount(used: float, asked: float | None, text: str) -> None:
    """The used and the requested memory each have the unit that fits their size; if both have the
    same unit, it is written once.
    """
    assert memory_words(used, asked) == text
