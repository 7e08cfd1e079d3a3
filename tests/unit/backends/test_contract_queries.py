"""The contract of every backend about queries: logs, changes, options. All answers come from stored
records, so that a backend object in a new process gives the same answers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.backend_contract import (
    SLEEP,
    Launch,
    backend,
    launch,
    lines,
    until_phase,
    until_released,
)
from support.polling import wait_until

from tfcluster_magic.backends.base import Backend, LogLine, Removed
from tfcluster_magic.errors import NotFound, PreflightRefused, Problem
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import (
    Message,
    Phase,
    Program,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Stop,
    TaskState,
    TFCluster,
)

__all__ = ["backend", "launch"]  # fixtures of another module


def test_unknown_runs(backend: Backend, launch: Launch) -> None:
    """Every verb refuses an unknown run, and names similar runs."""
    run = until_released(backend, launch("pass", worker=1))
    for verb in (
        lambda: backend.get("digit"),
        lambda: backend.stop("digit", Stop()),
        lambda: backend.delete("digit"),
        lambda: list(backend.logs("digit")),
        lambda: list(backend.watch("digit")),
    ):
        with pytest.raises(NotFound, match="did you mean digits"):
            verb()
    with pytest.raises(NotFound, match=run.metadata.name):
        backend.get(f"digits-{run.metadata.run + 6}")
    # no suggestion: only the number is similar
    with pytest.raises(NotFound, match="list --all` shows"):
        backend.get("it-1")
    backend.annotate(run.metadata.name, lambda now: replace(now, display_name="Tom's best run"))
    with pytest.raises(NotFound, match=f"did you mean {run.metadata.name}"):
        backend.get("Tom's best run")
    for nonsense in ("", "..", "a/b", "digits-", "Digits", "digits-1-2", "-1"):
        with pytest.raises(NotFound):
            backend.get(nonsense)


def test_each_task_is_seen_where_it_is_and_with_its_last_line(
    backend: Backend, launch: Launch
) -> None:
    """Each task has its machine, the time of its state and its last lines, which remain after the
    run's end.
    """
    text = """
import os, time
print("first", flush=True)
print("last of", os.environ["TFCLUSTER_TASK"], flush=True)
time.sleep(600)
"""
    before = time.time()
    run = until_phase(backend, launch(text, worker=2, ps=1), Phase.RUNNING)

    def seen_up() -> bool:
        found = backend.observe_tasks(run)
        return all(each.line is not None and "last of" in each.line.text for each in found)

    wait_until(seen_up, lambda: f"all lines are there: {backend.observe_tasks(run)}")
    names = ["worker-0", "worker-1", "ps-0"]
    seen = backend.observe_tasks(run)
    assert [each.name for each in seen] == names
    for each in seen:
        assert each.node
        assert each.since is not None
        assert before - 5 < each.since < time.time() + 5
        assert each.line is not None
        assert each.line.text == f"last of {each.name}"
    backend.stop("digits", Stop())
    ended = until_released(backend, run)
    left = backend.observe_tasks(ended, lambda texts: [text == "first" for text in texts])
    assert [(each.name, each.line and each.line.text) for each in left] == [
        (name, "first") for name in names
    ]
    assert TaskState.RUNNING not in [each.state for each in left]


def test_logs_of_some_tasks_and_only_the_last_lines(backend: Backend, launch: Launch) -> None:
    """A reader can request the logs of single tasks, and only the last lines; an unknown task is
    refused.
    """
    text = "import os\nfor i in range(5): print(os.environ['TFCLUSTER_TASK'], i)\n"
    until_released(backend, launch(text, worker=2))
    assert len(lines(backend, "digits")) == 10
    assert lines(backend, "digits", tasks=["worker-1"], tail=2) == ["worker-1 3", "worker-1 4"]
    assert sorted(lines(backend, "digits", tail=1)) == ["worker-0 4", "worker-1 4"]
    assert lines(backend, "digits", tail=0) == []
    threes = lines(backend, "digits", tail=1, counts=lambda texts: [t.endswith("3") for t in texts])
    assert sorted(threes) == ["worker-0 3", "worker-0 4", "worker-1 3", "worker-1 4"]
    assert len(lines(backend, "digits", tail=100)) == 10
    with pytest.raises(NotFound, match="worker-0, worker-1"):
        next(iter(backend.logs("digits", tasks=["ps-0"])))


def test_logs_are_followed_to_the_end(backend: Backend, launch: Launch) -> None:
    """Following returns each line once and completely, whatever its bytes, then ends with the run;
    while the task is silent, the caller can stop following.
    """
    text = r"""
