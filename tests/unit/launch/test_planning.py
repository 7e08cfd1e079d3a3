"""A launch's options, in keywords and in files, and the plan of the launch that they give."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.run_manager import HELLO, here, left_behind, manager

from tfcluster_magic import ClusterManager
from tfcluster_magic.errors import InvalidRequest
from tfcluster_magic.launch import options
from tfcluster_magic.launch.options import fill_in_defaults, read_options
from tfcluster_magic.spec import API_VERSION, TaskType

__all__ = ["here", "manager"]  # fixtures of another module


def test_nothing_said_means_two_workers(manager: ClusterManager) -> None:
    """A program that does not mention parameter servers gets two workers and nothing else."""
    assert manager.plan("hello.py").cluster.spec.replicas.counts == {TaskType.WORKER: 2}


def test_a_program_that_speaks_of_parameter_servers_gets_one(
    manager: ClusterManager, here: Path
) -> None:
    """The program decides whether there is a parameter server, unless the user sets the number."""
    (here / "tf1.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ps_hosts')\n"
        "print(p.parse_args())\n"
    )

    assert manager.plan("tf1.py").cluster.spec.replicas.counts == {
        TaskType.WORKER: 2,
        TaskType.PS: 1,
    }
    assert TaskType.PS not in manager.plan("tf1.py", ps=0).cluster.spec.replicas.counts


COORDINATOR = (
    "import tensorflow as tf\n"
    "resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()\n"
    "if resolver.task_type in ('worker', 'ps'):\n    tf.distribute.Server(resolver).join()\n"
    "elif resolver.task_type == 'evaluator':\n    print('evaluating')\n"
    "tf.distribute.coordinator.ClusterCoordinator(None)\n"
)


def test_a_program_gets_the_types_that_it_asks_for(manager: ClusterManager, here: Path) -> None:
    """Chief, parameter server and evaluator follow from the program, unless the user sets them."""
    (here / "guide.py").write_text(COORDINATOR)
    cluster = manager.plan("guide.py", evaluator_cpu=1).cluster

    assert cluster.spec.replicas.counts == {
        TaskType.CHIEF: 1,
        TaskType.WORKER: 2,
        TaskType.PS: 1,
        TaskType.EVALUATOR: 1,
    }
    assert [told.code for told in cluster.status.inferred] == [
        "InferredServer",
        "NeededChief",
        "InferredEvaluator",
    ]
    said = manager.plan("guide.py", ps=2, chief=True, evaluator=False).cluster
    assert said.spec.replicas.counts == {TaskType.CHIEF: 1, TaskType.WORKER: 2, TaskType.PS: 2}
    assert said.status.inferred == ()


def test_servers_that_a_program_cannot_use_are_said(manager: ClusterManager, here: Path) -> None:
    """If a program with MultiWorkerMirroredStrategy is launched with parameter servers, the launch
    says so, with the program's line.
    """
    (here / "mirror.py").write_text(
        "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\n"
    )
    assert manager.plan("mirror.py").cluster.status.inferred == ()
    (told,) = manager.plan("mirror.py", ps=1).cluster.status.inferred
    assert str(told).startswith(
        "line 2 of mirror.py uses MultiWorkerMirroredStrategy, a strategy that"
    )


def test_a_program_that_needs_a_chief_is_not_launched_without(
    manager: ClusterManager, here: Path
) -> None:
    """A launch without the chief that the program needs is refused with the line and the option."""
    (here / "guide.py").write_text(COORDINATOR)
    with pytest.raises(InvalidRequest, match=r"line 7 of guide\.py.*--chief") as refused:
        manager.plan("guide.py", chief=False)
    assert [problem.field for problem in refused.value.problems] == ["--chief"]


def test_in_graph_has_a_parameter_server_and_no_program(manager: ClusterManager) -> None:
    """An In-Graph cluster has two workers and one parameter server, and is called in-graph."""
    plan = manager.plan(mode="in-graph")

    assert plan.cluster.metadata.name == "in-graph-1"
    assert plan.cluster.spec.replicas.counts == {TaskType.WORKER: 2, TaskType.PS: 1}
    assert plan.cluster.spec.program is None


def test_an_option_for_all_tasks_yields_to_that_of_a_type(manager: ClusterManager) -> None:
    """`--cpu 1 --ps-cpu 0.5` sets the cores of all types except ps."""
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


def test_all_problems_come_at_once_and_in_the_persons_words(manager: ClusterManager) -> None:
    """Wrong values, a wrong name and a missing program cause a single refusal, which names the
    options.
    """
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
    """Keywords in Python are checked like options of the command line."""
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
    """Each row of the table of options sets an existing field of the model."""
    good = {
        options.Kind.WHOLE: 1,
        options.Kind.NUMBER: 1.5,
        options.Kind.MEMORY: "128Mi",
        options.Kind.DURATION: "5s",
        options.Kind.SWITCH: True,
        options.Kind.FILE: "/usr/bin/python3",
        options.Kind.PAIRS: {"A": "b"},
        options.Kind.IMAGE: "registry:5000/team/image:1",
        options.Kind.NAMES: "registry",
        options.Kind.VOLUMES: "images:/mnt/images:ro",
        options.Kind.SECRETS: "s3:/mnt/s3",
        options.Kind.ANNOTATIONS: "prometheus.io/scrape=true",
        options.Kind.CLAIM: "10Gi:shared",
        options.Kind.RUNS: "prepare-3:end",
    }
    from tfcluster_magic.launch.validation import schema
    from tfcluster_magic.spec import Spec

    for option in options.OPTIONS:
        value = option.words[0] if option.words else good[option.kind]
        values = read_options({option.key: value})
        fill_in_defaults(values, [TaskType.PS])
        problems: list[Any] = []
        schema.check_schema(values.spec, Spec, "spec", problems)

        assert not [*values.problems, *problems], option.flag


def test_a_file_describes_a_cluster_and_options_go_before_it(
    manager: ClusterManager, here: Path
) -> None:
    """A cluster file in YAML describes a launch; options of the command override the file."""
    (here / "cluster.yaml").write_text(
        "apiVersion: tfcluster.dev/v1beta1\nkind: TFCluster\nmetadata: {cluster: fromfile}\n"
        "spec:\n  replicas: {worker: {count: 3}}\n  lifecycle: {grace: 3s}\n"
        "  program: {source: hello.py, arguments: [a, 1]}\n"
    )
    spec = manager.plan(file="cluster.yaml", workers=1).cluster.spec

    assert spec.replicas.worker.count == 1
    assert spec.lifecycle.grace == 3
    assert spec.program is not None
    assert spec.program.arguments == ("a", "1")
    assert manager.plan(file="cluster.yaml").cluster.metadata.cluster == "fromfile"


def test_a_file_for_kubectl_is_a_cluster_file(manager: ClusterManager, here: Path) -> None:
    """A file for `kubectl apply` can be launched here, too, under the name of its cluster."""
    (here / "digits.yaml").write_text(
        "apiVersion: tfcluster.dev/v1beta1\nkind: TFCluster\nmetadata: {name: digits-7}\n"
        "spec:\n  mode: BetweenGraph\n"
        "  replicas: {worker: {count: 2, resources: {cpu: 500m, memory: 1Gi}}}\n"
        "  lifecycle: {maxDurationSeconds: 5400}\n"
        "  program: {source: hello.py}\n"
    )
    plan = manager.plan(file="digits.yaml").cluster

    assert plan.metadata.cluster == "digits"
    assert plan.spec.replicas.worker.resources.cpu == 0.5
    assert plan.spec.lifecycle.max_duration == 5400


def test_the_record_of_a_run_is_a_cluster_file(manager: ClusterManager, here: Path) -> None:
    """The output of `-o yaml` can be launched again elsewhere."""
    from tfcluster_magic.output.documents import document

    first = manager.launch("hello.py", workers=1)
    manager.wait(first.metadata.name, 180)
    (here / "again.yaml").write_text(document(manager.status("hello"), "yaml"))
    second = manager.launch(file="again.yaml")

    assert second.metadata.name == "hello-2"
    assert manager.wait("hello-2", 180).spec == first.spec


@pytest.mark.parametrize(
    "program",
    [
        {"inline": HELLO},
        {"path": "hello.py"},
        {"command": [sys.executable, "hello.py"], "workingDir": "/"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_a_file_for_kubectl_runs_on_this_machine(
    manager: ClusterManager, here: Path, own_folders: Path, program: dict[str, Any]
) -> None:
    """A hand-written TFCluster runs on this machine as in pods, under the name of its cluster. Its
    paths are relative to the workspace.
    """
    home = own_folders / "tfcluster"
    home.mkdir(exist_ok=True)
    (home / "hello.py").write_text(HELLO)
    program = {**program, **({"workingDir": str(home)} if "workingDir" in program else {})}
    thing = {"apiVersion": API_VERSION, "kind": "TFCluster", "metadata": {"name": "digits-1"}}
    thing["spec"] = {"program": program, "replicas": {"worker": {"count": 1}}}
    (here / "digits.yaml").write_text(json.dumps(thing))
    ended = manager.wait(manager.launch(file="digits.yaml").metadata.name, 180)
    assert (ended.metadata.name, ended.status.phase.value) == ("digits-1", "Succeeded")
    assert [line.text for line in manager.logs("digits") if line] == ["hello from worker-0"]
    told = [each.code for each in ended.status.inferred]
    assert told == (["ProgramNotPinned"] if "path" in program else [])
    rerun = manager.wait(manager.rerun("digits").metadata.name, 180)
    assert (rerun.spec, rerun.status.phase.value) == (ended.spec, "Succeeded")


def test_a_wrong_checksum_makes_no_run(manager: ClusterManager, here: Path) -> None:
    """If the program's text in a file does not match its checksum, the refusal has the right
    checksum.
    """
    wrong = {"program": {"inline": HELLO, "sha256": "0" * 64}}
    (here / "digits.yaml").write_text(json.dumps(wrong))
    with pytest.raises(InvalidRequest, match=hashlib.sha256(HELLO.encode()).hexdigest()):
        manager.launch(file="digits.yaml", name="digits")
    assert manager.list(all_runs=True) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "it is not YAML"),
        ("a: " + "[" * 5000, "it is nested too deeply"),
        ("- 1", "must hold a TFCluster or its spec"),
        ("kind: Pod\napiVersion: v1\n", "must describe a TFCluster"),
        ("spec: 3", "`spec` must contain fields"),
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


def test_a_checksum_needs_a_url(manager: ClusterManager) -> None:
    """`--sha256` for a program that is not downloaded is refused, not ignored."""
    checksum = hashlib.sha256(b"").hexdigest()
    with pytest.raises(InvalidRequest, match="URL"):
        manager.launch("hello.py", sha256=checksum)
    with pytest.raises(InvalidRequest, match="URL"):
        manager.launch(cell=HELLO, sha256=checksum)
