"""Admission on a real cluster: quotas, LimitRanges, the queue and published options."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import SYSTEM, Tenant, spec_of
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest

from tfcluster_magic.kube import hour_ledgers
from tfcluster_magic.kube.objects import custom_resource
from tfcluster_magic.launch_checks import kubernetes as launch_facts
from tfcluster_magic.quota import ledger
from tfcluster_magic.spec import (
    Mode,
    Pods,
    Replicas,
    ReplicaSet,
    Resources,
    SecretUse,
    Spec,
    Volume,
)

GPU = "nvidia.com/gpu"
WAITS = "import time\ntime.sleep(600)\n"
GIB = 2.0**30


@pytest.fixture(scope="module")
def bounded(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A namespace with a quota of 5 GiB, and at most 3 GiB for a task."""
    tenant = new_tenant()
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tasks"},
        "spec": {"hard": {"requests.memory": "5Gi", "pods": "20"}},
    }
    container = {"type": "Container", "max": {"memory": "3Gi"}}
    ranges = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "sizes"},
        "spec": {"limits": [container]},
    }
    tenant.kubectl.apply(quota, ranges)
    tenant.kubectl.wait(
        "resourcequota", "tasks", lambda q: q.get("status"), "the quota is in force"
    )
    return tenant


@pytest.fixture
def program(tmp_path: Any) -> Any:
    """Return a program that waits until it is stopped."""
    file = tmp_path / "waits.py"
    file.write_text(WAITS)
    return file


def workers(program: Any, count: int, memory: str, cpu: float | None = None, **more: Any) -> Spec:
    """Return the spec of a run with `count` workers of one size."""
    small = Resources(cpu=cpu, memory=memory)
    return spec_of(
        program, replicas=ReplicaSet(worker=Replicas(count=count, resources=small)), **more
    )


def stop(tenant: Tenant, *names: str) -> None:
    """Request the stop of runs."""
    for name in names:
        body = json.dumps({"spec": {"stop": {"reason": "the test is over", "by": "test"}}})
        tenant.kubectl("patch", "tfcluster", name, "--type=merge", "-p", body)


@pytest.mark.needs("quota", "rwx")
def test_two_launches_and_room_for_one(bounded: Tenant, program: Any) -> None:
    """If only one of three launched runs fits, the others wait in order. The message of the second
    names the missing resources, the run that uses them, and its place in the queue. When the
    resources are free, the second run starts automatically, and the third takes its place.
    """
    for name in ("first-1", "second-1", "third-1"):
        bounded.launch(name, workers(program, 1, "3Gi"))
    bounded.wait("first-1", lambda s: s.get("phase") in ("Starting", "Running"), "it is admitted")

    def waits(name: str, what: str) -> None:
        def told(status: Object) -> bool:
            return status.get("phase") == "Queued" and what in status.get("message", "")

        bounded.wait(name, told, what, seconds=90)

    waits("second-1", "1Gi more in quota tasks (requests.memory), used by first-1 (0.01 CPU, 3Gi)")
    waits("second-1", "(place 1 in the queue)")
    waits("third-1", "its turn after second-1 (place 2 in the queue)")
    assert bounded.pods("second-1") == bounded.pods("third-1") == []
    stop(bounded, "first-1")
    gone = time.monotonic()
    bounded.wait("second-1", lambda s: s.get("phase") != "Queued", "it is admitted", seconds=90)
    print(f"admitted {time.monotonic() - gone:.1f} s after the first was asked to end")
    waits("third-1", "(place 1 in the queue)")
    stop(bounded, "third-1", "second-1")
    for name in ("first-1", "second-1", "third-1"):
        bounded.wait(name, lambda s: s.get("releasedAt"), "its resources are released", seconds=120)


def sized(*tasks: Object) -> ReplicaSet:
    """Return workers and parameter servers of these numbers and sizes."""
    return ReplicaSet(
        **{
            name: Replicas(count=each.pop("count"), resources=Resources(**each))
            for name, each in zip(("worker", "ps"), tasks, strict=False)
        }
    )


