"""The one door to clusters, through the real local backend; no program needs TensorFlow."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError

from tfcluster_magic import ClusterManager, request
from tfcluster_magic import wish as wishes
from tfcluster_magic.errors import (
    ClusterFailed,
    Conflict,
    InvalidRequest,
    NameTaken,
    NotFound,
    PreflightRefused,
    WaitTimeout,
)
from tfcluster_magic.models import Phase, TaskType, TFCluster
from tfcluster_magic.observing import silence
from tfcluster_magic.waiting import Until

HELLO = "import os\nprint('hello from', os.environ['TFCLUSTER_TASK'], flush=True)\n"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder the person works in, with two programs."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "hello.py").write_text(HELLO)
    (folder / "sleep.py").write_text(SLEEP)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def manager(own_folders: Path, here: Path) -> Iterator[ClusterManager]:
    """A manager without runs; what a test leaves is stopped."""
    made = ClusterManager()
    yield made
    for run in made.list(all_runs=True):
        made.stop(run.metadata.name)
    for run in made.list(all_runs=True):
        made.wait(run.metadata.name, 30, until=Until.RELEASED)


def left_behind(folder: Path) -> list[str]:
    """Everything below the state folder, the user's folders and the temporary ones."""
    found = []
    for root in (folder / "state" / "runs", folder / "tfcluster"):
        found += [str(path.relative_to(folder)) for path in root.rglob("*")]
    return found


def test_a_launched_program_runs_on_every_task(manager: ClusterManager) -> None:
    """Launch, wait, read the output: the whole of the Python interface in three lines."""
    run = manager.launch("hello.py", workers=2, ps=0)
    ended = manager.wait(run.metadata.name, 180)

    assert ended.status.phase is Phase.SUCCEEDED
    lines = {(line.task, line.text) for line in manager.logs("hello") if line}
    assert lines == {("worker-0", "hello from worker-0"), ("worker-1", "hello from worker-1")}


def test_nothing_said_means_two_workers(manager: ClusterManager) -> None:
    """A program that does not speak of parameter servers gets two workers and none of those."""
    assert manager.plan("hello.py").cluster.spec.replicas.counts == {TaskType.WORKER: 2}


def test_a_program_that_speaks_of_parameter_servers_gets_one(
    manager: ClusterManager, here: Path
) -> None:
    """The program decides whether there is a parameter server, unless the person does."""
    (here / "tf1.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ps_hosts')\n"
    )

    assert manager.plan("tf1.py").cluster.spec.replicas.counts == {
        TaskType.WORKER: 2,
        TaskType.PS: 1,
    }
    assert TaskType.PS not in manager.plan("tf1.py", ps=0).cluster.spec.replicas.counts


def test_in_graph_has_a_parameter_server_and_no_program(manager: ClusterManager) -> None:
    """Servers for a notebook: two workers and one parameter server, called in-graph."""
    plan = manager.plan(mode="in-graph")

    assert plan.cluster.metadata.name == "in-graph-1"
    assert plan.cluster.spec.replicas.counts == {TaskType.WORKER: 2, TaskType.PS: 1}
    assert plan.cluster.spec.program is None


def test_an_option_for_all_tasks_yields_to_that_of_a_type(manager: ClusterManager) -> None:
    """`--cpu 1 --ps-cpu 0.5` means what it looks like, for the types that have tasks."""
    replicas = manager.plan("hello.py", ps=1, cpu=1, ps_cpu="0.5", chief=True).cluster.spec.replicas

    assert (replicas.worker.resources.cpu, replicas.ps.resources.cpu) == (1, 0.5)
    assert replicas.chief.resources.cpu == 1
    assert replicas.evaluator.resources.cpu is None


def test_a_plan_creates_nothing(manager: ClusterManager, own_folders: Path, here: Path) -> None:
    """A dry run leaves no record, no folder and no snapshot, not even of a large program."""
    (here / "large.py").write_text(HELLO + "#" * 200_000)
    plan = manager.plan("large.py")

    assert plan.cluster.metadata.name == "large-1"
    assert plan.cluster.spec.program is not None
    assert plan.cluster.spec.program.files is None
    assert left_behind(own_folders) == []


def test_a_large_program_runs_and_its_snapshot_stays(
    manager: ClusterManager, here: Path, own_folders: Path
) -> None:
    """A program beyond what a record holds is kept in the workspace, for reruns."""
    (here / "large.py").write_text(HELLO + "#" * 200_000)
    run = manager.launch("large.py", workers=1)
    manager.wait(run.metadata.name, 180)
    (here / "large.py").unlink()
    again = manager.rerun("large")

    assert manager.wait(again.metadata.name, 180).status.phase is Phase.SUCCEEDED
    assert [*(own_folders / "tfcluster" / ".tfcluster" / "code").iterdir()]


