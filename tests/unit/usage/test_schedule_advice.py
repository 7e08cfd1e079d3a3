"""Advice for the next runs of a schedule, from the reported usage of earlier runs, which a program
may have forged.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfcluster_magic.schedules import (
    Occurrence,
    OccurrenceState,
    ScheduleRules,
    ScheduleStatus,
)
from tfcluster_magic.schedules.due import run_to_judge
from tfcluster_magic.spec import (
    AdvisedOption,
    Message,
    Metadata,
    Phase,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    ScheduledRun,
    Spec,
    Status,
    TFCluster,
)
from tfcluster_magic.spec.quantities import parse_memory
from tfcluster_magic.usage.samples import Attempt, parse
from tfcluster_magic.usage.schedule_advice import changes, in_force, judge, refusal, with_advice

MIB = 16
"""One MiB in the unit of a sample file, 64 KiB."""
NOTHING = ScheduleStatus(cursor=0.0)


def spec_of(workers: int = 1, ps: int = 0, **resources: Any) -> Spec:
    each = Resources(**resources)
    return Spec(
        replicas=ReplicaSet(
            worker=Replicas(count=workers, resources=each), ps=Replicas(count=ps, resources=each)
        )
    )


def run_of(
    spec: Spec,
    number: int = 1,
    phase: Phase = Phase.SUCCEEDED,
    reason: Reason = Reason.COMPLETED,
    advised: tuple[AdvisedOption, ...] = (),
    culprit: str | None = None,
) -> TFCluster:
    scheduled = ScheduledRun(schedule="nightly", uid="s", due=1.8e9, advised=advised)
    return TFCluster(
        metadata=Metadata(
            name=f"nightly-{number}",
            cluster="nightly",
            run=number,
            uid="u",
            created_at=1.8e9,
            scheduled=scheduled,
        ),
        spec=spec,
        status=Status(phase=phase, reason=reason, culprit=culprit),
    )


def used(
    *tasks: str, memory: int = 100, cpu: int = 50, throttled: int = 0, seconds: int = 60
) -> dict[str, list[Attempt]]:
    """Return samples of these tasks, with `memory` in MiB and `cpu` in 0.01 s per second."""
    row = f"[20,{2 * cpu},{memory * MIB},0,0,0,0,{2 * throttled}]\n"
    text = '{"v":1,"at":1800000000,"attempt":1}\n' + row * (seconds // 2)
    return {task: parse(text.encode()) for task in tasks}


def options(advised: tuple[AdvisedOption, ...]) -> dict[str, str]:
    return {each.option: each.value for each in advised}


def judged(spec: Spec, samples: dict[str, list[Attempt]], **words: Any) -> ScheduleStatus:
    return judge(NOTHING, "nightly-1", run_of(spec, **words), samples)


@pytest.mark.parametrize(
    ("memory", "peak", "value"),
    [("8Gi", 100, "4Gi"), ("8Gi", 2150, "4352Mi"), ("1Gi", 1000, "1536Mi"), ("8Gi", 4000, None)],
)
def test_memory_follows_the_peak_within_a_factor_of_two(
    memory: str, peak: int, value: str | None
) -> None:
    """A schedule gets the memory limit that `top` advises, but never less than half or more than
    double its own value. A limit that fits is not changed.
    """
    spec = spec_of(memory=memory)
    status = judged(spec, used("worker-0", memory=peak))
    assert options(status.advised) == ({} if value is None else {"worker_memory": value})
    assert status.judged == "nightly-1"
    for each in status.advised:
        assert (each.own, each.run) == (memory, "nightly-1")
        assert "worker-0" in str(each.why)
    changed = with_advice(spec, in_force(spec, status.advised))
    assert changed.replicas.worker.resources.memory == (value or memory)


def test_advice_on_a_changed_run_is_bounded_by_the_schedule() -> None:
    """The bound is computed from the schedule's own value, however many runs have raised the
    value.
    """
    spec, status = spec_of(memory="1Gi"), NOTHING
    for number in range(1, 5):
        advised = in_force(spec, status.advised)
        changed = with_advice(spec, advised)
        limit = parse_memory(changed.replicas.worker.resources.memory or "") >> 20
        run = run_of(changed, number, advised=advised)
        samples = used("worker-0", memory=limit)
        status = judge(status, run.metadata.name, run, samples)
    assert options(status.advised) == {"worker_memory": "2Gi"}
    (kept,) = status.advised
    assert (kept.own, kept.run) == ("1Gi", "nightly-2")


def test_a_change_stays_while_later_runs_show_nothing_new() -> None:
    """A change that was advised after one run applies to all later runs, until the usage of a later
    run leads to other advice.
    """
    spec = spec_of(memory="8Gi")
    first = judged(spec, used("worker-0", memory=100))
    changed = with_advice(spec, first.advised)
    run = run_of(changed, 2, advised=first.advised)
    second = judge(first, "nightly-2", run, used("worker-0", memory=2000))
    assert second.advised == first.advised
    assert second.judged == "nightly-2"
    third = judge(second, "nightly-3", run_of(changed, 3, advised=first.advised), {})
    assert third.advised == first.advised
    full = used("worker-0", memory=4090)
    more = judge(second, "nightly-4", run_of(changed, 4, advised=first.advised), full)
    assert options(more.advised) == {"worker_memory": "6Gi"}
    assert more.advised[0].own == "8Gi"
    assert judge(first, "nightly-5", None, {}).advised == first.advised


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.STOPPED])
def test_a_run_without_success_advises_only_on_memory_that_ran_out(phase: Phase) -> None:
    """If a run failed or was stopped, low figures do not count, but memory that was nearly used up
    does.
    """
    spec = spec_of(cpu=1.0, memory="8Gi")
    end = {"phase": phase, "reason": Reason.PROGRAM_FAILED}
    idle = used("worker-0", memory=100, throttled=80)
    assert judged(spec, idle).advised
    assert judged(spec, idle, **end).advised == ()
    full = used("worker-0", memory=8000, throttled=80)
    assert options(judged(spec, full, **end).advised) == {"worker_memory": "12Gi"}


def test_a_task_that_ran_out_of_memory_gets_more() -> None:
    """The end of a run shows that a task ran out of memory, even if no sample does. The next run
    gets half as much again, at most double the schedule's value.
    """
    end = {"phase": Phase.FAILED, "reason": Reason.OOM_KILLED, "culprit": "worker-0"}
    status = judged(spec_of(memory="1Gi"), {}, **end)
    assert options(status.advised) == {"worker_memory": "1536Mi"}
    assert "ran out of memory at its limit of 1Gi" in str(status.advised[0].why)
    assert judged(spec_of(), {}, **end).advised == ()


def test_cpu_and_parameter_servers_grow_within_the_bounds() -> None:
    """CPU limits and numbers of tasks are raised as `top` advises, at most doubled."""
    spec = spec_of(cpu=1.0)
    assert options(judged(spec, used("worker-0", cpu=90, throttled=40)).advised) == {
        "worker_cpu": "1.7"
    }
    assert options(judged(spec, used("worker-0", cpu=90, throttled=95)).advised) == {
        "worker_cpu": "2"
    }
    samples = used("worker-0", "worker-1", cpu=20) | used("ps-0", cpu=95)
    status = judged(spec_of(workers=2, ps=1), samples)
    assert options(status.advised) == {"ps": "2"}
    assert with_advice(spec_of(workers=2, ps=1), status.advised).replicas.ps.count == 2


def test_idle_gpus_are_halved_and_never_taken_away() -> None:
    """Advice to use no GPU halves the number of GPUs; the last GPU stays."""
    idle = used("worker-0", cpu=50)
    for own, value in ((4, {"worker_gpu": "2"}), (3, {"worker_gpu": "2"}), (1, {})):
        assert options(judged(spec_of(gpu=own), idle).advised) == value


def test_what_the_schedule_does_not_set_is_not_changed() -> None:
    """If the schedule does not set an option, there is no value to bound a change, so the option
    stays unset.
    """
    text = '{"v":1,"at":1800000000,"attempt":1,"cpu":1,"memory":1073741824}\n'
    text += f"[20,190,{1020 * MIB},0,0,0,0,150]\n" * 30
    assert judged(spec_of(), {"worker-0": parse(text.encode())}).advised == ()


def test_lower_memory_needs_the_figures_of_every_task() -> None:
    """If one of two workers was not sampled, less memory is not advised, because this worker may
    need more than the other.
    """
    spec = spec_of(workers=2, memory="8Gi")
    assert judged(spec, used("worker-0")).advised == ()
    assert judged(spec, used("worker-0") | used("worker-1", memory=0)).advised == ()
    assert options(judged(spec, used("worker-0", "worker-1")).advised) == {"worker_memory": "4Gi"}


def test_an_update_of_the_schedule_ends_the_advice_on_what_it_changed() -> None:
    """Advice on an option applies only as long as the schedule still sets the value for which it
    was computed.
    """
    spec = spec_of(cpu=1.0, memory="8Gi")
    status = judged(spec, used("worker-0", cpu=90, throttled=40))
    assert options(status.advised) == {"worker_cpu": "1.7", "worker_memory": "4Gi"}
    assert options(in_force(spec_of(cpu=1.0, memory="16Gi"), status.advised)) == {
        "worker_cpu": "1.7"
    }
    assert in_force(spec_of(), status.advised) == ()


def test_the_newest_ended_run_is_looked_at_once() -> None:
    """The newest run that has ended is examined, once. This may be a failed attempt that is being
    retried, but not an active run or a run whose end is unknown. If the schedule takes no advice,
    no run is examined.
    """
    rules = ScheduleRules(cron="@daily", advised=True)

    def status(**words: Any) -> ScheduleStatus:
        return replace(NOTHING, occurrences=(Occurrence(due=1.0, **words),))

    ended = status(run="nightly-3", state=OccurrenceState.SUCCEEDED)
    assert run_to_judge(rules, ended) == "nightly-3"
    assert run_to_judge(rules, replace(ended, judged="nightly-3")) == ""
    assert run_to_judge(rules, replace(ended, judged="nightly-10")) == ""
    assert run_to_judge(replace(rules, advised=False), ended) == ""
    going = status(run="nightly-3", state=OccurrenceState.RUNNING, earlier=("nightly-2",))
    assert run_to_judge(rules, going) == "nightly-2"
    assert run_to_judge(rules, status(run="n-3", state=OccurrenceState.UNKNOWN)) == ""


def test_what_advice_changes_is_said() -> None:
    """One sentence says what was changed because of which runs, or why nothing was changed."""
    advised = judged(spec_of(memory="8Gi"), used("worker-0")).advised
    assert str(changes(advised)) == (
        "Launched with --worker-memory 8Gi → 4Gi, advised by the usage of nightly-1."
    )
    told = str(refusal(advised, Message("NoNodeTakesTasks")))
    assert told.startswith("Launched without the advised --worker-memory 8Gi → 4Gi")
    assert "no node takes tasks" in told


FORGED = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.one_of(
            st.just('{"v":1,"at":1800000000}'),
            st.builds(
                '{{"v":1,"at":{},"cpu":{},"memory":{}}}'.format,
                st.integers(-1, 1 << 60),
                st.floats(allow_nan=False),
                st.integers(-1, 1 << 70),
            ),
            st.lists(st.integers(-1, 1 << 54), max_size=13).map(str),
            st.lists(st.sampled_from([0, 1, 20, 1 << 53]), min_size=8, max_size=12).map(str),
        ),
        max_size=40,
    ).map(lambda lines: "\n".join([*lines, ""])),
)


@given(
    texts=st.dictionaries(st.sampled_from(["worker-0", "worker-1", "ps-0"]), FORGED),
    phase=st.sampled_from([Phase.SUCCEEDED, Phase.FAILED]),
    forged=st.lists(
        st.builds(
            AdvisedOption,
            option=st.sampled_from(["worker_memory", "workers", "worker_cpu", "env", "x", "mode"]),
            own=st.sampled_from(["1Gi", "2", "1", "", "inf", "nan"]),
            value=st.one_of(st.text(max_size=8), st.sampled_from(["999", "4Ti", "inf", "1"])),
            run=st.just("nightly-0"),
            why=st.just(Message("None")),
        ),
        max_size=3,
    ),
)
def test_forged_reports_change_nothing_beyond_the_bounds(
    texts: dict[str, str], phase: Phase, forged: list[AdvisedOption]
) -> None:
    """Whatever a program reports, or writes into the annotation of its run, only numbers of tasks
    and their resources change, within a factor of two.
    """
    spec = spec_of(workers=2, ps=1, cpu=1.0, memory="1Gi", gpu=2)
    run = run_of(spec, phase=phase, advised=tuple(forged))
    samples = {task: found for task, text in texts.items() if (found := parse(text.encode()))}
    status = judge(replace(NOTHING, advised=tuple(forged)), "nightly-1", run, samples)
    changed = with_advice(spec, in_force(spec, status.advised))
    assert replace(changed, replicas=spec.replicas) == spec
    for own, new in (
        (spec.replicas.worker, changed.replicas.worker),
        (spec.replicas.ps, changed.replicas.ps),
    ):
        assert own.count / 2 <= new.count <= 2 * own.count
        assert 0.5 <= (new.resources.cpu or 0) <= 2
        assert 1 << 29 <= parse_memory(new.resources.memory or "0") <= 1 << 31
        assert 1 <= new.resources.gpu <= 4
    assert changed.replicas.chief == spec.replicas.chief
