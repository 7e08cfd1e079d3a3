"""Advice on recordings of real runs in which one problem was caused on purpose (a planted cause),
and on noisy variants of these recordings.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.planted import CAUSES, PROGRAMS, RECORDINGS, TIMES

from tfcluster_magic.i18n import language
from tfcluster_magic.spec import (
    Metadata,
    Mode,
    Phase,
    Program,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Status,
    TaskType,
    TFCluster,
)
from tfcluster_magic.spec.names import parse_task, task_name
from tfcluster_magic.usage.advice import (
    Advised,
    EarlierRun,
    advise,
    advised_options,
    change_lines,
    mean_step_rates,
    repeats_smaller,
    why_no_options,
)
from tfcluster_magic.usage.samples import Attempt, Interval, parse
from tfcluster_magic.usage.stacks import RunStacks, TaskStack, standstills

REPLAYS = 20
GIB = 1 << 30


class Recording(msgspec.Struct):
    """The arguments of `advise` as they were after a real run."""

    replicas: ReplicaSet
    phase: Phase
    samples: dict[str, str]
    counts: dict[str, int]
    earlier: list[EarlierRun]
    stacks: tuple[TaskStack, ...]
    cores: float | None
    reason: Reason = Reason.COMPLETED
    message: str = ""


def read(path: Path) -> Recording:
    """Return the recording in a file."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def advised(seen: Recording, samples: Mapping[str, Sequence[Attempt]]) -> Advised:
    """Return the advice on a recording whose samples are replaced by `samples`."""
    cluster = a_run(seen.replicas, seen.phase)
    steps = mean_step_rates(cluster, samples, seen.counts)
    places = standstills(RunStacks(name="digits-2", tasks=seen.stacks))
    return advise(cluster, samples, steps, seen.earlier, seen.cores, places)


def a_run(replicas: ReplicaSet, phase: Phase = Phase.SUCCEEDED, **spec: Any) -> TFCluster:
    """Return a run with these tasks; `spec` are further fields of its spec."""
    return TFCluster(
        metadata=Metadata(name="digits-2", cluster="digits", run=2, uid="u", created_at=1.8e9),
        spec=Spec(replicas=replicas, **spec),
        status=Status(phase=phase, reason=Reason.RUNNING),
    )


def perturbed(seen: Recording, seed: int) -> tuple[Recording, dict[str, list[Attempt]], Any]:
    """Return a noisy variant of a recording in which the tasks of each type have exchanged their
    names, its samples, and a function that returns the new name of a task. In this variant, the run
    took up to 10 % more or less time. Figures differ by up to 20 % between samples and by up to 8 %
    between tasks, clocks by 1.5 s, and step rates by 4 %. Some samples came late, and some last
    samples are missing.
    """
    dice = random.Random(seed)
    names: dict[str, str] = {}
    for task_type, count in seen.replicas.counts.items():
        places = dice.sample(range(count), count)
        names |= {task_name(task_type, i): task_name(task_type, at) for i, at in enumerate(places)}
    every, stretch = dice.uniform(0.97, 1.03), dice.uniform(0.9, 1.1)
    counts = {
        names[task]: round(count * every * stretch * dice.uniform(0.99, 1.01))
        for task, count in seen.counts.items()
    }
    attempts = {task: parse(text.encode()) for task, text in seen.samples.items()}
    begin = min(each.began for found in attempts.values() for each in found)
    samples = {}
    for task, found in attempts.items():
        load, bytes_ = dice.uniform(0.92, 1.08), dice.uniform(0.92, 1.08)
        moved = begin * (1 - stretch) + dice.uniform(-1.5, 1.5)
        samples[names[task]] = [
            replace(
                attempt,
                began=attempt.began * stretch + moved,
                intervals=tuple(
                    _noisy(each, dice, load, bytes_, stretch, moved)
                    for each in _late(attempt, dice)
                ),
            )
            for attempt in found
        ]
    stacks = tuple(
        msgspec.structs.replace(
            each, task=names[each.task], at=(each.at or 0) * stretch + begin * (1 - stretch)
        )
        for each in seen.stacks
    )
    changed = msgspec.structs.replace(seen, samples={}, counts=counts, stacks=stacks)
    return changed, samples, lambda task: names.get(task, task)