TOO_MUCH = (
    (
        ({"count": 6, "memory": "2Gi"},),
        (
            "its tasks ask for 12Gi of memory together, and ResourceQuota tasks allows 5Gi. "
            "Set worker.count in spec.replicas to at most 2, or ask for less in spec.replicas, "
            "or ask an administrator for more"
        ),
    ),
    (
        ({"count": 2, "memory": "1536Mi"}, {"count": 3}),  # a task without a request has 1Gi
        (
            "its tasks ask for 6Gi of memory together, and ResourceQuota tasks allows 5Gi. "
            "Set worker.count in spec.replicas to at most 1"
        ),
    ),
    (
        ({"count": 1, "memory": "4Gi"},),
        "each worker asks for 4Gi of memory, and LimitRange sizes allows 3Gi. Ask for less",
    ),
    (
        ({"count": 1, "memory": "512Mi"}, {"count": 1, "cpu": 900}),
        "each ps asks for 900 CPU, and the largest node has ",
    ),
    (({"count": 1, "gpu": 1},), "each worker asks for 1 GPU, and the largest node has 0 GPUs"),
    (
        ({"count": 21, "memory": "64Mi"},),
        (
            "it has 21 tasks, and ResourceQuota tasks allows 20 pods. "
            "Set worker.count in spec.replicas to at most 20"
        ),
    ),
)


@pytest.mark.needs("quota", "rwx")
def test_what_can_never_fit_is_refused_by_apply(bounded: Tenant, kube: Kubectl) -> None:
    """`kubectl apply` of a run above a limit is refused; the message has the requested and allowed
    amounts and a remedy. A spec that just fits is accepted. If the operator has published nothing,
    any spec is accepted.
    """

    def published() -> bool:
        found = bounded.kubectl.get("configmap", "tfcluster-options")["data"]
        return bool(found.get("run.memory") == str(5 * 2**30) and "task.memory" in found)

    wait_until(published, "the limits are published", seconds=90)

    def record(*tasks: Object) -> Object:
        spec = Spec(mode=Mode.IN_GRAPH, replicas=sized(*map(dict, tasks)))
        return custom_resource.write("large", 1, spec)

    for tasks, words in TOO_MUCH:
        told = bounded.kubectl.refused(record(*tasks))
        assert f"this run can never start here: {words}" in told
    fits = json.dumps(record({"count": 5, "memory": "512Mi"}, {"count": 1, "memory": "2560Mi"}))
    bounded.kubectl("create", "--dry-run=server", "-f", "-", stdin=fits)
    large = json.dumps(record({"count": 900, "cpu": 900, "memory": "900Ti", "gpu": 9}))
    kube("create", "--dry-run=server", "-f", "-", stdin=large)


ADVICE = (
    (({"count": 5, "gpu": 1},), "Set worker.count in spec.replicas to at most 2, or ask"),
    (({"count": 2, "gpu": 1}, {"count": 1, "gpu": 1}), "to at most 1, or ask"),
    (({"count": 1}, {"count": 3, "gpu": 1}), "allows 2. Ask for less"),
    (({"count": 200}, {"count": 3, "gpu": 1}), "allows 2. Ask for less"),
    (({"count": 5, "gpu": 1}, {"count": 2, "gpu": 1}), "allows 2. Ask for less"),
)
"""Pairs of a request and the advice in its refusal, if a run may have 2 GPUs. A request has the
count and size of the workers and, in most cases, of the parameter servers.
"""


def test_a_number_of_workers_is_advised_where_it_helps(kube: Kubectl) -> None:
    """The message advises a number of workers only if fewer workers would help, because the workers
    request the scarce resource.

    The operator does not serve this namespace, so the test writes the ConfigMap tfcluster-options,
    which has the namespace's offer and the limits that follow from it. Limits that follow from
    another offer are not enforced; an operator of an earlier release leaves such limits.
    """
    kube("create", "namespace", "advice")
    place = kube.within("advice")
    limits = {"run.tasks": 130, "run.tasks.text": "at most 130 run here", "run.gpu": 2}
    said = {**limits, "run.gpu.text": "a quota allows 2", "default.cpu": 0.1}
    said |= {"offer.json": "{}", "limits.of": "{}"}
    place(
        "create",
        "configmap",
        "tfcluster-options",
        *(f"--from-literal={k}={v}" for k, v in said.items()),
    )

    def told(*tasks: Object) -> str:
        spec = Spec(mode=Mode.IN_GRAPH, replicas=sized(*map(dict, tasks)))
        text = json.dumps(custom_resource.write("large", 1, spec))
        try:
            return place("create", "--dry-run=server", "-f", "-", stdin=text)
        except NodeError as error:
            return str(error)

    wait_until(
        lambda: "never start" in told({"count": 9, "gpu": 1}), "the limits are in force", seconds=90
    )
    for tasks, words in ADVICE:
        assert words in told(*tasks)
    newer = json.dumps({"data": {"offer.json": '{"enforced":true}'}})
    place("patch", "configmap", "tfcluster-options", "--type=merge", "-p", newer)
    wait_until(lambda: "created" in told(*ADVICE[0][0]), "no limit is in force", seconds=90)
    kube("delete", "namespace", "advice", "--wait=false")


