"""`render` for Kubernetes: a TFCluster file, and manifests that follow the namespace's policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.command_line import Run, here, run
from support.kube_server import KubeServer
from support.kubernetes_backend import backend, publish

from tfcluster_magic import ClusterManager
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.kube.objects.policy import Policy
from tfcluster_magic.launch_checks.kubernetes import LaunchFacts
from tfcluster_magic.launch_checks.policy_check import ClaimFacts, NamespaceObjects

__all__ = ["here", "run"]  # fixtures used by the tests below

WHOLE = ("render", "--layout", "tfcluster")


@pytest.fixture
def server() -> Iterator[KubeServer]:
    """An API server that stores objects."""
    made = KubeServer()
    yield made
    made.close()


def test_a_launch_is_printed_as_a_file_that_operator_and_launch_read(run: Run, here: Path) -> None:
    """`kubectl apply` and `launch -f` read the printed file as the same launch."""
    words = ("hello.py", "--workers", "3", "--ps", "1", "--max-duration", "90m")
    done = run(*WHOLE, *words, "--", "--steps", "5")
    (here / "hello.yaml").write_text(done.out)

    (found,) = yaml.safe_load_all(done.out)
    assert (found["kind"], found["metadata"]) == ("TFCluster", {"name": "hello-1"})
    assert found["spec"]["program"]["inline"] == (here / "hello.py").read_text()
    assert "  program:\n    inline: |\n" in done.out
    spec = custom_resource.read(found).spec
    assert spec.replicas.total == 4
    assert spec.program is not None
    assert spec.program.arguments == ("--steps", "5")
    planned = ClusterManager().plan(file="hello.yaml").cluster
    assert (planned.metadata.cluster, planned.spec) == ("hello", spec)
    assert done.err == ""


def test_a_printed_program_is_given_its_addresses_as_before(run: Run, here: Path) -> None:
    """A program with flags for addresses gets these flags also when it is launched from the printed
    file.
    """
    (here / "old.py").write_text(
        "import tensorflow as tf\n"
        "tf.app.flags.DEFINE_string('ps_hosts', '', '')\n"
        "tf.app.flags.DEFINE_string('worker_hosts', '', '')\n"
        "tf.app.flags.DEFINE_string('job_name', '', '')\n"
        "tf.app.flags.DEFINE_integer('task_index', 0, '')\n"
        "tf.app.run()\n"
    )
    (found,) = yaml.safe_load_all(run(*WHOLE, "old.py", "--ps", "1").out)
    program = custom_resource.read(found).spec.program
    assert program is not None and program.by_hand
    planned = ClusterManager().plan("old.py", ps=1).cluster.spec.program
    assert planned is not None and "ps_hosts" in planned.flags
    assert program.flags == planned.flags


def test_a_run_is_printed_under_its_next_number(run: Run) -> None:
    """`render` of an existing run prints a file for the next run: it has the next number, and no
    request to stop.
    """
    run("launch", "sleep.py", "--workers", "1")
    run("stop", "sleep")
    found = yaml.safe_load(run(*WHOLE, "sleep").out)

    assert found["metadata"] == {"name": "sleep-2"}
    assert "stop" not in found["spec"]


def test_a_policy_is_the_operators_to_apply(run: Run) -> None:
    """`--policy` is refused when a TFCluster file is printed, because the operator applies the
    policy.
    """
    done = run(*WHOLE, "hello.py", "--policy", "policy.yaml")
    assert done.code == 2
    assert "leave out --policy" in done.err


def test_manifests_follow_the_policy_of_the_namespace(
    run: Run, here: Path, server: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests use the namespace's policy, and missing objects of the namespace are reported
    first.
    """
    backend(server, here, monkeypatch)
    claims = {name: ClaimFacts() for name in ("log", "workspace")}
    policy = Policy(priority_class="tfcluster-task", default_image="hub/notebook:1")
    publish(server, LaunchFacts(policy=policy, names=NamespaceObjects(claims=claims)))
    done = run("render", "--backend", "kubernetes", "hello.py", "--workers", "2")

    pods = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(done.out)
        if each["kind"] == "Job"
    ]
    assert {(pod["priorityClassName"], pod["containers"][0]["image"]) for pod in pods} == {
        ("tfcluster-task", "hub/notebook:1")
    }
    assert "the manifests use the policy of namespace alice" in done.err
    assert (
        "not possible in alice: the namespace: got 'data'; there is no such Persistent" in done.err
    )


def test_what_the_account_may_not_create_is_said(
    run: Run, here: Path, server: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant without the right to create Jobs gets a message about that before the manifests."""
    backend(server, here, monkeypatch)
    publish(server)
    denied = {"services", "networkpolicies", "jobs"}
    server.may = lambda asked: asked["resource"] not in denied
    done = run("render", "--backend", "kubernetes", "hello.py", "--workers", "2")
    assert "may not create services, networkpolicies, jobs in namespace alice" in done.err
    assert done.out.count("\nkind: ") == 4


def test_without_a_cluster_the_default_policy_is_named(run: Run) -> None:
    """Without a cluster, the message says that the manifests follow the default policy."""
    done = run("render", "--layout", "native", "hello.py")
    assert "the manifests use the default policy (no Kubernetes cluster is in use)" in done.err
    assert "--policy" in done.err