def _late(attempt: Attempt, dice: random.Random) -> list[Interval]:
    """Return the intervals of an attempt as if some samples had come late or the task had been
    killed: some intervals are merged with the interval before, and sometimes the last interval is
    missing.
    """
    made: list[Interval] = []
    for each in attempt.intervals:
        if made and dice.random() < 0.1:
            last = made.pop()
            sums = {
                name: getattr(last, name) + getattr(each, name)
                for name in ("seconds", "cpu", "received", "sent", "read", "written", "throttled")
            }
            made.append(replace(each, **sums))
        else:
            made.append(each)
    return made[:-1] if dice.random() < 0.2 else made


def _noisy(
    each: Interval,
    dice: random.Random,
    load: float,
    bytes_: float,
    stretch: float,
    moved: float,
) -> Interval:
    """Return the interval with noisy figures."""

    def near(number: float, factor: float) -> float:
        return number * stretch * factor * dice.uniform(0.8, 1.2)

    return replace(
        each,
        at=each.at * stretch + moved,
        seconds=each.seconds * stretch,
        cpu=near(each.cpu, load),
        throttled=near(each.throttled, load),
        memory=round(each.memory * dice.uniform(0.99, 1.01)),
        received=round(near(each.received, bytes_)),
        sent=round(near(each.sent, bytes_)),
        read=round(near(each.read, bytes_)),
    )


def check(cause: str, found: Advised, task: str) -> None:
    """Check that the advice names the cause and the task, and that there is no other advice."""
    planted = CAUSES[cause]
    assert found.no_advice == ""
    assert [each.code for each in found.advice] == ([planted.code] if planted.code else [])
    for each in found.advice:
        assert each.task == task
        assert (task if task != TaskType.WORKER.value else "worker") in each.message
        assert dict(each.options) == planted.changes
        assert each.command.startswith("tfcluster rerun digits-2 --") == bool(planted.changes)


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named(cause: str, number: int) -> None:
    """The advice on a real run names the planted cause and the task; a balanced run gets no
    advice.
    """
    seen = read(RECORDINGS / f"{cause}-{number}.json")
    samples = {task: parse(text.encode()) for task, text in seen.samples.items()}
    check(cause, advised(seen, samples), CAUSES[cause].task)


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_planted_cause_is_named_in_noise(cause: str, number: int) -> None:
    """The advice is the same if the tasks have exchanged their names and the figures are noisy."""
    seen = read(RECORDINGS / f"{cause}-{number}.json")
    for seed in range(REPLAYS):
        changed, samples, name = perturbed(seen, seed)
        check(cause, advised(changed, samples), name(CAUSES[cause].task))


@pytest.mark.parametrize("number", TIMES)
@pytest.mark.parametrize("cause", [cause for cause, planted in CAUSES.items() if planted.hangs])
def test_a_deadlock_names_its_line(cause: str, number: int) -> None:
    """The advice on a task in a deadlock names the line at which the task stands. Without a stack,
    it names the command that shows the stack; the stack of an earlier stall does not count.
    """
    seen = read(RECORDINGS / f"{cause}-{number}.json")
    samples = {task: parse(text.encode()) for task, text in seen.samples.items()}
    (found,) = advised(seen, samples).advice
    planted = CAUSES[cause]
    source = (PROGRAMS / planted.program).read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(source) if "waits for ever" in text)
    assert f"is stuck at line {line} of {planted.program}" in found.message
    assert found.message.endswith(f"`tfcluster stack digits-2 {planted.task}`.")
    # Without parameter servers, all workers stood still, so the run was reported as stalled.
    assert (seen.reason is Reason.STALLED) == (TaskType.PS not in seen.replicas.counts)
    old = tuple(msgspec.structs.replace(each, at=1.0) for each in seen.stacks)
    (blind,) = advised(msgspec.structs.replace(seen, stacks=old), samples).advice
    assert blind.code == "AdviceHangs"
    assert "`tfcluster stack digits-2" in blind.message


# ---- made-up figures, for causes that no recorded run has ----


def attempt(seconds: float = 60.0, **figures: float) -> list[Attempt]:
    """Return an attempt with the same `figures` per second in each interval; `memory` is in bytes.
    By default, a little CPU is used.
    """
    steady = {
        name: figures.get(name, 0.1 if name == "cpu" else 0.0)
        for name in ("cpu", "received", "sent", "read", "written", "throttled", "gpu")
    }
    rows = [
        Interval(
            at=1.8e9 + 2 * n,
            seconds=2.0,
            memory=int(figures.get("memory", 1 << 24)),
            gpu_memory=0,
            peak=0,
            **{name: 2 * value for name, value in steady.items()},  # type: ignore[arg-type]
        )
        for n in range(1, int(seconds / 2) + 1)
    ]
    return [Attempt(1, 1.8e9, figures.get("limit"), None, tuple(rows))]


