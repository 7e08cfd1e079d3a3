"""What every backend promises, tried through the `Backend` interface alone.

A new backend joins by a line in `BACKENDS`; nothing else here may have to change for it. Kubernetes
is tried where it is used: tests/kube/test_backend_contract.py runs this file in notebook pods.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import indent

import pytest

from tfcluster_magic.backends.base import Backend, LaunchRequest, LogLine, Removed
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.backends.selection import make
from tfcluster_magic.errors import Conflict, NameTaken, NotFound, PreflightRefused
from tfcluster_magic.kube import account
from tfcluster_magic.models import (
    Lifecycle,
    Phase,
    Program,
    Reason,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
    Stop,
    TFCluster,
)

BACKENDS: dict[str, Callable[[], Backend]] = (
    {"kubernetes": lambda: make("kubernetes", {}, "", "")}
    if account.in_pod()
    else {"local": LocalBackend}
)

TELL = """
import json, os, sys
print(json.dumps({"task": os.environ["TFCLUSTER_TASK"], "tf_config": os.environ["TF_CONFIG"],
                  "arguments": sys.argv[1:], "color": os.environ.get("COLOR"),
                  "output": os.environ["TFCLUSTER_OUTPUT_DIR"]}))
"""
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
WORKERS_END = """
import os, time
if os.environ["TFCLUSTER_TASK_TYPE"] == "ps":
    time.sleep(600)
"""


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, own_folders: Path) -> Iterator[Backend]:
    """A backend with no run and no output of one; what a test leaves is stopped."""
    made = BACKENDS[request.param]()
    for left in Path(made.options().log_dir).glob("*"):
        shutil.rmtree(left)
    yield made
    for run in made.list():
        made.stop(run.metadata.name, Stop(reason="the test is over"))
    for run in made.list():
        until_released(made, run)
        made.delete(run.metadata.name)


@pytest.fixture
def launch(backend: Backend, program_of: Callable[..., Program]) -> Callable[..., TFCluster]:
    """Launches a program's text with so many tasks."""

    def start(
        text: str,
        *arguments: str,
        name: str = "digits",
        given: bool = True,
        env: dict[str, str] | None = None,
        resources: Resources = Resources(),  # noqa: B008 - frozen
        limits: Lifecycle = Lifecycle(grace=1.0),  # noqa: B008 - frozen
        **counts: int,
    ) -> TFCluster:
        replicas = {t: Replicas(count=n, resources=resources) for t, n in counts.items()}
        spec = Spec(
            program=program_of(text, *arguments),
            replicas=ReplicaSet(**replicas),
            env=env or {},
            lifecycle=limits,
        )
        return backend.create(LaunchRequest(cluster=name, spec=spec, name_given=given))

    return start


Launch = Callable[..., TFCluster]


def until(backend: Backend, run: TFCluster, true: Callable[[TFCluster], bool]) -> TFCluster:
    """Watch `run` until something is true of it."""
    for seen in backend.watch(run.metadata.name):
        if seen is not None and true(seen):
            return seen
    raise AssertionError(f"it never came to that: {backend.get(run.metadata.name).status}")


def until_phase(backend: Backend, run: TFCluster, phase: Phase) -> TFCluster:
    """Watch `run` until it is in `phase`."""
    return until(backend, run, lambda seen: seen.status.phase is phase)


def until_released(backend: Backend, run: TFCluster) -> TFCluster:
    """Watch `run` until nothing of it is left."""
    return until(backend, run, lambda seen: seen.status.released_at is not None)


def lines(backend: Backend, ref: str, **which: object) -> list[str]:
    """What the tasks' program printed, without what TFCluster itself had to say."""
    found = backend.logs(ref, **which)  # type: ignore[arg-type]
    return [line.text for line in found if line and not line.text.startswith("tfcluster: ")]


def test_a_launch_is_on_record_at_once(backend: Backend, launch: Launch) -> None:
    """A launch returns with a run that is recorded, named after the cluster, and not over."""
    run = launch(SLEEP, worker=1)
    assert run.metadata.name == "digits-1"
    assert not run.status.phase.is_final
    assert [r.metadata.uid for r in backend.list()] == [run.metadata.uid]
    assert backend.get("digits").metadata == backend.get("digits-1").metadata == run.metadata


