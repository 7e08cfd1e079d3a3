"""The contract of every backend about runs, tested only through the `Backend` interface.

For the Kubernetes backend, tests/kube/test_backend_contract.py runs all files `test_contract*.py`
in notebook pods.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import indent

import pytest
from msgspec.structs import asdict, replace
from support.backend_contract import (
    SLEEP,
    Launch,
    backend,
    launch,
    lines,
    until,
    until_phase,
    until_released,
)

from tfcluster_magic.backends.base import Backend
from tfcluster_magic.errors import Conflict, NameTaken, NotFound
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.spec import (
    Annotations,
    Dependency,
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

__all__ = ["backend", "launch"]  # fixtures of another module

TELL = """
import json, os, sys
print(json.dumps({"task": os.environ["TFCLUSTER_TASK"], "tf_config": os.environ["TF_CONFIG"],
                  "arguments": sys.argv[1:], "color": os.environ.get("COLOR"),
                  "output": os.environ["TFCLUSTER_OUTPUT_DIR"]}))
"""
WORKERS_END = """
import os, time
if os.environ["TFCLUSTER_TASK_TYPE"] == "ps":
    time.sleep(600)
"""


def test_a_launch_is_on_record_at_once(backend: Backend, launch: Launch) -> None:
    """A launch returns a run that is recorded, named after the cluster, and active."""
    run = launch(SLEEP, worker=1)
    assert run.metadata.name == f"digits-{run.metadata.run}"
    assert not run.status.phase.is_final
    assert [r.metadata.uid for r in backend.list()] == [run.metadata.uid]
    assert backend.get("digits").metadata == run.metadata
    assert backend.get(run.metadata.name).metadata == run.metadata


def test_success(backend: Backend, launch: Launch) -> None:
    """If every worker has succeeded, the run has succeeded, and its logs and folders are known."""
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
        assert ("evaluator" in config["cluster"]) is (task == "evaluator-0")
        assert said["arguments"] == ["--epochs", "3"]
        assert said["color"] == "blue"
        assert said["output"] == run.status.paths["output"]


def test_a_failing_program_is_named_with_its_last_words(backend: Backend, launch: Launch) -> None:
    """If one task fails, the run fails and its other tasks end; the message names the task and the
    reason.
    """
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


def test_a_success_tells_of_a_thread_that_died(backend: Backend, launch: Launch) -> None:
    """If a thread of the program dies but the program succeeds, the run succeeds with a warning,
    which names the error and the line of the program.
    """
    text = """
import threading
reader = threading.Thread(target=lambda: 1 / 0)
reader.start()
reader.join()
"""
    status = until_released(backend, launch(text, worker=1)).status
    assert (status.phase, status.reason) == (Phase.SUCCEEDED, Reason.COMPLETED)
    (warning,) = [words for words in status.warnings if "thread" in words]
    assert "worker-0 finished although one of its threads" in warning
    assert "ZeroDivisionError: division by zero" in warning
    assert "line 3" in warning


def test_a_run_starts_after_another(backend: Backend, launch: Launch) -> None:
    """A run waits without any task while the awaited run is active. If the awaited run succeeds,
    the waiting run starts; otherwise, it fails with this reason.
    """
    waits = "import os, time\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.1)\n"
    go = Path(backend.options().log_dir) / "go"
    first = launch(waits, name="prepare", worker=1, env={"GO": str(go)})
    until_phase(backend, first, Phase.RUNNING)
    after = (Dependency(run=first.metadata.name),)
    second = launch("print('after')", worker=1, after=after)
    for seen in (second, backend.get(second.metadata.name)):
        assert seen.status.message == f"Waiting for {first.metadata.name} to succeed."
    third = launch("pass", name="needs", worker=1, after=(Dependency(run=second.metadata.name),))
    last = launch("pass", name="last", worker=1, after=(Dependency(run=third.metadata.name),))
    told = until(backend, second, lambda run: "prepare-" in run.status.message).status
    assert told.message == f"Waiting for {first.metadata.name} to succeed."
    assert (told.phase, told.reason, told.counts["worker"].desired) == (
        Phase.QUEUED,
        Reason.QUEUED,
        1,
    )
    assert backend.stop(third.metadata.name, Stop(by="ida")).spec.stop is not None
    assert until_released(backend, third).status.phase is Phase.STOPPED
    ended = until_released(backend, last).status
    assert (ended.phase, ended.reason) == (Phase.FAILED, Reason.DEPENDENCY_FAILED)
    assert f"{third.metadata.name} was stopped" in ended.message
    go.touch()
    done = until_released(backend, second).status
    assert done.phase is Phase.SUCCEEDED
    assert done.started_at >= until_released(backend, first).status.finished_at
    assert lines(backend, "digits") == ["after"]
    go.unlink()


def test_a_given_name_in_use_is_refused(backend: Backend, launch: Launch) -> None:
    """A given name is refused while a run with this name is active; nothing is created."""
    run = launch(SLEEP, worker=1)
    with pytest.raises(NameTaken, match=run.metadata.name):
        launch(SLEEP, worker=1)
    assert len(backend.list()) == 1


def test_a_derived_name_in_use_gets_a_letter(backend: Backend, launch: Launch) -> None:
    """If a derived name is in use, the launch takes the next free name."""
    found = [launch(SLEEP, worker=1, given=False).metadata.cluster for _ in range(3)]
    assert found == ["digits", "digits-b", "digits-c"]


def test_a_second_run_of_an_ended_cluster(backend: Backend, launch: Launch) -> None:
    """A cluster's next launch is its next run, and its bare name means the newest run."""
    first = until_released(backend, launch("pass", worker=1)).metadata
    second = launch("pass", worker=1)
    assert second.metadata.run == first.run + 1
    assert backend.get("digits").metadata == second.metadata
    assert [run.metadata.name for run in backend.list()] == [second.metadata.name, first.name]
    assert backend.get(first.name).status.phase is Phase.SUCCEEDED
    until_released(backend, second)