def tasks(workers: int = 2, ps: int = 0, **asked: Any) -> ReplicaSet:
    """Return this number of tasks; `asked` are the resources of the workers."""
    return ReplicaSet(
        worker=Replicas(count=workers, resources=Resources(**asked)), ps=Replicas(count=ps)
    )


def codes(found: Advised) -> list[str]:
    """Return the codes of the advice."""
    return [each.code for each in found.advice]


def test_idle_gpus_are_named() -> None:
    """For GPUs that no task uses, the advice names the options that request fewer; GPUs that are
    used get no advice.
    """
    samples = {f"worker-{n}": attempt(cpu=0.9, gpu=0.02) for n in range(2)}
    (found,) = advise(a_run(tasks(gpu=1)), samples, {}).advice
    assert (found.code, found.task, dict(found.options)) == (
        "AdviceGpuIdle", "worker", {"worker_gpu": 0}
    )  # fmt: skip
    assert found.command == "tfcluster rerun digits-2 --worker-gpu 0"
    busy = {f"worker-{n}": attempt(cpu=0.9, gpu=0.6) for n in range(2)}
    assert codes(advise(a_run(tasks(gpu=1)), busy, {})) == []


def test_a_server_that_fills_one_of_its_cores_limits_the_training() -> None:
    """A variable is changed by only one thread, so more cores do not help its parameter server."""
    samples = {f"worker-{n}": attempt(cpu=0.1) for n in range(2)}
    samples |= {"ps-0": attempt(cpu=0.95), "ps-1": attempt(cpu=0.05)}
    asked = ReplicaSet(worker=Replicas(count=2), ps=Replicas(count=2, resources=Resources(cpu=4)))
    (found,) = advise(a_run(asked), samples, {}).advice
    assert (found.code, found.task) == ("AdviceServerCpuAlone", "ps-0")
    assert found.command == ""
    busy = {**samples, "ps-1": attempt(cpu=0.9)}
    (both,) = advise(a_run(asked), busy, {}).advice
    assert (both.code, both.command) == ("AdviceServerCpu", "tfcluster rerun digits-2 --ps 3")
    assert both.message.startswith("ps-0 and ps-1 limit the training: they use up to 0.95 CPU")


def test_input_from_a_disk_is_named() -> None:
    """Workers that wait and read from a disk are said to wait for input; without such a sign, there
    is no advice.
    """
    reads = {f"worker-{n}": attempt(cpu=0.1, read=8e6) for n in range(2)}
    (found,) = advise(a_run(tasks()), reads, {}).advice
    assert found.code == "AdviceInputDisk"
    assert "reads 7812KiB/s from a disk" in found.message
    assert codes(advise(a_run(tasks()), {t: attempt(cpu=0.1) for t in reads}, {})) == []
    assert codes(advise(a_run(tasks(), mode=Mode.IN_GRAPH), reads, {})) == []
    # A worker whose GPU is busy does not wait, nor does a worker that uses one of its four cores.
    trains = {task: attempt(cpu=0.1, read=8e6, gpu=0.9) for task in reads}
    assert codes(advise(a_run(tasks(gpu=1)), trains, {})) == []
    computes = {task: attempt(cpu=1.0, read=8e6) for task in reads}
    assert codes(advise(a_run(tasks(cpu=4)), computes, {})) == []
    # On a full machine, tasks wait for a core, so there is no advice about input.
    assert codes(advise(a_run(tasks()), reads, {}, cores=0.25)) == []


def test_a_worker_for_which_the_others_wait_is_named() -> None:
    """In synchronous training, all workers make the same steps, so the slowest worker computes
    while the others wait.
    """
    samples = {
        "worker-0": attempt(cpu=0.2),
        "worker-1": attempt(cpu=0.95),
        "worker-2": attempt(cpu=0.15),
    }
    steps = dict.fromkeys(samples, 5.0)
    (found,) = advise(a_run(tasks(3)), samples, steps).advice
    assert (found.code, found.task, found.command) == ("AdviceAwaitedWorker", "worker-1", "")
    # With parameter servers, no worker waits for another worker.
    served = {**samples, "ps-0": attempt(cpu=0.3)}
    assert codes(advise(a_run(tasks(3, ps=1)), served, steps)) == []