def test_success(backend: Backend, launch: Launch) -> None:
    """When every worker has ended well the run succeeded, and its logs and folders are known."""
    run = until_released(backend, launch("print('hello')", worker=2))
    status = run.status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, Reason.COMPLETED)
    assert status.counts["worker"].succeeded == 2
    assert lines(backend, "digits") == ["hello", "hello"]
    assert set(status.paths) == {"output", "logs"}
    assert len(status.addresses["worker"]) == 2
    assert status.started_at <= status.running_at <= status.finished_at <= status.released_at


def test_each_task_knows_who_and_where_it_is(backend: Backend, launch: Launch) -> None:
    """A task gets its name, the cluster's addresses, the arguments, and the user's environment."""
    counts = {"chief": 1, "worker": 1, "evaluator": 1}
    run = launch(TELL, "--epochs", "3", env={"COLOR": "blue"}, **counts)
    run = until_released(backend, run)
    told = {d["task"]: d for d in map(json.loads, lines(backend, "digits"))}
    assert set(told) == {"chief-0", "worker-0", "evaluator-0"}
    for task, said in told.items():
        config = json.loads(said["tf_config"])
        assert f"{config['task']['type']}-{config['task']['index']}" == task
        assert config["cluster"]["worker"] == list(run.status.addresses["worker"])
        assert "evaluator" not in config["cluster"]
        assert said["arguments"] == ["--epochs", "3"]
        assert said["color"] == "blue"
        assert said["output"] == run.status.paths["output"]


def test_a_failing_program_is_named_with_its_last_words(backend: Backend, launch: Launch) -> None:
    """When one task fails the run fails, says which and why, and ends the others."""
    text = """
import os, time
if os.environ["TFCLUSTER_TASK"] == "worker-1":
    raise ValueError("no such layer")
time.sleep(600)
"""
    run = until_released(backend, launch(text, worker=2, ps=1))
    assert (run.status.phase, run.status.reason) == (Phase.FAILED, Reason.PROGRAM_FAILED)
    assert run.status.culprit == "worker-1"
    assert "ValueError: no such layer" in run.status.message
    counts = run.status.counts["worker"]
    assert (counts.failed, counts.stopped) == (1, 1)


def test_a_given_name_in_use_is_refused(backend: Backend, launch: Launch) -> None:
    """A name that the user chose is refused while its run is active; nothing is made."""
    launch(SLEEP, worker=1)
    with pytest.raises(NameTaken, match="digits-1"):
        launch(SLEEP, worker=1)
    assert len(backend.list()) == 1


def test_a_derived_name_in_use_gets_a_letter(backend: Backend, launch: Launch) -> None:
    """A name that nobody chose becomes the next free one."""
    found = [launch(SLEEP, worker=1, given=False).metadata.name for _ in range(3)]
    assert found == ["digits-1", "digits-b-1", "digits-c-1"]


def test_a_second_run_of_an_ended_cluster(backend: Backend, launch: Launch) -> None:
    """A cluster's next launch is its next run, and its bare name means the newest run."""
    until_released(backend, launch("pass", worker=1))
    second = launch("pass", worker=1)
    assert second.metadata.name == "digits-2"
    assert backend.get("digits").metadata.run == 2
    assert [run.metadata.name for run in backend.list()] == ["digits-2", "digits-1"]
    assert backend.get("digits-1").status.phase is Phase.SUCCEEDED
    until_released(backend, second)


def test_stop(backend: Backend, launch: Launch) -> None:
    """A stop ends every task, and the record says who wanted it and why."""
    run = until_phase(backend, launch(SLEEP, worker=2, ps=1), Phase.RUNNING)
    backend.stop("digits", Stop(reason="enough", by="ada"))
    run = until_released(backend, run)
    assert (run.status.phase, run.status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)
    assert "enough" in run.status.message
    assert "ada" in run.status.message
    assert run.spec.stop is not None
    assert run.spec.stop.at > 0


def test_stopping_twice_keeps_the_first_reason(backend: Backend, launch: Launch) -> None:
    """Only the first stop counts, and stopping what is over changes nothing."""
    run = launch(SLEEP, worker=1)
    backend.stop("digits", Stop(reason="first"))
    backend.stop("digits", Stop(reason="second"))
    ended = until_released(backend, run)
    assert ended.spec.stop is not None
    assert ended.spec.stop.reason == "first"
    assert backend.stop("digits", Stop(reason="third")) == ended