def test_a_refused_launch_of_a_large_program_leaves_no_snapshot(
    manager: ClusterManager, here: Path, own_folders: Path
) -> None:
    """A launch without room takes its snapshot with it."""
    (here / "large.py").write_text(HELLO + "#" * 200_000)
    with pytest.raises(PreflightRefused, match="GPU"):
        manager.launch("large.py", gpu=64)

    assert not [path for path in left_behind(own_folders) if "code/" in path]
    assert manager.list() == []


def test_all_problems_come_at_once_and_in_the_persons_words(manager: ClusterManager) -> None:
    """Wrong values, a wrong name and a missing program are one refusal that names the options."""
    with pytest.raises(InvalidRequest) as refused:
        manager.launch(
            "nowhere.py", name="Bad_Name", workers=-1, mode="sideways", grace="soon", memory="1Gb"
        )

    fields = {problem.field for problem in refused.value.problems}
    assert fields == {"program", "--name", "--workers", "--mode", "--grace", "--memory"}


def test_a_wrong_environment_variable_is_named(manager: ClusterManager) -> None:
    """`--env TF_CONFIG=…` is refused with the name of the variable."""
    with pytest.raises(InvalidRequest, match=r"--env TF_CONFIG: got 'x'"):
        manager.launch("hello.py", env={"TF_CONFIG": "x"})


def test_an_unknown_keyword_is_refused_with_the_one_that_was_meant(manager: ClusterManager) -> None:
    """Python keywords are checked as the options of the command line are."""
    with pytest.raises(InvalidRequest, match=r"worker: got 3; did you mean workers\?"):
        manager.launch("hello.py", worker=3)


def test_durations_are_read_as_people_write_them(manager: ClusterManager) -> None:
    """30, 30s, 10m, 24h and 1h30m are durations, and so is a number."""
    plan = manager.plan(
        "hello.py", reclaim_after="30", start_timeout="10m", max_duration="1h30m", grace=2.5
    )
    limits = plan.cluster.spec.lifecycle

    assert (limits.reclaim_after, limits.start_timeout) == (30, 600)
    assert (limits.max_duration, limits.grace) == (5400, 2.5)


def test_every_option_reaches_the_field_that_it_names() -> None:
    """No row of the table of options points beside the model."""
    good = {
        request.Kind.WHOLE: 1,
        request.Kind.NUMBER: 1.5,
        request.Kind.MEMORY: "128Mi",
        request.Kind.DURATION: "5s",
        request.Kind.SWITCH: True,
        request.Kind.FILE: "/usr/bin/python3",
        request.Kind.PAIRS: {"A": "b"},
        request.Kind.IMAGE: "registry:5000/team/image:1",
        request.Kind.NAMES: "registry",
        request.Kind.VOLUMES: "images:/mnt/images:ro",
        request.Kind.SECRETS: "s3:/mnt/s3",
        request.Kind.ANNOTATIONS: "prometheus.io/scrape=true",
        request.Kind.CLAIM: "10Gi:shared",
    }
    from tfcluster_magic.models import Spec
    from tfcluster_magic.validation import shapes  # the shape alone, without rules between fields

    for option in request.OPTIONS:
        value = option.words[0] if option.words else good[option.kind]
        wish = wishes.wish({option.key: value})
        wishes.settle(wish, speaks_of_ps=True)
        problems: list[Any] = []
        shapes.check(wish.spec, Spec, "spec", problems)

        assert not [*wish.problems, *problems], option.flag


def test_a_file_describes_a_cluster_and_options_go_before_it(
    manager: ClusterManager, here: Path
) -> None:
    """A cluster file in YAML is a launch; what is said beside it wins."""
    (here / "cluster.yaml").write_text(
        "apiVersion: tfcluster.dev/v1alpha1\nkind: TFCluster\nmetadata: {cluster: fromfile}\n"
        "spec:\n  replicas: {worker: {count: 3}}\n  lifecycle: {grace: 3s}\n"
        "  program: {source: hello.py, arguments: [a, 1]}\n"
    )
    spec = manager.plan(file="cluster.yaml", workers=1).cluster.spec

    assert spec.replicas.worker.count == 1
    assert spec.lifecycle.grace == 3
    assert spec.program is not None
    assert spec.program.arguments == ("a", "1")
    assert manager.plan(file="cluster.yaml").cluster.metadata.cluster == "fromfile"