def test_nobody_raises_their_own_limits(new_tenant: Callable[[], Tenant]) -> None:
    """An account that may edit everything in its namespace can neither write nor delete the limits
    that the operator publishes there.
    """
    tenant = new_tenant()
    user = f"editor-{tenant.name}"
    tenant.kubectl("create", "rolebinding", "editor", "--clusterrole=edit", f"--user={user}")
    tenant.kubectl("wait", "--for=create", "configmap/tfcluster-options", "--timeout=90s")
    more = json.dumps({"data": {"run.memory": "1e18"}})
    for words in (
        ("patch", "configmap", "tfcluster-options", "--type=merge", "-p", more),
        ("delete", "configmap", "tfcluster-options"),
        ("delete", "configmaps", "--all"),
    ):
        with pytest.raises(NodeError, match="tfcluster-options is the operator's"):
            tenant.kubectl(*words, f"--as={user}")
    tenant.kubectl("create", "configmap", "mine", f"--as={user}")
    tenant.kubectl("delete", "configmap", "mine", f"--as={user}")


@pytest.mark.needs("rwx")
def test_what_only_the_operator_knows_fails_with_every_problem(
    bounded: Tenant, program: Any
) -> None:
    """A run that is within every limit but can never start fails at once with every problem, and no
    objects are created.
    """
    named = Pods(
        volumes=(Volume(claim="theirs", path="/mnt/x"),), secrets=(SecretUse(name="admin"),)
    )
    bounded.launch("large-1", workers(program, 1, "2Gi", pods=named))
    message = bounded.phase("large-1", "Failed", seconds=90)["message"]
    assert "got 'theirs'; there is no such PersistentVolumeClaim" in message
    assert "got 'admin'; tasks may use secrets that an administrator labelled" in message
    assert bounded.left_of("large-1") == ["tfcluster/large-1"]


@pytest.mark.needs("quota", "rwx")
def test_what_is_offered_is_published(bounded: Tenant, program: Any) -> None:
    """The namespace's ConfigMap has the capacity and, soon after, the free resources. From the
    ConfigMap a client finds the same problems as the operator.
    """

    def options() -> Object:
        found = bounded.kubectl.get("configmap", "tfcluster-options")
        told: Object = json.loads(found["data"]["options.json"])
        return told

    wait_until(
        lambda: options()["memory"] == {"total": 5 * GIB, "free": 5 * GIB},
        "it is there",
        seconds=90,
    )
    bounded.launch("told-1", workers(program, 1, "3Gi"))
    bounded.wait("told-1", lambda s: s.get("phase") in ("Starting", "Running"), "it is admitted")
    began = time.monotonic()
    wait_until(lambda: options()["memory"]["free"] <= 2 * GIB, "what is free", seconds=90)
    print(f"told after {time.monotonic() - began:.1f} s")
    published = bounded.kubectl.get("configmap", "tfcluster-options")["data"][
        launch_facts.FACTS_KEY
    ]
    (problem,) = launch_facts.launch_problems(
        workers(program, 6, "2Gi"), launch_facts.read_facts(published)
    )
    assert problem.fits == 2
    stop(bounded, "told-1")
    bounded.wait("told-1", lambda s: s.get("releasedAt"), "its resources are released", seconds=120)


