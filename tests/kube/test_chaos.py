"""Users' runs on Kubernetes under chaos: nothing leaks, gets lost, or runs twice. For a long chaos
schedule: `pytest tests/kube/test_chaos.py --chaos-steps 1000 --chaos-seed 7`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chaos.plan import schedule
from support.kube.chaos_plan import EVENLY, WEIGHTS
from support.kube.chaos_steps import Chaos
from support.kube.kubectl import Kubectl
from support.kube.operator import policy, tenancy
from support.kube.operator_modes import Installed
from support.kube.under_test import UnderTest

pytestmark = [pytest.mark.alone, pytest.mark.needs("node-inside", "two-nodes", "rwx", "quota")]

STEPS, SEED = 60, 38945
"""The length and the seed of a short chaos schedule that contains each action."""
MANY = 100
ROOM = {"requests.memory": "400Mi"}
"""The quota of the second namespace, so small that one of two runs may have to wait."""


@pytest.fixture
def alone(installed: Installed | None) -> Iterator[None]:
    """Stop the installed operator during the test, which starts and kills its own operators."""
    if installed:
        installed.stop()
    yield
    if installed:
        installed.start()


@pytest.fixture
def namespaces(cluster: UnderTest, alone: None) -> Iterator[list[Kubectl]]:
    """Two users' namespaces."""
    names = [f"chaos-{os.getpid()}-{number}" for number in (1, 2)]
    found = [cluster.kubectl.within(name) for name in names]
    for kubectl in found:
        cluster.kubectl.apply(*tenancy(kubectl.namespace, cluster.description.storage_class))
        kubectl.wait_until_furnished()
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "room"}}
    found[1].apply({**head, "spec": {"hard": ROOM}})
    yield found
    for kubectl in found:
        kubectl("delete", "tfclusters", "--all", "--wait=false")
    cluster.kubectl("delete", "namespace", *names, "--wait=false")


def test_nothing_leaks_and_nothing_is_lost(
    cluster: UnderTest,
    namespaces: list[Kubectl],
    tmp_path: Path,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All invariants hold while runs are launched, ended, stopped and deleted, and while every
    server, client and task is killed. Nothing is left at the end.
    """
    assert cluster.own
    steps = pytestconfig.getoption("chaos_steps") or STEPS
    seed = pytestconfig.getoption("chaos_seed") or SEED
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the temporary files that killed clients leave
    monkeypatch.setenv("KUBECONFIG", namespaces[0].kubeconfig)
    said = policy(cluster, requireNetworkPolicy=False)
    image = cluster.description.images["notebook"]
    world = Chaos(cluster.own, namespaces, tmp_path, said, image, in_graph=steps > MANY)
    try:
        for step in schedule(seed, steps, WEIGHTS if steps > MANY else EVENLY):
            world.do(step)
            world.check()
            (tmp_path / "story").write_text(os.linesep.join(world.story))
        world.finish()
    except BaseException:
        world.tell()
        again = f"--chaos-seed {seed} --chaos-steps {steps}"
        print(f"again: pytest tests/kube/test_chaos.py {again}", *world.story, sep=os.linesep)
        raise
    finally:
        world.close()