def test_the_record_of_a_run_is_a_cluster_file(manager: ClusterManager, here: Path) -> None:
    """What `-o yaml` prints can be launched again elsewhere."""
    from tfcluster_magic.output.documents import document

    first = manager.launch("hello.py", workers=1)
    manager.wait(first.metadata.name, 180)
    (here / "again.yaml").write_text(document(manager.status("hello"), "yaml"))
    second = manager.launch(file="again.yaml")

    assert second.metadata.name == "hello-2"
    assert manager.wait("hello-2", 180).spec == first.spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "it is not YAML"),
        ("a: " + "[" * 5000, "it is nested too deeply"),
        ("- 1", "holds a TFCluster or its spec"),
        ("kind: Pod\napiVersion: v1\n", "describes a TFCluster"),
        ("spec: 3", "`spec` holds fields"),
        ("replicas: {worker: {count: 1}}\nsped: 1\n", "sped"),
    ],
)
def test_a_file_that_is_no_cluster_is_refused(
    manager: ClusterManager, here: Path, text: str, said: str
) -> None:
    """Each kind of wrong cluster file has its own message."""
    (here / "cluster.yaml").write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        manager.plan("hello.py", file="cluster.yaml")


def test_a_name_that_is_taken_is_refused_and_a_derived_one_makes_way(
    manager: ClusterManager,
) -> None:
    """Two launches of one given name collide; of one program they do not."""
    manager.launch("sleep.py", workers=1, name="mine")
    with pytest.raises(NameTaken, match="mine"):
        manager.launch("sleep.py", workers=1, name="mine")
    first = manager.launch("sleep.py", workers=1)
    second = manager.launch("sleep.py", workers=1)

    assert first.metadata.cluster == "sleep"
    assert second.metadata.cluster != "sleep"


def test_waiting_for_a_failed_run_raises_with_the_cause(
    manager: ClusterManager, here: Path
) -> None:
    """Who waits learns which task failed and why."""
    (here / "bad.py").write_text("raise ValueError('no such column')\n")
    run = manager.launch("bad.py", workers=1)
    with pytest.raises(ClusterFailed, match=r"bad-1 failed: worker-0 .*no such column"):
        manager.wait(run.metadata.name, 180)


def test_waiting_in_vain_raises_and_the_run_goes_on(manager: ClusterManager) -> None:
    """A timeout bounds the wait, never the run."""
    run = manager.launch("sleep.py", workers=1)
    with pytest.raises(WaitTimeout, match="It goes on"):
        manager.wait(run.metadata.name, 0.2)

    assert manager.status("sleep").active


def test_waiting_for_a_stopped_run_raises_with_the_reason(manager: ClusterManager) -> None:
    """A run that somebody else stopped is no success to who waits."""
    run = manager.launch("sleep.py", workers=1)
    manager.wait(run.metadata.name, 180, until=Until.READY)
    threading.Timer(0.2, manager.stop, (run.metadata.name, "the room is needed")).start()
    with pytest.raises(ClusterFailed, match="the room is needed"):
        manager.wait(run.metadata.name, 180)


def test_a_rerun_is_the_same_snapshot_even_when_the_file_changed(
    manager: ClusterManager, here: Path
) -> None:
    """Editing the file does not change what a rerun runs; options of the rerun do."""
    manager.wait(manager.launch("hello.py", workers=2).metadata.name, 60)
    (here / "hello.py").write_text("raise SystemExit(1)\n")
    again = manager.rerun("hello", workers=1, arguments=["x"])
    ended = manager.wait(again.metadata.name, 180)

    assert ended.metadata.name == "hello-2"
    assert ended.spec.replicas.worker.count == 1
    assert ended.spec.program is not None
    assert ended.spec.program.arguments == ("x",)


def test_a_rerun_can_resume_and_take_another_name(manager: ClusterManager) -> None:
    """`--resume` names the run whose checkpoints are used, `--name` the new cluster."""
    manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)
    plan = manager.plan_rerun("hello", resume=True, name="other")

    assert plan.cluster.spec.resume_from == "hello-1"
    assert plan.cluster.metadata.name == "other-1"


def test_list_shows_the_newest_run_of_each_name_and_all_runs_when_asked(
    manager: ClusterManager,
) -> None:
    """A name that was launched many times takes one line."""
    for _ in range(2):
        manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)
    manager.launch("sleep.py", workers=1)

    assert _names(manager.list()) == ["sleep-1", "hello-2"]
    assert _names(manager.list(all_runs=True)) == ["sleep-1", "hello-2", "hello-1"]
    assert _names(manager.list(["hello"], all_runs=True)) == ["hello-2", "hello-1"]