def test_memory_that_is_nearly_out_is_named() -> None:
    """The advice names the task that uses the largest part of its memory limit, and suggests a
    limit that is half as much higher.
    """
    samples = {"worker-0": attempt(memory=0.5 * GIB), "worker-1": attempt(memory=0.95 * GIB)}
    (found,) = advise(a_run(tasks(memory="1Gi")), samples, {}).advice
    assert (found.code, found.task) == ("AdviceMemoryNearlyOut", "worker-1")
    assert found.command == "tfcluster rerun digits-2 --worker-memory 1536Mi"


def test_less_memory_is_advised_only_after_a_whole_run() -> None:
    """Less memory is advised only after a success or a long time, because a run may need more
    memory later.
    """
    samples = {f"worker-{n}": attempt(memory=0.1 * GIB) for n in range(2)}
    assert codes(advise(a_run(tasks(memory="4Gi"), Phase.RUNNING), samples, {})) == []
    long = {task: attempt(700, memory=0.1 * GIB) for task in samples}
    assert codes(advise(a_run(tasks(memory="4Gi"), Phase.RUNNING), long, {})) == [
        "AdviceMemoryTooHigh"
    ]


def test_too_few_samples_are_said() -> None:
    """Without enough samples, there is no advice, and the reason is given in the reader's
    language.
    """
    assert advise(a_run(tasks()), {"worker-0": attempt()}, {}).no_advice == (
        "There is no advice: not every worker has been sampled, so the tasks cannot be compared."
    )
    short = {f"worker-{n}": attempt(24) for n in range(2)}
    told = advise(a_run(tasks()), short, {}).no_advice
    assert "at work together for 14 s, and at least 20 s are needed" in told
    with language("zh-CN"):
        assert "至少需要 20 秒" in advise(a_run(tasks()), short, {}).no_advice
    full = {task: attempt(24, memory=0.95 * GIB) for task in short}
    for samples in (full, {"worker-0": full["worker-0"]}):
        other = advise(a_run(tasks(memory="1Gi")), samples, {})
        assert codes(other) == ["AdviceMemoryNearlyOut"]
        assert other.no_advice == ""
    enough = advise(a_run(tasks()), {task: attempt(40) for task in short}, {})
    assert (enough.advice, enough.no_advice) == ((), "")


def test_more_work_by_more_workers_is_no_waste() -> None:
    """With more workers, the same step rate may mean larger steps; the used CPU shows whether the
    workers do more work.
    """
    samples = {f"worker-{n}": attempt(cpu=0.9) for n in range(4)}
    steps = dict.fromkeys(samples, 10.0)
    same = EarlierRun("digits-1", 2, 10.0, 1.8, 0.0)
    assert codes(advise(a_run(tasks(4)), samples, steps, [same])) == []
    as_much = EarlierRun("digits-1", 2, 10.0, 3.5, 0.0)
    assert codes(advise(a_run(tasks(4)), samples, steps, [as_much])) == ["AdviceTooManyWorkers"]


def test_earlier_runs_count_only_if_nothing_but_their_size_differs() -> None:
    """Earlier runs with another program, other arguments or other parameter servers do not count,
    because they cannot be compared.
    """

    def ran(workers: int, argument: str = "1", **counts: int) -> TFCluster:
        program = Program(sha256="0" * 64, entrypoint="train.py", arguments=(argument,))
        return a_run(tasks(workers, **counts), program=program)

    now = ran(4)
    assert repeats_smaller(ran(2), now)
    assert not repeats_smaller(ran(4), now)
    assert not repeats_smaller(ran(2, "2"), now)
    assert not repeats_smaller(ran(2, ps=1), now)
    assert not repeats_smaller(a_run(tasks(2)), now)


def test_the_mean_step_rate_is_not_that_of_a_resumed_run() -> None:
    """A run that began at a later step, or a task that was started again, has no mean step rate."""
    samples = {"worker-0": attempt(60), "worker-1": [*attempt(60), *attempt(60)]}
    counts = {"worker-0": 120, "worker-1": 120, "worker-2": 9}
    assert mean_step_rates(a_run(tasks()), samples, counts) == {"worker-0": 2.0}
    assert mean_step_rates(a_run(tasks(), resume_from="digits-1"), samples, counts) == {}