@pytest.mark.needs("rwx")
def test_hours_outlive_their_records_and_a_budget_refuses(
    new_tenant: Callable[[], Tenant], program: Any
) -> None:
    """A used-up budget refuses launches by any client, and lets running runs continue. The operator
    keeps the hours of a deleted record in a place that the user cannot change.
    """
    tenant = new_tenant()
    inside, name = tenant.kubectl, tenant.name
    home = SYSTEM if isinstance(tenant.operator, Installed) else name
    tenant.launch("digits-1", workers(program, 1, "512Mi", cpu=0.01))
    tenant.phase("digits-1", "Running")
    budget = json.dumps({"cpuHours": 1e-6})
    inside("annotate", "namespace", name, f"tfcluster.dev/budget={budget}")

    def told() -> Any:
        return hour_ledgers.read_account(
            inside.get("configmap", "tfcluster-options")["data"][hour_ledgers.HOURS_KEY], (), 0
        )

    wait_until(lambda: told().budget is not None, "the budget is published", seconds=90)
    tenant.launch("more-1", workers(program, 1, "512Mi", cpu=0.01))
    refused = tenant.phase("more-1", "Failed")
    assert "CPU·h this week are used" in refused["message"]
    assert "administrator" in refused["message"]
    assert tenant.pods("more-1") == []
    assert tenant.status("digits-1")["phase"] == "Running"
    uid = inside.get("tfcluster", "digits-1")["metadata"]["uid"]
    inside.delete("tfcluster", "digits-1")

    def counted(found: Object) -> bool:
        return uid in hour_ledgers.read_ledger(found)[2].counted

    found = inside.within(home).wait(
        "configmap", hour_ledgers.ledger_name(name), counted, "it is recorded"
    )
    _namespace, _user, kept = hour_ledgers.read_ledger(found)
    (row,) = ledger.hours_rows({"": kept.days}, "2000-01-01", "2999-01-01", "cluster")
    assert row.key == "digits"
    assert row.cpu > 1e-6
    wait_until(lambda: told().days == kept.days, "the user sees it", seconds=90)


@pytest.fixture
def four_gpus(cluster: UnderTest) -> Iterator[None]:
    """The first node reports four GPUs, as NVIDIA's device plugin does."""
    assert cluster.own
    node = cluster.own.first.name
    places = [f"/status/{each}/{GPU.replace('/', '~1')}" for each in ("capacity", "allocatable")]

    def patch(changes: list[Object]) -> None:
        words = ("patch", "node", node, "--subresource=status", "--type=json")
        cluster.kubectl(*words, "-p", json.dumps(changes))

    patch([{"op": "add", "path": each, "value": "4"} for each in places])
    yield
    patch([{"op": "remove", "path": places[0]}, {"op": "add", "path": places[1], "value": "0"}])


@pytest.mark.needs("node-inside", "rwx")
def test_gpus_are_asked_for_by_the_pod(
    new_tenant: Callable[[], Tenant], four_gpus: None, program: Any
) -> None:
    """A task that requests a GPU has one in its pod's limits, on a node with GPUs. If two runs each
    need most of the GPUs, one runs completely; the other says why it waits, and reserves nothing.
    """
    home = new_tenant()

    def offered() -> bool:
        found = home.kubectl.get("configmap", "tfcluster-options")
        return bool(found["data"]["task.gpu"] == "4")

    home.kubectl("wait", "--for=create", "configmap/tfcluster-options", "--timeout=90s")
    wait_until(offered, "the GPUs are offered", seconds=90)
    asks = Resources(memory="128Mi", gpu=1)
    replicas = ReplicaSet(worker=Replicas(count=3, resources=asks))
    home.launch("gpu-1", spec_of(program, replicas=replicas))
    home.phase("gpu-1", "Running")
    whole = [pod["spec"]["containers"][0]["resources"]["limits"][GPU] for pod in home.pods("gpu-1")]
    assert whole == ["1"] * 3
    home.launch("gpus-1", spec_of(program, replicas=replicas))
    status = home.wait("gpus-1", lambda s: "GPU" in s.get("message", ""), "it says so", 90)
    assert status["phase"] == "Queued", status
    print(status["message"])
    assert home.pods("gpus-1") == []
    home.kubectl("delete", "tfcluster", "gpu-1")
    home.phase("gpus-1", "Running")
    home.kubectl("delete", "tfcluster", "gpus-1")
