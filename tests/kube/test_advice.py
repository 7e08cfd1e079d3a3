"""Advice on a run whose tasks are pods, from samples with the container's own limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubenode.commands import wait_until
from support.kube.operator import Tenant, spec_of
from support.kube.under_test import UnderTest
from support.kube.workloads import pod

from tfcluster_magic.spec import Metadata, Phase, Reason, Replicas, ReplicaSet, Resources, Status
from tfcluster_magic.spec import TFCluster as Cluster
from tfcluster_magic.usage.advice import advise
from tfcluster_magic.usage.samples import parse

LIMIT = 0.15
"""A CPU limit so low that the workers reach it on a busy machine, too."""
PROGRAM = """
import json, os, socket, time
import tfcluster
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
if task["type"] == "ps":
    host, _colon, port = config["cluster"]["ps"][task["index"]].rpartition(":")
    with socket.create_server((host, int(port))) as listener:
        while True:
            listener.accept()
end, step = time.monotonic() + 45, 0
while time.monotonic() < end:
    busy = time.thread_time() + 0.01
    while time.thread_time() < busy:
        pass
    time.sleep(0.001)
    step += 1
    tfcluster.progress(step)
"""
TASKS = ("worker-0", "worker-1", "ps-0")


@pytest.mark.needs("rwx")
def test_a_throttled_worker_is_named(tenant: Tenant, cluster: UnderTest, tmp_path: Path) -> None:
    """The kubelet's limit of CPU throttles the workers; their samples have the limit and the
    throttled time, and the advice is to raise the limit.
    """
    small = Resources(cpu=LIMIT, memory="256Mi")
    replicas = ReplicaSet(
        worker=Replicas(count=2, resources=small),
        ps=Replicas(count=1, resources=Resources(memory="256Mi")),
    )
    (tmp_path / "train.py").write_text(PROGRAM)
    spec = spec_of(tmp_path / "train.py", replicas=replicas)
    tenant.launch("throttled-1", spec)
    tenant.phase("throttled-1", "Succeeded", seconds=420)
    reader = pod("samples", cluster.busybox)
    reader["spec"]["containers"][0]["volumeMounts"] = [{"name": "log", "mountPath": "/log"}]
    reader["spec"]["volumes"] = [{"name": "log", "persistentVolumeClaim": {"claimName": "log"}}]
    tenant.kubectl.apply(reader)
    tenant.kubectl.running("samples")

    def content(task: str) -> str:
        path = f"/log/throttled/1/.tfcluster-usage/{task}.jsonl"
        return tenant.kubectl.exec("samples", "sh", "-c", f"cat {path} || true")

    wait_until(lambda: all(map(content, TASKS)), "the samples of all tasks", seconds=60)
    samples = {task: parse(content(task).encode()) for task in TASKS}
    assert {s[-1].cpu_limit for s in (samples["worker-0"], samples["worker-1"])} == {LIMIT}
    assert {s[-1].memory_limit for s in samples.values()} == {256 << 20}
    ended = Cluster(
        metadata=Metadata(name="throttled-1", cluster="throttled", run=1, uid="u", created_at=0.0),
        spec=spec,
        status=Status(phase=Phase.SUCCEEDED, reason=Reason.COMPLETED),
    )
    told = advise(ended, samples, {})
    assert [each.code for each in told.advice] == ["AdviceThrottled"], (told, samples)
    (found,) = told.advice
    assert found.task in ("worker-0", "worker-1")
    assert LIMIT < float(found.options["worker_cpu"]) <= 2 * LIMIT