def test_the_options_of_all_advice_are_one_change() -> None:
    """If two pieces of advice set the same option, the first counts; for each option, a line shows
    the old and the new value.
    """
    samples = {
        "worker-0": attempt(cpu=0.25, throttled=0.6, limit=0.25, memory=0.95 * GIB),
        "worker-1": attempt(cpu=0.2, limit=0.25, memory=0.5 * GIB),
    }
    run = a_run(tasks(cpu=0.25, memory="1Gi"))
    options = advised_options(advise(run, samples, {}).advice)
    assert options == {"worker_cpu": 0.5, "worker_memory": "1536Mi"}
    assert change_lines(run.spec, options) == [
        "--worker-cpu: 0.25 → 0.5",
        "--worker-memory: 1Gi → 1536Mi",
    ]
    assert change_lines(a_run(tasks()).spec, options)[0] == "--worker-cpu: not set → 0.5"
    assert parse_task(advise(run, samples, {}).advice[0].task) == (TaskType.WORKER, 0)


def test_a_task_that_stands_still_hangs() -> None:
    """A worker that does nothing for a minute counts as hung if other workers of an asynchronous
    training continue, or if all workers stand still. A worker that may wait for another worker, or
    for its user, does not count as hung.
    """
    works, hung = attempt(90, cpu=0.9), attempt(90, cpu=0.001)
    samples = {"ps-0": attempt(90, cpu=0.1), "worker-0": works, "worker-1": hung}

    def run(replicas: ReplicaSet, **spec: Any) -> TFCluster:
        return a_run(replicas, Phase.RUNNING, **spec)

    (found,) = advise(run(tasks(ps=1)), samples, {}).advice
    assert (found.code, found.task) == ("AdviceHangs", "worker-1")
    assert "worker-1 hangs: it has done nothing for 1m 30s" in found.message
    assert found.message.endswith("`tfcluster stack digits-2 worker-1`.")
    assert why_no_options(Advised((found,))) == found.message
    (both,) = advise(run(tasks()), {**samples, "worker-0": hung}, {}).advice
    assert "worker-0 and worker-1 hang: they have done nothing" in both.message
    assert codes(advise(run(tasks()), samples, {})) == []
    assert codes(advise(run(tasks(ps=1), mode=Mode.IN_GRAPH), samples, {})) == []
    assert codes(advise(a_run(tasks(ps=1)), samples, {})) == []
    short = {**samples, "worker-1": attempt(50, cpu=0.001)}
    assert "AdviceHangs" not in codes(advise(run(tasks(ps=1)), short, {}))
    receives = {**samples, "worker-1": attempt(90, received=1e5)}
    assert "AdviceHangs" not in codes(advise(run(tasks(ps=1)), receives, {}))


def test_tasks_that_do_nothing_are_named_before_they_count_as_hung() -> None:
    """A run whose workers have done nothing since its start does not ask the user to wait for
    their work; once they worked or ended, or if one may wait for another, the usual reason stands.
    """
    still = {f"worker-{n}": attempt(46, cpu=0.001) for n in range(2)}
    told = advise(a_run(tasks(), Phase.RUNNING), still, {}).no_advice
    assert told == (
        "worker-0 and worker-1 have done nothing for 46s; after 1m they count as hanging. "
        "See the line of each: `tfcluster stack digits-2`."
    )
    one = {"worker-0": attempt(46, cpu=0.9), "worker-1": still["worker-1"], "ps-0": attempt(46)}
    told = advise(a_run(tasks(ps=1), Phase.RUNNING), one, {}).no_advice
    assert told.startswith("worker-1 has done nothing for 46s; after 1m it counts as hanging.")
    assert told.endswith("`tfcluster stack digits-2 worker-1`.")
    with language("zh-CN"):
        assert "没有任何活动" in advise(a_run(tasks(ps=1), Phase.RUNNING), one, {}).no_advice
    for run in (a_run(tasks(), Phase.RUNNING), a_run(tasks(ps=1), Phase.FAILED)):
        assert "There is no advice: all workers" in advise(run, one, {}).no_advice
    newly = {task: attempt(18, cpu=0.001) for task in still}
    assert "at work together" in advise(a_run(tasks(), Phase.RUNNING), newly, {}).no_advice


def test_a_hung_task_is_named_after_it_was_stopped() -> None:
    """The CPU that a hung program uses while it is being stopped does not count as work, so it
    still counts as hung. A task that has worked since its stall does not count as hung.
    """
    (hung,) = attempt(90, cpu=0.001)
    (ended,), (worked,) = attempt(6, cpu=0.5), attempt(20, cpu=0.5)
    last = replace(ended.intervals[-1], memory=0)
    stopped = replace(hung, intervals=(*hung.intervals, *ended.intervals[:2], last))
    works = replace(hung, intervals=(*hung.intervals, *worked.intervals))
    ps = {"ps-0": attempt(90, cpu=0.1), "worker-0": attempt(90, cpu=0.9)}
    run = a_run(tasks(ps=1), Phase.STOPPED)
    assert codes(advise(run, {**ps, "worker-1": [stopped]}, {})) == ["AdviceHangs"]
    assert "AdviceHangs" not in codes(advise(run, {**ps, "worker-1": [works]}, {}))