def test_a_stop_right_after_the_launch(backend: Backend, launch: Launch) -> None:
    """A stop that comes before anything has started is not lost."""
    run = launch(SLEEP, worker=2)
    backend.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.STOPPED


def test_parameter_servers_are_reclaimed(backend: Backend, launch: Launch) -> None:
    """After the workers' success the parameter servers go, and the record says so."""
    limits = Lifecycle(reclaim_after=0.5, grace=2.0)
    held = Resources(memory="512Mi")
    run = launch(WORKERS_END, worker=1, ps=1, limits=limits, resources=held)
    run = until_phase(backend, run, Phase.SUCCEEDED)
    assert run.status.released_at is None
    run = until_released(backend, run)
    assert run.status.phase is Phase.SUCCEEDED
    assert run.status.reclaimed is not None
    assert run.status.reclaimed.tasks == ("ps-0",)
    assert run.status.reclaimed.memory == 512 * 2**20
    assert run.status.released_at >= run.status.finished_at + 0.5


def test_a_stop_after_success_reclaims_now(backend: Backend, launch: Launch) -> None:
    """Stopping a run that has succeeded reclaims at once, and it stays a success."""
    limits = Lifecycle(reclaim_after=3600.0, grace=2.0)
    run = launch(WORKERS_END, worker=1, ps=1, limits=limits)
    until_phase(backend, run, Phase.SUCCEEDED)
    backend.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.SUCCEEDED


def test_a_task_that_ignores_sigterm_is_killed(backend: Backend, launch: Launch) -> None:
    """A task that does not end within the grace period is ended."""
    text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    run = launch(text, worker=1, limits=Lifecycle(grace=0.3))
    follow = backend.logs("digits", follow=True)
    assert next(line for line in follow if line is not None).text == "up"
    backend.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.STOPPED