import os, sys, time
out = sys.stdout.buffer
for piece in (b"one\nhal", b"f\n", b"\xff\xfe bytes\n"):
    out.write(piece)
    out.flush()
    time.sleep(0.3)  # so that each piece is read alone
while not os.path.exists(os.environ["TFCLUSTER_OUTPUT_DIR"] + "/end"):
    time.sleep(0.05)
out.write(b"no newline")
"""
    launch(text, worker=1)
    told: list[LogLine] = []
    for line in backend.logs("digits", follow=True):
        told += [line] if line else []
        if line is None and told and told[-1].text == "\ufffd\ufffd bytes":
            Path(backend.get("digits").status.paths["output"], "end").touch()
    # On a busy machine, the task also prints that a name server is slow.
    said = [line.text for line in told if not line.text.startswith("tfcluster:")]
    assert said == ["one", "half", "\ufffd\ufffd bytes", "no newline"]
    assert {line.task for line in told} == {"worker-0"}


def test_lines_that_keep_coming_are_told_meanwhile(backend: Backend, launch: Launch) -> None:
    """While a task prints all the time, a follower also gets `None` repeatedly, so that it can stop
    following.
    """
    launch(
        "import time\nfor i in range(6000):\n    print(i, flush=True)\n    time.sleep(0.02)\n",
        worker=1,
    )
    given, chances = 0, 0  # `chances` counts each `None` that follows a line
    for before, line in pairwise(backend.logs("digits", follow=True)):
        given += line is not None
        chances += line is None and before is not None
        if chances == 4:
            backend.stop("digits", Stop(reason="enough was seen"))
    assert chances >= 4
    assert given < 6000, "it was told so only at the end"


def test_watching_one_run(backend: Backend, launch: Launch) -> None:
    """A watch reports the current run, then its changes, and ends when the run has released
    everything.
    """
    end = """
import os, time
while not os.path.exists(os.environ["TFCLUSTER_OUTPUT_DIR"] + "/end"):
    time.sleep(0.05)