def test_stop(backend: Backend, launch: Launch) -> None:
    """A stop ends every task, and the record has the user and the reason."""
    run = until_phase(backend, launch(SLEEP, worker=2, ps=1), Phase.RUNNING)
    backend.stop("digits", Stop(reason="enough", by="ada"))
    run = until_released(backend, run)
    assert (run.status.phase, run.status.reason) == (Phase.STOPPED, Reason.STOP_REQUESTED)
    assert "enough" in run.status.message
    assert "ada" in run.status.message
    assert run.spec.stop is not None
    assert run.spec.stop.at > 0


def test_stopping_twice_keeps_the_first_reason(backend: Backend, launch: Launch) -> None:
    """Only the first stop counts, and stopping an ended run changes nothing."""
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


def test_annotations_are_told_to_whoever_watches(backend: Backend, launch: Launch) -> None:
    """Setting a note, a display name or tags changes nothing else, in any phase. All watches report
    the change, and empty values are removed.
    """
    run = until_phase(backend, launch(SLEEP, worker=1), Phase.RUNNING)
    watched = backend.watch()
    assert any(seen and isinstance(seen, TFCluster) for seen in watched)
    wish = Annotations("rate 0.1, “größer”", "Größer <b>", ("baseline", "学习率"))
    assert backend.annotate("digits", lambda _now: wish).metadata.annotations == wish
    noted = next(c for c in watched if isinstance(c, TFCluster) and c.metadata.note)
    assert noted.metadata == replace(run.metadata, **asdict(wish))
    assert noted.spec == run.spec
    backend.stop("digits", Stop())
    ended = until_released(backend, run)
    assert ended.metadata.annotations == wish
    renamed = backend.annotate(
        run.metadata.name, lambda now: replace(now, display_name="", note="")
    )
    assert renamed.metadata.annotations == Annotations(tags=wish.tags)
    backend.annotate(run.metadata.name, lambda _now: Annotations())
    assert [c.metadata for c in backend.list()] == [run.metadata]
    with pytest.raises(NotFound):
        backend.annotate("mnist", lambda _now: wish)


def test_of_two_annotations_at_once_none_is_lost(backend: Backend, launch: Launch) -> None:
    """A tag is added to the current tags, not to the tags that the client read before."""
    run = until_phase(backend, launch(SLEEP, worker=1), Phase.RUNNING)

    def add(tag: str) -> None:
        backend.annotate(run.metadata.name, lambda now: replace(now, tags=(*now.tags, tag)))

    names = [f"tag-{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, names))
    assert sorted(backend.get(run.metadata.name).metadata.tags) == names


def test_parameter_servers_are_reclaimed(backend: Backend, launch: Launch) -> None:
    """After the workers' success, the parameter servers are reclaimed, and the record says so."""
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
    """Stopping a run that has succeeded reclaims its parameter servers at once, and the run remains
    a success.
    """
    limits = Lifecycle(reclaim_after=3600.0, grace=2.0)
    run = launch(WORKERS_END, worker=1, ps=1, limits=limits)
    until_phase(backend, run, Phase.SUCCEEDED)
    backend.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.SUCCEEDED


def test_a_task_that_ignores_sigterm_is_killed(backend: Backend, launch: Launch) -> None:
    """A task that does not end within the grace period is killed."""
    text = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    run = launch(text, worker=1, limits=Lifecycle(grace=0.3))
    follow = backend.logs("digits", follow=True)
    assert any(line is not None and line.text == "up" for line in follow)
    backend.stop("digits", Stop())
    assert until_released(backend, run).status.phase is Phase.STOPPED


def test_a_kill_from_outside_is_healed(backend: Backend, launch: Launch) -> None:
    """A task that was killed is restarted automatically, and its log continues."""
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
    """A run that does not start in time fails, and its message names the missing task."""
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
    """A run ends at its maximum duration, and reports it."""
    run = launch(SLEEP, worker=1, limits=Lifecycle(max_duration=1.0, grace=1.0))
    run = until_released(backend, run)
    assert (run.status.phase, run.status.reason) == (Phase.FAILED, Reason.MAX_DURATION)


def test_delete(backend: Backend, launch: Launch) -> None:
    """A record is deleted only after its run has ended, and its logs only on request."""
    run = launch(SLEEP, worker=1)
    name, number = run.metadata.name, run.metadata.run
    with pytest.raises(Conflict, match=f"tfcluster stop {name}"):
        backend.delete(name)
    until_phase(backend, run, Phase.RUNNING)
    backend.stop("digits", Stop())
    output = Path(until_released(backend, run).status.paths["output"])
    backend.delete(name)
    assert backend.list() == []
    assert output.is_dir()
    with pytest.raises(NotFound):
        backend.get("digits")

    second = until_released(backend, launch("pass", worker=1))
    assert second.metadata.run == number + 1, "the logs of the first run are still there"
    backend.delete("digits", with_logs=True)
    assert not Path(second.status.paths["output"]).exists()

    assert backend.next_number("digits") == number + 2, "a number is used once, deleted or not"
    assert until_released(backend, launch("pass", worker=1)).metadata.run == number + 2