def _names(runs: list[TFCluster]) -> list[str]:
    return [run.metadata.name for run in runs]


def test_following_the_output_ends_with_the_run_and_not_with_its_parameter_servers(
    manager: ClusterManager, here: Path
) -> None:
    """After the workers' success nobody waits 30 s for the parameter servers to be reclaimed."""
    (here / "train.py").write_text(
        "import os, time\nprint('start', flush=True)\n"
        "time.sleep(600 if os.environ['TFCLUSTER_TASK_TYPE'] == 'ps' else 0.5)\nprint('end')\n"
    )
    run = manager.launch("train.py", workers=1, ps=1, reclaim_after="10m")
    lines = [line for line in manager.logs(run.metadata.name, follow=True) if line]

    assert [x.text for x in lines if x.task == "worker-0"] == ["start", "end"]
    assert manager.status("train").status.released_at is None


def test_deleting_a_run_stops_it_first_and_removes_its_output_when_asked(
    manager: ClusterManager, own_folders: Path
) -> None:
    """After delete with logs nothing is left of a run that was going on."""
    manager.launch("sleep.py", workers=1)
    manager.delete("sleep", with_logs=True)

    with pytest.raises(NotFound):
        manager.status("sleep-1")
    assert not (own_folders / "tfcluster" / "log" / "sleep").exists()


def test_a_program_cluster_cannot_be_connected_to(manager: ClusterManager) -> None:
    """Connect says why not, and what would work."""
    manager.launch("sleep.py", workers=1)
    with pytest.raises(Conflict, match=r"--mode in-graph"):
        manager.reachable("sleep")


def test_an_in_graph_cluster_is_reachable_when_all_ports_accept(manager: ClusterManager) -> None:
    """The addresses of the record are those that a client connects to."""
    manager.launch(mode="in-graph", workers=1, ps=1)
    cluster = manager.reachable("in-graph", 60)

    assert {kind: len(hosts) for kind, hosts in cluster.status.addresses.items()} == {
        "worker": 1,
        "ps": 1,
    }


def test_an_unknown_backend_is_refused_with_those_there_are() -> None:
    """A wrong configuration says what is allowed."""
    with pytest.raises(TraitError, match="local"):
        ClusterManager(backend_name="cloud")


def test_the_managers_folders_go_before_the_environments(own_folders: Path, here: Path) -> None:
    """`state_dir` and `log_dir` of a configuration decide where runs and their output are."""
    manager = ClusterManager(
        state_dir=str(own_folders / "s"), log_dir=str(own_folders / "l"), data_dir="d"
    )
    manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)

    assert (own_folders / "s" / "runs" / "hello").is_dir()
    assert (own_folders / "l" / "hello" / "1").is_dir()
    assert manager.options().data_dir == str(here / "d")


def test_a_silent_task_is_told(manager: ClusterManager) -> None:
    """After five minutes without output status says since when, and of whom."""
    run = manager.launch("sleep.py", workers=2)
    cluster = manager.wait(run.metadata.name, 180, until=Until.READY)
    _until(lambda: all(_log(cluster, i).stat().st_size for i in (0, 1)))
    os.utime(_log(cluster, 1), (0, time.time() - 400))

    assert silence(cluster, time.time()) is not None
    assert "from worker-1" in str(silence(cluster, time.time()))
    assert silence(cluster, time.time() - 400) is None


def _log(cluster: TFCluster, index: int) -> Path:
    return Path(cluster.status.paths["logs"]) / f"worker-{index}.log"


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_importing_the_package_imports_nothing_heavy() -> None:
    """Neither IPython, TensorFlow, jinja2 nor asyncio is there after the manager is imported."""
    heavy = "IPython tensorflow jinja2 asyncio yaml http.client tfcluster_magic.program"
    script = (
        "import sys; from tfcluster_magic import ClusterManager; ClusterManager(); "
        f"print([m for m in '{heavy}'.split() if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )

    assert done.stdout.strip() == "[]"


def test_a_checksum_needs_a_url(manager: ClusterManager) -> None:
    """`--sha256` for what is not downloaded is refused, not ignored."""
    checksum = hashlib.sha256(b"").hexdigest()
    with pytest.raises(InvalidRequest, match="URL"):
        manager.launch("hello.py", sha256=checksum)
    with pytest.raises(InvalidRequest, match="URL"):
        manager.launch(cell=HELLO, sha256=checksum)
