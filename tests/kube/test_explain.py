"""The operator's explanations of waiting and failing tasks: each cause is produced for real.

Every run is admitted before its cause exists, as when a cluster changes between admission and
start. The operator is stopped while the test writes the records of these runs, and starts
afterwards.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubenode import images, registry
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube.explain_cases import SERVE, SLEEP, Seen, admit, cases, follow, wish, words_of
from support.kube.operator import Tenant
from support.kube.under_test import UnderTest
from support.kube.waiting_causes import ACCESS_SECRET, evict, limit_range, quota, webhook

from tfcluster_magic.kube.api import access
from tfcluster_magic.kube.api.client import Api
from tfcluster_magic.kube.objects import custom_resource, run_objects

pytestmark = pytest.mark.needs("registry", "node-inside")


@pytest.fixture(scope="module")
def image(cluster: UnderTest) -> str:
    """A small image, with Python but without TensorFlow."""
    assert cluster.own
    built = images.build("operator")
    registry.push(built, cluster.own.first)
    return built.reference


@pytest.fixture
def api(cluster: UnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A client of the API. It is faster than kubectl, and these tests measure times."""
    monkeypatch.setenv("KUBECONFIG", cluster.kubectl.kubeconfig)
    found, _namespace = access.connect()
    yield found
    found.close()


@pytest.fixture(scope="module")
def bounded(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A namespace with a ResourceQuota and a LimitRange."""
    tenant = new_tenant()
    tenant.kubectl.apply(
        limit_range(max={"cpu": "1"}, defaultRequest={"cpu": "10m"}),
        quota(requests_cpu="30m"),
    )
    tenant.kubectl.wait(
        "resourcequota",
        "small",
        lambda found: "hard" in found.get("status", {}),
        "the quota is in force",
    )
    return tenant


@pytest.fixture(scope="module")
def place(new_tenant: Callable[[], Tenant]) -> Iterator[Tenant]:
    """A namespace without limits; its runs are deleted after this file, because they would wait
    forever.
    """
    tenant = new_tenant()
    yield tenant
    tenant.kubectl("delete", "tfclusters", "--all", "--wait=false")


@pytest.fixture(scope="module")
def refusing(cluster: UnderTest, place: Tenant) -> Iterator[Callable[..., str]]:
    """Return a function that sends the pods of a run, or of one of its task types, to an
    unreachable admission webhook, so that they cannot be created.
    """
    made: list[str] = []

    def refuse(run: str, **more: str) -> str:
        found = webhook(place.name)
        name = found["metadata"]["name"] = f"{place.name}-{len(made)}"
        wanted = {"tfcluster.dev/name": run, **more}
        found["webhooks"][0]["objectSelector"] = {"matchLabels": wanted}
        cluster.kubectl.apply(found)
        made.append(name)
        return name

    yield refuse
    if made:
        cluster.kubectl("delete", "validatingwebhookconfiguration", *made, "--ignore-not-found")


def test_each_cause_is_in_the_status(
    cluster: UnderTest,
    place: Tenant,
    bounded: Tenant,
    refusing: Callable[..., str],
    api: Api,
    image: str,
    tmp_path: Path,
) -> None:
    """For each cause of a task's wait or failure, the run's status says what to do. The delay of
    each message is printed.
    """
    every = cases(tmp_path, image, cluster.busybox)
    assert cluster.own
    for node in cluster.own.nodes():  # an earlier cluster may have left the image on the disk
        registry.forget(str(every["private-1"].spec.image), node)
    place.kubectl.apply(
        ACCESS_SECRET,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "unbound"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "no-such-class",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    refusing("webhook-1")
    tenants = ((place, False), (bounded, True))
    for each, _second in tenants:
        each.operator.stop()
    # Some of these runs exceed the limits that the operator publishes, so remove the limits: with
    # them, the API server would refuse these runs.
    for each, _second in tenants:
        each.kubectl("delete", "configmap", "tfcluster-options", "--ignore-not-found")
    too_large = json.dumps(custom_resource.write("large", 1, every["no-cpu-1"].spec))
    wait_until(lambda: is_taken(place, too_large), "the API server knows no limits", seconds=60)
    for run, case in every.items():
        admit(api, bounded if case.second else place, run, case.spec)
    seen = Seen()

    def all_told() -> bool:
        done = [
            follow(api, each.name, {r: c for r, c in every.items() if c.second is second}, seen)
            for each, second in tenants
        ]
        return all(done)

    with ThreadPoolExecutor(2) as starting:
        for each, _second in tenants:
            starting.submit(each.operator.start)
        with contextlib.suppress(NodeError):  # after a timeout, the assertion below says more
            wait_until(all_told, "every cause is in a status", seconds=100, every=0.2)
    late = {
        run: round(max(0.0, seen.not_told.get(run, 0.0) - seen.known.get(run, float("inf"))), 1)
        for run in every
    }
    print("seconds after Kubernetes knew:", late)
    missing = {run: seen.said.get(run) for run in every if run not in seen.told}
    assert not missing, missing


def is_taken(place: Tenant, record: str) -> bool:
    """Return whether the API server would accept a record now."""
    try:
        place.kubectl("create", "--dry-run=server", "-f", "-", stdin=record)
    except NodeError:
        return False
    return True


def told(place: Tenant, run: str, sentence: str, seconds: float = 60) -> str:
    """Wait until a run's status matches a sentence; return all its messages."""
    return words_of(place.wait(run, lambda s: re.search(sentence, words_of(s)), sentence, seconds))


def test_a_task_names_the_peer_that_it_waits_for(
    cluster: UnderTest,
    place: Tenant,
    refusing: Callable[..., str],
    image: str,
    tmp_path: Path,
) -> None:
    """A worker whose parameter server is gone names the server that it waits for. If the peer's
    name does not resolve although it runs, the message blames the cluster's DNS.
    """
    serves = wish(tmp_path, image, SERVE, serves=True)
    held = refusing("dns-1")
    place.launch("dns-1", serves(ps=1))
    place.launch("peers-1", serves(ps=1))
    place.kubectl("wait", "--for=create", "job/dns-1-ps", "--timeout=60s", seconds=70)
    found = custom_resource.read(place.kubectl.get("tfcluster", "dns-1"))
    named = run_objects.headless_service(found, namespace=place.kubectl.namespace)
    named["spec"]["selector"] = {"tfcluster.dev/name": "nobody"}  # this selector matches no pod
    place.kubectl.apply(named)
    cluster.kubectl("delete", "validatingwebhookconfiguration", held)
    place.phase("peers-1", "Running")
    refusing("peers-1", **{"tfcluster.dev/task-type": "ps"})
    (server,) = place.pods("peers-1", "ps")
    place.kubectl("delete", "pod", server["metadata"]["name"], "--wait=false")
    said = told(place, "peers-1", "worker-0: waits for ps-0")
    assert told(place, "peers-1", "ps-0: the admission webhook"), said
    told(place, "dns-1", "the name of (ps|worker)-0 does not resolve though it runs: .* DNS", 120)


def test_an_eviction_is_reported_and_healed(place: Tenant, image: str, tmp_path: Path) -> None:
    """The status says that a task was evicted, as from a drained node; the task starts again."""
    place.launch("evicted-1", wish(tmp_path, image, SLEEP)())
    place.phase("evicted-1", "Running")
    (pod,) = place.pods("evicted-1")
    evict(place.kubectl, pod["metadata"]["name"])
    said = told(place, "evicted-1", "worker-0 was evicted")
    assert "somebody evicted it, for example to drain its node" in said
    assert "It is restarted (1 of 3 times)" in said
