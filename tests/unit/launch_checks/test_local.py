"""Problems of a launch on this machine, computed only from given facts about the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfcluster_magic.launch import options
from tfcluster_magic.launch.options import Kind, Option
from tfcluster_magic.launch_checks.local import (
    LocalFacts,
    TaskPython,
    WrittenFolder,
    preflight,
    unsupported_options,
)
from tfcluster_magic.quota.budgets import Budget
from tfcluster_magic.quota.ledger import HoursAccount
from tfcluster_magic.quota.limits import (
    Limits,
    Quota,
    ResourceTotals,
    problems,
    resource_totals,
    workers_that_fit,
)
from tfcluster_magic.quota.preflight import AvailableResources, Limit
from tfcluster_magic.quota.storage import FolderUsage
from tfcluster_magic.spec import (
    Mode,
    Pods,
    Program,
    ProgramKind,
    Replicas,
    ReplicaSet,
    Resources,
    Spec,
)

NONE = Limit(total=0.0, free=0.0)


def test_every_problem_is_told_at_once_and_in_one_order() -> None:
    """The problems follow only from the facts, always in the same order, and one missing resource
    hides no other.
    """
    spec = Spec(
        mode=Mode.IN_GRAPH,
        image="registry:5000/tf:1",
        resume_from="digits-1",
        replicas=ReplicaSet(worker=Replicas(count=2, resources=Resources(memory="1Gi"))),
    )
    facts = LocalFacts(
        now=0.0,
        room=AvailableResources(cpu=NONE, memory=NONE, gpu=NONE, max_tasks=1),
        free_gpus=(),
        held=(),
        limits=Limits(quota=Quota(pods=1)),
        account=HoursAccount(budget=Budget(cpu_hours=0)),
        volumes=(FolderUsage("log", used=2, allowed=1),),
        python=TaskPython("/opt/python", named=True, has_tensorflow=False),
        guarded=False,
        log_dir=WrittenFolder(Path("/log"), "it is read-only"),
        state_dir=WrittenFolder(Path("/state"), "it is read-only"),
        lost_output=Path("/log/digits/1"),
        lost_program=Path("/home/digits/train.py"),
        warnings=("the disk is full",),
    )
    verdict = preflight(spec, facts)
    assert [problem.field for problem in verdict.problems] == [
        "budget.cpuHours",
        "--image",
        "--python",
        "loopback guard",
        "log folder",
        "state folder",
        "resumeFrom",
        "program.path",
        "replicas",
        "replicas.worker.resources.memory",
        "quota.pods",
        "storage.log",
    ]
    assert [problem.field for problem in verdict.unsupported] == ["--image"]
    assert "the disk is full" in verdict.warnings


def test_the_image_of_a_file_says_how_to_launch_its_program_here() -> None:
    """If the program of a file launched with -f is only in the image, the refusal shows the command
    that launches it here with the file's task counts. If the program is on this machine, the
    refusal says to leave out the image.
    """
    counts = ReplicaSet(chief=Replicas(count=1), worker=Replicas(count=2), ps=Replicas(count=1))
    by_hand = Program(command=("python", "/opt/train.py"))
    (problem,) = unsupported_options(Spec(image="a/b:1", program=by_hand, replicas=counts))
    assert problem.field == "--image"
    said = str(problem.allowed)
    assert said.startswith("only on Kubernetes: tasks run with a Python of this machine. Copy the")
    assert said.endswith("`tfcluster launch --workers 2 --ps 1 --chief train.py`")
    own = Program(kind=ProgramKind.FILE, source="a.py", entrypoint="a.py", sha256="0" * 64)
    (problem,) = unsupported_options(Spec(image="a/b:1", program=own, replicas=counts))
    assert "see --python" in str(problem.allowed)


@pytest.mark.parametrize("kind", [Kind.ANNOTATIONS, Kind.PAIRS])
def test_a_new_option_of_pods_is_refused_without_an_alternative(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option of pods that has no alternative on this machine is refused with a message, whatever
    the kind of its value.
    """
    labels = Option("--pod-label", "Labels", ("pods", "annotations"), kind, "label of the pods")
    monkeypatch.setattr(options, "OPTIONS", (labels,))
    (problem,) = unsupported_options(Spec(pods=Pods(annotations={"team": "blue", "tier": "a"})))
    assert (problem.field, problem.value) == ("--pod-label", "team=blue tier=a")
    assert problem.allowed == "only on Kubernetes: there are no pods on this machine"


def test_what_the_hub_allows_is_told_as_a_number_of_workers() -> None:
    """A launch above a user's limits is refused with the number of workers that still fit."""
    held = (ResourceTotals("a-1", cpu=2.0, memory=2.0**31, pods=3.0),)
    limits = Limits(quota=Quota(cpu=6.0, pods=10))
    resources = Resources(cpu=1.0)
    spec = Spec(replicas=ReplicaSet(worker=Replicas(count=9, resources=resources)))
    assert workers_that_fit(spec, held, limits) == 4
    found = problems(resource_totals("", spec), held, limits, 4)
    assert [problem.field for problem in found] == ["quota.cpu", "quota.pods"]
    assert all("use --workers 4, wait, or `tfcluster stop a-1`" in str(p.allowed) for p in found)
    none = Spec(replicas=ReplicaSet(worker=Replicas(count=2, resources=Resources(cpu=5.0))))
    assert workers_that_fit(none, held, limits) == 0
    assert ": ask for less, wait" in str(
        problems(resource_totals("", none), held, limits)[0].allowed
    )
