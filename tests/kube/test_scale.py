"""600 tasks on fake nodes, and a copy of one task on a real node. The copy resolves the names of
all 600 tasks. Run the test by `make test-kube WITH=kwok`. This file makes its own fake nodes,
because test_options.py, which also uses fake nodes, removes them at its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kubenode import kwok
from kubenode.commands import wait_until
from scale import real
from scale.variants import PS, RUN, TASKS, TOLERATIONS, WORKERS
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import spec_of
from support.kube.under_test import UnderTest

from tfcluster_magic.kube.objects import custom_resource, manifests, policy

pytestmark = [pytest.mark.needs("kwok", "node-inside"), pytest.mark.alone]


@pytest.fixture
def fake_nodes(cluster: UnderTest) -> Iterator[int]:
    """Sixty fake nodes during a test."""
    assert cluster.own
    kwok.fake_nodes(cluster.own.first, 60, "32", "128Gi")
    yield 60
    cluster.kubectl("delete", "node", "-l", kwok.LABEL)


def test_a_task_finds_the_names_of_all_of_600(
    cluster: UnderTest, kube: Kubectl, fake_nodes: int
) -> None:
    """A task that started before any name existed resolves all 600 names and runs its program,
    which resolves them again.
    """
    assert cluster.own
    posts = _objects(cluster.description.images["notebook"])
    before = [each for each in posts if each["kind"] != "Service"]
    service = [each for each in posts if each["kind"] == "Service"]
    kube.apply(*before)
    jobs = {each["metadata"]["name"]: each for each in before if each["kind"] == "Job"}
    kube.apply(real.task(jobs[f"{RUN}-worker"], 3))
    for name, count in ((f"{RUN}-ps", PS), (f"{RUN}-worker", WORKERS)):
        kube.wait(
            "job", name, lambda found, n=count: found["status"].get("ready") == n, "all run", 240
        )
    pod = f"real-{RUN}-worker-3"
    kube.wait("pod", pod, lambda found: found["status"]["phase"] == "Running", "it runs", 600)
    waits = "waiting for the address of"
    wait_until(lambda: waits in kube.logs(pod), "it waits for an address", seconds=90)
    kube.apply(*service)
    kube.wait("pod", pod, lambda found: found["status"]["phase"] == "Succeeded", "it ends", 240)
    said = kube.logs(pod).splitlines()
    assert "every address is there" in " ".join(said)
    found = json.loads(said[-1])
    assert (found["asked"], found["failed"], found["addresses"]) == (TASKS, 0, TASKS), found


def _objects(image: str) -> list[Object]:
    """Return the operator's objects for a run whose program looks up all tasks."""
    said = {
        "defaultImage": image,
        "defaultCpu": 0.01,
        "dataClaim": "",
        "logClaim": "",
        "workspaceClaim": "",
        "nodeSelector": {"type": "kwok"},
        "tolerations": TOLERATIONS,
    }
    cluster, _dash, number = RUN.rpartition("-")
    wish = spec_of(real.PROGRAM, "all", workers=WORKERS, ps=PS)
    record = custom_resource.read(custom_resource.write(cluster, int(number), wish))
    return manifests.native_objects(
        manifests.without_identity(record), policy.parse_policy(json.dumps(said))
    )
