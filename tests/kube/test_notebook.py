"""A notebook in the cluster: `%tfcluster` selects Kubernetes and drives In-Graph servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.kube import tenants
from support.kube.operator import Tenant

pytestmark = pytest.mark.needs("rwx", "network-policy")

LAUNCH = "%tfcluster launch --mode in-graph --workers 1 --ps 1"
IN_GRAPH = [
    "%load_ext tfcluster_magic",
    f"cluster = {LAUNCH} --name drive",
    "cluster.wait_ready(300); print('TARGET', cluster.target)",
    """
import tensorflow as tf
with tf.Graph().as_default() as graph, tf.device('/job:worker/task:0'):
    answer = tf.constant(20) + tf.constant(22)
with cluster.session(graph=graph) as session:
    print('ANSWER', session.run(answer))
""",
    "cluster.stop(); print('PHASE', cluster.status.phase.value)",
]
LARGE = [
    "%load_ext tfcluster_magic",
    "open('large.py', 'w').write('text = \"' + 'x' * 70_000 + '\"\\nprint(len(text))\\n')",
    "large = %tfcluster launch --workers 1 large.py",
    "large.wait(300); print('PRINTED', large.logs())",
    "print('HERE', open(f\"{large.status.paths['output']}/worker-0.log\").read())",
]
REFUSED = """
from tfcluster_magic import ClusterManager
try:
    ClusterManager().launch("hello.py", workers=1, name="hello")
except Exception as refused:
    print("REFUSED", refused)
"""
FULL = [
    "%load_ext tfcluster_magic",
    "open('/log/many', 'wb').write(bytes(85 << 20)); open('hello.py', 'w').write('print(1)')",
    "warned = %tfcluster launch --workers 1 --name hello hello.py",
    "warned.wait(300); print('WARNED', *warned.status.warnings)",
    "open('/log/more', 'wb').write(bytes(20 << 20)); import time; time.sleep(4)",
    REFUSED,
    "import os; os.unlink('/log/many'); os.unlink('/log/more'); time.sleep(4)",
    "again = %tfcluster launch --workers 1 --name hello hello.py",
    "again.wait(300); print('AGAIN', again.status.phase.value)",
]
"""Cells that fill a claim of 100Mi, and then free it. They wait, because a measurement of the claim
is cached for three seconds.
"""


@pytest.fixture(scope="module")
def home(new_tenant: Callable[[], Tenant]) -> Tenant:
    """A tenant with a notebook that has this clone's package."""
    tenant = new_tenant()
    tenants.move_in(tenant.kubectl)
    tenant.kubectl.apply(tenants.notebook(tenant.image))
    tenant.kubectl.running(tenants.POD)
    tenants.carry(tenant.kubectl, tenants.POD, [tenants.our_package()])
    return tenant


@pytest.mark.long  # test_user_journey.py drives In-Graph servers in a notebook of the hub
def test_a_notebook_drives_servers_in_pods(home: Tenant, tmp_path: Path) -> None:
    """In a notebook's pod, `%tfcluster` launches tasks as pods by default, and a TensorFlow session
    of the notebook computes on them. NetworkPolicies that block all other pods are in force.
    """
    said = tenants.run_cells(home.kubectl, IN_GRAPH, tmp_path)
    assert "TARGET grpc://drive-1-worker-0.drive-1:2222" in said
    assert "ANSWER 42" in said
    assert "PHASE Stopped" in said


def test_a_large_program_lies_in_the_workspace(home: Tenant, tmp_path: Path) -> None:
    """A program above 64 KiB reaches its tasks through the workspace, and its output is readable in
    the notebook.
    """
    said = tenants.run_cells(home.kubectl, LARGE, tmp_path)
    assert re.search(r"PRINTED.*\b70000\b", said)
    assert "HERE 70000" in said


def test_nothing_starts_when_a_claim_is_full(home: Tenant, tmp_path: Path) -> None:
    """A launch warns if the log claim is nearly full, and is refused if it is full. With free space
    it works again.
    """
    said = tenants.run_cells(home.kubectl, FULL, tmp_path)
    assert re.search(r"WARNED .*your log folder holds 85Mi of 100Mi", said)
    assert re.search(r"REFUSED .*105Mi of 100Mi'; it is full, and nothing new starts", said)
    assert "AGAIN Succeeded" in said
