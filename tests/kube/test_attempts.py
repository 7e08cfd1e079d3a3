"""The attempt number that each successive pod of a task sees, if the operator's objects are applied
without an operator.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from kubenode.commands import wait_until
from support.kube.kubectl import Kubectl
from support.kube.operator import dns
from support.kube.under_test import UnderTest

from tfcluster_magic import program
from tfcluster_magic.kube.objects import run_objects
from tfcluster_magic.kube.objects.policy import parse_policy
from tfcluster_magic.spec import Metadata, Replicas, ReplicaSet, Spec, TFCluster

TRAIN = """
import os, sys
print("attempt", os.environ["TFCLUSTER_ATTEMPT"], flush=True)
sys.exit(int(os.environ["TFCLUSTER_TASK"] == "worker-1" and os.environ["TFCLUSTER_ATTEMPT"] == "1"))
"""


def test_a_pod_knows_how_many_went_before(
    cluster: UnderTest, kube: Kubectl, tmp_path: Path
) -> None:
    """A pod that replaces a failed pod is attempt 2. It starts its program only after some seconds,
    because in that time an operator could decide that all workers start again together. It also
    starts if the other worker has ended, whose address is then missing.
    """
    (tmp_path / "train.py").write_text(TRAIN)
    taken, _ = program.snapshot("train.py", workspace=tmp_path, cwd=tmp_path)
    run = TFCluster(
        metadata=Metadata(name="group-1", cluster="group", run=1, uid="", created_at=0.0),
        spec=Spec(replicas=ReplicaSet(worker=Replicas(count=2)), program=taken),
    )
    said = {
        "defaultImage": cluster.description.images["notebook"],
        "defaultCpu": 0.1,
        **dict.fromkeys(("dataClaim", "logClaim", "workspaceClaim"), ""),
        **dns(cluster),
    }
    policy = parse_policy(yaml.safe_dump(said))
    kube.apply(*run_objects.objects_of_run(run, policy, namespace=kube.namespace))

    def ended() -> list[dict[str, object]]:
        pods = kube.every("pod", "tfcluster.dev/name=group-1")
        return [pod for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")]

    wait_until(lambda: len(ended()) == 3, "three pods have ended", seconds=300, every=1.0)
    kube.wait("job", "group-1-worker", lambda job: job["status"].get("succeeded") == 2, "it ends")
    said = {}
    for pod in ended():
        (state,) = pod["status"]["containerStatuses"]  # type: ignore[index]
        name = pod["metadata"]["name"]  # type: ignore[index]
        message = json.loads(state["state"]["terminated"]["message"])
        said[name.rpartition("-")[0], message["cause"]] = kube.logs(name)
    assert said.keys() == {
        ("group-1-worker-0", "Completed"),
        ("group-1-worker-1", "Error"),
        ("group-1-worker-1", "Completed"),
    }
    assert "waiting" not in said["group-1-worker-1", "Error"]
    again = said["group-1-worker-1", "Completed"]
    assert "waiting 7 s: all workers start again together, or none" in again
    assert "attempt 2" in again
    assert "going on without the address of group-1-worker-0.group-1" in again