def test_a_kill_from_outside_is_healed(backend: Backend, launch: Launch) -> None:
    """A task that was killed is started again without asking, and its log goes on."""
    text = """
import os, signal
print("attempt", os.environ["TFCLUSTER_ATTEMPT"], flush=True)
if os.environ["TFCLUSTER_ATTEMPT"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run = until_released(backend, launch(text, worker=1, ps=0))
    assert run.status.phase is Phase.SUCCEEDED, run.status.message
    assert run.status.heals == 1
    assert any("worker-0 was killed from outside" in e.message for e in run.status.events)
    assert [t for t in lines(backend, "digits") if "attempt" in t] == ["attempt 1", "attempt 2"]


def test_too_little_memory_is_told_as_such(backend: Backend, launch: Launch) -> None:
    """A task above its memory limit is ended, and the message names the limit and what to do."""
    text = "import time\nheld = bytearray(400 << 20)\nheld[::4096] = b'x' * len(held[::4096])\n"
    text = f"import os\nif os.environ['TFCLUSTER_TASK'] == 'worker-0':\n{indent(text, ' ')}{SLEEP}"
    run = launch(text, worker=1, ps=1, resources=Resources(memory="200Mi"))
    run = until_released(backend, run)
    assert (run.status.phase, run.status.reason) == (Phase.FAILED, Reason.OOM_KILLED)
    assert run.status.culprit == "worker-0"
    assert "200Mi" in run.status.message
    assert "--worker-memory 400Mi" in run.status.message


def test_a_server_that_never_opens_its_port(
    backend: Backend, program_of: Callable[..., Program]
) -> None:
    """A run that does not come up in time fails, naming the task that is missing."""
    program = program_of(f"if False:\n    tf.distribute.Server()\n{SLEEP}")
    assert program.serves
    replicas = ReplicaSet(worker=Replicas(count=1), ps=Replicas(count=1))
    limits = Lifecycle(start_timeout=1.5, grace=1.0)
    spec = Spec(program=program, replicas=replicas, lifecycle=limits)
    run = backend.create(LaunchRequest(cluster="digits", spec=spec))
    run = until_released(backend, run)
    assert (run.status.phase, run.status.reason) == (Phase.FAILED, Reason.START_TIMEOUT)
    assert run.status.culprit in {"worker-0", "ps-0"}


def test_a_run_that_takes_too_long(backend: Backend, launch: Launch) -> None:
    """A run ends at its maximal duration, and says that it did."""
    run = launch(SLEEP, worker=1, limits=Lifecycle(max_duration=1.0, grace=1.0))
    run = until_released(backend, run)
    assert (run.status.phase, run.status.reason) == (Phase.FAILED, Reason.MAX_DURATION)


def test_delete(backend: Backend, launch: Launch) -> None:
    """A record is deleted only when its run is over, and its logs only when asked for."""
    run = launch(SLEEP, worker=1)
    with pytest.raises(Conflict, match="tfcluster stop digits-1"):
        backend.delete("digits-1")
    until_phase(backend, run, Phase.RUNNING)
    backend.stop("digits", Stop())
    output = Path(until_released(backend, run).status.paths["output"])
    backend.delete("digits-1")
    assert backend.list() == []
    assert output.is_dir()
    with pytest.raises(NotFound):
        backend.get("digits")

    second = until_released(backend, launch("pass", worker=1))
    assert second.metadata.run == 2, "the logs of run 1 are still there"
    backend.delete("digits", with_logs=True)
    assert not Path(second.status.paths["output"]).exists()


def test_unknown_runs(backend: Backend, launch: Launch) -> None:
    """Every verb refuses a run that is not there, and names those that are close."""
    until_released(backend, launch("pass", worker=1))
    for verb in (
        lambda: backend.get("digit"),
        lambda: backend.stop("digit", Stop()),
        lambda: backend.delete("digit"),
        lambda: list(backend.logs("digit")),
        lambda: list(backend.watch("digit")),
    ):
        with pytest.raises(NotFound, match="did you mean digits"):
            verb()
    with pytest.raises(NotFound, match="digits-1"):
        backend.get("digits-7")
    with pytest.raises(NotFound, match="list` shows"):  # the numbers alone are no likeness
        backend.get("it-1")
    for nonsense in ("", "..", "a/b", "digits-", "Digits", "digits-1-2", "-1"):
        with pytest.raises(NotFound):
            backend.get(nonsense)


def test_logs_of_some_tasks_and_only_the_last_lines(backend: Backend, launch: Launch) -> None:
    """Logs can be had of single tasks and from the end; a task that is not there is refused."""
    text = "import os\nfor i in range(5): print(os.environ['TFCLUSTER_TASK'], i)\n"
    until_released(backend, launch(text, worker=2))
    assert len(lines(backend, "digits")) == 10
    assert lines(backend, "digits", tasks=["worker-1"], tail=2) == ["worker-1 3", "worker-1 4"]
    assert lines(backend, "digits", tail=1) == ["worker-0 4", "worker-1 4"]
    assert lines(backend, "digits", tail=0) == []
    threes = lines(backend, "digits", tail=1, counts=lambda text: text.endswith("3"))
    assert threes == ["worker-0 3", "worker-0 4", "worker-1 3", "worker-1 4"]
    assert len(lines(backend, "digits", tail=100)) == 10
    with pytest.raises(NotFound, match="worker-0, worker-1"):
        next(iter(backend.logs("digits", tasks=["ps-0"])))


def test_logs_are_followed_to_the_end(backend: Backend, launch: Launch) -> None:
    """Following gives each line once and whole, whatever its bytes, then ends with the run; in
    between, while the task is silent, a caller gets the chance to leave.
    """
    text = r"""
import os, sys, time
out = sys.stdout.buffer
for piece in (b"one\nhal", b"f\n", b"\xff\xfe bytes\n"):
    out.write(piece)
    out.flush()
    time.sleep(0.3)
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
    # On a busy machine a name server is slow, which the task says.
    said = [line.text for line in told if not line.text.startswith("tfcluster:")]
    assert said == ["one", "half", "\ufffd\ufffd bytes", "no newline"]
    assert {line.task for line in told} == {"worker-0"}


def test_lines_that_keep_coming_are_told_meanwhile(backend: Backend, launch: Launch) -> None:
    """Also while a task prints all the time a follower hears, again and again, that it has all."""
    launch(
        "import time\nfor i in range(6000):\n    print(i, flush=True)\n    time.sleep(0.02)\n",
        worker=1,
    )
    given, chances = 0, 0  # to leave, each of them after a line and before another
    for before, line in pairwise(backend.logs("digits", follow=True)):
        given += line is not None
        chances += line is None and before is not None
        if chances == 4:
            backend.stop("digits", Stop(reason="enough was seen"))
    assert chances >= 4
    assert given < 6000, "it was told so only at the end"


