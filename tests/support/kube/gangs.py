"""Fake nodes with few resources, and a user whose tasks run there. `annotate` changes the user's
namespace as an administrator does. The operator is a separate process for that user, so that each
test has its own policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubenode import kwok
from kubenode.commands import wait_until
from support.kube.kubectl import Object
from support.kube.operator import Tenant, policy, spec_of
from support.kube.operator_modes import Installed, Process
from support.kube.under_test import UnderTest

from tfcluster_magic.spec import Replicas, ReplicaSet, Resources, Spec

NODES = 4
CORES = 8
"""Cores of each node: it fits one task of five cores, or three tasks of two cores."""
POOL: Object = {
    "nodeSelector": {"type": "kwok"},
    "tolerations": [{"key": kwok.KEY, "operator": "Exists"}],
    "dataClaim": "",
    "logClaim": "",
    "workspaceClaim": "",
    "requireNetworkPolicy": False,
}
VOLCANO = ("volcano", "kwok", "node-inside")


@pytest.fixture(scope="module")
def there(
    cluster: UnderTest, new_tenant: Callable[[], Tenant], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tenant]:
    """Create fake nodes, and a user whose tasks run there and who has their own operator."""
    assert cluster.own
    kwok.fake_nodes(cluster.own.first, NODES, str(CORES), "32Gi")
    tenant = new_tenant()
    served = tenant.operator
    served.stop()
    folder = tmp_path_factory.mktemp("gangs")
    tenant.operator = Process(tenant.name, tenant.kubectl.kubeconfig, folder)
    operate(cluster, tenant)
    yield tenant
    tenant.kubectl("delete", "tfclusters", "--all")
    tenant.operator.stop()
    if isinstance(served, Installed):
        served.start()
    cluster.kubectl("delete", "node", "-l", kwok.LABEL)


@pytest.fixture(autouse=True)
def left_clean(there: Tenant) -> Iterator[None]:
    """End the runs of a test, so that the next test has all resources."""
    yield
    there.kubectl("delete", "tfclusters", "--all")
    wait_until(
        lambda: not there.kubectl.every("pod", "tfcluster.dev/name"), "no pod is left", seconds=120
    )


def operate(cluster: UnderTest, tenant: Tenant, **more: Any) -> None:
    """Restart the operator with another policy."""
    assert isinstance(tenant.operator, Process)
    tenant.operator.stop()
    said = policy(cluster, **{**POOL, **more})
    (tenant.operator.folder / "policy.yaml").write_text(said)
    tenant.operator.start()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a program that never runs, because fake pods only report that they run."""
    file = tmp_path / "waits.py"
    file.write_text("pass\n")
    return file


def wish(program: Path, workers: int, ps: int, cpu: float) -> Spec:
    """Return a spec of a cluster whose tasks each request this number of cores."""
    each = Resources(cpu=cpu, memory="1Gi")
    tasks = ReplicaSet(
        worker=Replicas(count=workers, resources=each), ps=Replicas(count=ps, resources=each)
    )
    return spec_of(program, replicas=tasks)


def stop(tenant: Tenant, *names: str) -> None:
    """Stop runs, and wait until they have released all resources."""
    for name in names:
        body = json.dumps({"spec": {"stop": {"reason": "the test is over", "by": "test"}}})
        tenant.kubectl("patch", "tfcluster", name, "--type=merge", "-p", body)
    for name in names:
        tenant.wait(name, lambda s: s.get("releasedAt"), "it gave everything back", seconds=120)


def hosts(tenant: Tenant, name: str) -> list[str]:
    """Return the node of each task of a run."""
    return [n for pod in tenant.pods(name) if (n := pod["spec"].get("nodeName"))]


def annotate(cluster: UnderTest, tenant: Tenant, *marks: str) -> None:
    """Set the annotation for the placement of tasks, as an administrator does."""
    cluster.kubectl("annotate", "namespace", tenant.name, *marks, "--overwrite")