"""
    run = launch(end, worker=1)
    told: list[TFCluster] = []
    for cluster in backend.watch("digits"):
        told += [cluster] if cluster else []
        # this `None` lets the caller stop watching
        if cluster is None and told[-1].status.phase is Phase.RUNNING:
            Path(told[-1].status.paths["output"], "end").touch()
    assert {cluster.metadata.uid for cluster in told} == {run.metadata.uid}
    phases = list(dict.fromkeys(cluster.status.phase for cluster in told))
    assert phases[-2:] == [Phase.RUNNING, Phase.SUCCEEDED]
    assert told[-1].status.released_at is not None
    again = [cluster for cluster in backend.watch("digits") if cluster is not None]
    assert again == [told[-1]]


def test_watching_all_runs(backend: Backend, launch: Launch) -> None:
    """A watch of all runs reports existing runs and new runs."""
    first = until_released(backend, launch("pass", worker=1))
    watch = backend.watch()
    assert next(watch) == first
    assert next(watch) is None
    second = launch("pass", worker=1, name="other")
    told = next(cluster for cluster in watch if cluster is not None)
    assert isinstance(told, TFCluster)
    assert told.metadata == second.metadata
    until_released(backend, second)


def test_watching_all_runs_tells_of_those_that_are_removed(
    backend: Backend, launch: Launch
) -> None:
    """A deleted run is reported by its name, once, to watches of all runs."""
    run = until_released(backend, launch("pass", worker=1))
    watch = backend.watch()
    assert isinstance(next(watch), TFCluster)
    backend.delete("digits")
    assert next(change for change in watch if change is not None) == Removed(run.metadata.name)
    assert next(watch) is None


def test_watching_ends_with_the_record(backend: Backend, launch: Launch) -> None:
    """A watch of a run ends when the run is deleted."""
    until_released(backend, launch("pass", worker=1))
    watch = backend.watch("digits")
    assert next(watch) is not None
    backend.delete("digits")
    assert [cluster for cluster in watch if cluster is not None] == []


def test_what_does_not_fit_is_refused_whole(
    backend: Backend, program_of: Callable[..., Program]
) -> None:
    """Preflight and launch refuse a launch with the same message, and nothing is created."""
    there = backend.options()
    too_much = Resources(memory=f"{int(there.memory.total) + 2**30}")
    spec = Spec(
        program=program_of("pass"),
        replicas=ReplicaSet(worker=Replicas(count=there.max_tasks + 1, resources=too_much)),
    )
    verdict = backend.preflight(spec)
    assert len(verdict.problems) >= 2, "every problem is told at once"
    with pytest.raises(PreflightRefused) as refused:
        backend.create(LaunchRequest(cluster="digits", spec=spec))
    assert [_lasting(each) for each in refused.value.problems] == [
        _lasting(each) for each in verdict.problems
    ]
    assert backend.list() == []


def _lasting(problem: Problem) -> tuple[object, ...]:
    """Return what identifies a problem, without the amount that is free just now."""
    allowed = re.sub(r"and \S+ of (\S+) is free", r"and some of \1 is free", str(problem.allowed))
    return str(problem.field), problem.value, allowed


def test_warnings_are_kept_with_the_run(
    backend: Backend, program_of: Callable[..., Program]
) -> None:
    """Warnings and inferred facts of the launch stay in the record."""
    cpu = Resources(cpu=backend.options().cpu.total + 1)
    spec = Spec(
        program=program_of("pass"), replicas=ReplicaSet(worker=Replicas(count=1, resources=cpu))
    )
    verdict = backend.preflight(spec)
    told = [*verdict.warnings, *(str(problem.allowed) for problem in verdict.problems)]
    assert any("CPU" in text or "cpu" in text for text in told)
    # where cores are not shared, the launch would be refused, not only warned about
    if verdict.problems:
        spec = Spec(program=spec.program)
    inferred = (Message("InferredChief", {"why": Message("UsesName", {"line": 1})}),)
    request = LaunchRequest(
        cluster="digits", spec=spec, warnings=("from the face",), inferred=inferred
    )
    run = until_released(backend, backend.create(request))
    assert run.status.warnings == ("from the face", *backend.preflight(spec).warnings)
    assert run.status.inferred == backend.get(run.metadata.name).status.inferred == inferred


def test_options_say_what_there_is(
    backend: Backend, launch: Launch, wait_for: Callable[..., None]
) -> None:
    """Soon after a launch, the free amounts in the options no longer contain the resources that the
    cluster requested.
    """
    before = backend.options()
    assert before.cpu.total > 0
    assert 0 < before.memory.free <= before.memory.total
    launch(SLEEP, worker=2, resources=Resources(cpu=0.5, memory="1Gi"))
    about_one = pytest.approx(1.0, abs=0.2)  # with many users, a backend rounds the free amounts
    wait_for(lambda: before.cpu.free - backend.options().cpu.free == about_one, "less CPU is free")
    assert backend.options().memory.free <= before.memory.total - 2 * 2**30


def test_answers_come_from_the_record(backend: Backend, launch: Launch) -> None:
    """A new backend object, as after a kernel restart, finds the runs of the old one, and can stop
    them.
    """
    run = until_phase(backend, launch(SLEEP, worker=1), Phase.RUNNING)
    other = type(backend)()
    assert other.get("digits").metadata == run.metadata
    other.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.STOPPED