def test_watching_one_run(backend: Backend, launch: Launch) -> None:
    """Watching tells the run as it is now, then its changes, and ends when it is released."""
    end = """
import os, time
while not os.path.exists(os.environ["TFCLUSTER_OUTPUT_DIR"] + "/end"):
    time.sleep(0.05)
"""
    run = launch(end, worker=1)
    told: list[TFCluster] = []
    for cluster in backend.watch("digits"):
        told += [cluster] if cluster else []
        if cluster is None and told[-1].status.phase is Phase.RUNNING:  # the chance to leave
            Path(told[-1].status.paths["output"], "end").touch()
    assert {cluster.metadata.uid for cluster in told} == {run.metadata.uid}
    phases = list(dict.fromkeys(cluster.status.phase for cluster in told))
    assert phases[-2:] == [Phase.RUNNING, Phase.SUCCEEDED]
    assert told[-1].status.released_at is not None
    again = [cluster for cluster in backend.watch("digits") if cluster is not None]
    assert again == [told[-1]]


def test_watching_all_runs(backend: Backend, launch: Launch) -> None:
    """Watching everything tells of runs that are there and of those that come."""
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
    """A run whose record is deleted is told by its name, once, to whoever watches everything."""
    until_released(backend, launch("pass", worker=1))
    watch = backend.watch()
    assert isinstance(next(watch), TFCluster)
    backend.delete("digits")
    assert next(change for change in watch if change is not None) == Removed("digits-1")
    assert next(watch) is None


def test_watching_ends_with_the_record(backend: Backend, launch: Launch) -> None:
    """A watch of a run that is deleted comes to its end."""
    until_released(backend, launch("pass", worker=1))
    watch = backend.watch("digits")
    assert next(watch) is not None
    backend.delete("digits")
    assert [cluster for cluster in watch if cluster is not None] == []


def test_what_does_not_fit_is_refused_whole(
    backend: Backend, program_of: Callable[..., Program]
) -> None:
    """Preflight and launch refuse the same things with the same words, and nothing is made."""
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
    assert refused.value.problems == verdict.problems
    assert backend.list() == []


def test_warnings_are_kept_with_the_run(
    backend: Backend, program_of: Callable[..., Program]
) -> None:
    """What was warned of at the launch, by the face and by the backend, stays in the record."""
    cpu = Resources(cpu=backend.options().cpu.total + 1)
    spec = Spec(
        program=program_of("pass"), replicas=ReplicaSet(worker=Replicas(count=1, resources=cpu))
    )
    verdict = backend.preflight(spec)
    told = [*verdict.warnings, *(problem.allowed for problem in verdict.problems)]
    assert any("CPU" in text or "cpu" in text for text in told)
    if verdict.problems:  # cores are not shared here, so that is more than a warning
        spec = Spec(program=spec.program)
    request = LaunchRequest(cluster="digits", spec=spec, warnings=("from the face",))
    run = until_released(backend, backend.create(request))
    assert run.status.warnings == ("from the face", *backend.preflight(spec).warnings)


def test_options_say_what_there_is(
    backend: Backend, launch: Launch, wait_for: Callable[..., None]
) -> None:
    """What a running cluster may use is soon not offered to the next one."""
    before = backend.options()
    assert before.cpu.total > 0
    assert 0 < before.memory.free <= before.memory.total
    launch(SLEEP, worker=2, resources=Resources(cpu=0.5, memory="1Gi"))
    about_one = pytest.approx(1.0, abs=0.2)  # where many ask, what is free is told in steps
    wait_for(lambda: before.cpu.free - backend.options().cpu.free == about_one, "less CPU is free")
    assert backend.options().memory.free <= before.memory.total - 2 * 2**30


def test_answers_come_from_the_record(backend: Backend, launch: Launch) -> None:
    """Another backend object, as after a restart of the kernel, knows everything and can act."""
    run = until_phase(backend, launch(SLEEP, worker=1), Phase.RUNNING)
    other = type(backend)()
    assert other.get("digits").metadata == run.metadata
    other.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.STOPPED