def test_the_time_after_the_training_does_not_count() -> None:
    """The time in which a worker waits until the other workers have ended does not lower its step
    rate.
    """
    (trains,) = attempt(60, cpu=0.6)
    (waits,) = attempt(40, cpu=0.0)
    after = tuple(replace(each, at=each.at + 60) for each in waits.intervals)
    longer = replace(trains, intervals=(*trains.intervals, *after))
    samples = {"worker-0": [trains], "worker-1": [longer]}
    steps = mean_step_rates(a_run(tasks()), samples, {"worker-0": 120, "worker-1": 120})
    assert steps == {"worker-0": 2.0, "worker-1": 2.0}
    assert codes(advise(a_run(tasks(ps=1)), samples, steps)) == []


@pytest.mark.parametrize(("first", "found"), [(0, ["AdviceSlowWorker"]), (24, [])])
def test_a_worker_is_slow_only_after_a_while(first: int, found: list[str]) -> None:
    """Step rates over less than 20 seconds are not compared, because they mostly show how far apart
    the printed steps are.
    """
    samples = {}
    for task, pace in (("worker-0", 10), ("worker-1", 30)):
        (seen,) = attempt(60, cpu=0.8)
        stepped = [
            replace(each, step=pace * n if n > first else 0)
            for n, each in enumerate(seen.intervals, 1)
        ]
        samples[task] = [replace(seen, intervals=tuple(stepped))]
    steps = mean_step_rates(a_run(tasks()), samples, {"worker-0": 300, "worker-1": 900})
    assert codes(advise(a_run(tasks(ps=1)), samples, steps)) == found


def test_a_slow_start_is_no_wait_for_input() -> None:
    """Input is what a program reads after its first step, without the largest sample: TensorFlow's
    own files may be read before that step, or by a late import.
    """

    def sampled(slow_until: int) -> dict[str, list[Attempt]]:
        (starts,), (trains,) = attempt(90, cpu=0.1, read=5e6), attempt(90, cpu=0.1)
        rows = [
            replace(one if n <= slow_until else other, step=0 if n <= slow_until else n)
            for n, (one, other) in enumerate(zip(starts.intervals, trains.intervals, strict=True))
        ]
        worker = replace(starts, intervals=tuple(rows))
        return {"worker-0": [worker], "worker-1": [worker], "ps-0": attempt(90, cpu=0.1)}

    assert codes(advise(a_run(tasks(ps=1)), sampled(45), {})) == ["AdviceInputDisk"]
    assert codes(advise(a_run(tasks(ps=1)), sampled(20), {})) == []
    (trains,) = attempt(60, cpu=0.1)
    rows = [replace(each, read=5e7 if n == 20 else 0.0) for n, each in enumerate(trains.intervals)]
    late = [replace(trains, intervals=tuple(rows))]
    samples = {"worker-0": late, "worker-1": late, "ps-0": attempt(60, cpu=0.1)}
    assert codes(advise(a_run(tasks(ps=1)), samples, {})) == []


def test_what_tasks_send_each_other_is_no_input() -> None:
    """Traffic between the tasks of a run does not count as input, also if the chief has little of
    this traffic.
    """
    samples = {
        "chief-0": attempt(cpu=0.2, sent=5e4),
        "worker-0": attempt(cpu=0.4, received=4.2e7, sent=7e6),
        "worker-1": attempt(cpu=0.4, received=4.2e7, sent=7e6),
        "ps-0": attempt(cpu=0.2, received=1.4e7, sent=8.5e7),
    }
    sizes = ReplicaSet(chief=Replicas(count=1), worker=Replicas(count=2), ps=Replicas(count=1))
    assert codes(advise(a_run(sizes), samples, {}, cores=2)) == []
    # Without `cores`, the tasks ran in pods; with `cores`, they ran on one machine, so their
    # traffic used no network.
    assert codes(advise(a_run(sizes), samples, {})) == ["AdviceServerNetwork"]
    samples["worker-0"] = samples["worker-1"] = attempt(cpu=0.4, received=6.2e7, sent=7e6)
    assert codes(advise(a_run(sizes), samples, {}, cores=2)) == ["AdviceInputNetwork"]
