"""Manifests of `tfcluster render`, applied by kubectl on a cluster without operator and custom
resource.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest
import yaml
from kubenode.commands import wait_until
from kubenode.paths import KUBE, ROOT
from support.kube.kubectl import Kubectl, Object, condition
from support.kube.operator import dns
from support.kube.under_test import UnderTest
from support.kube.workloads import pod

CLAIMS = KUBE / "manifests" / "digits" / "claims.yaml"
DIGITS = ROOT / "examples" / "between_graph.py"
STEPS = 400
LAYOUTS = {
    "native": ("digits-1-worker",),
    "per-task": ("classic-1-worker-0", "classic-1-worker-1"),
}
"""The names of the workers' Jobs for each value of `--layout`."""
COUNTS = """
import json, os, pathlib, socket, time

config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["ps"][0].rsplit(":", 1)
if config["task"]["type"] == "ps":
    listener, total = socket.create_server(("", int(port))), 0
    while True:
        peer, _address = listener.accept()
        if peer.recv(3) == b"one":  # no probe
            total += 1
            peer.sendall(b"%d" % total)
        peer.close()
until = time.monotonic() + 60
while True:
    try:
        peer = socket.create_connection((host, int(port)), 5)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.2)
peer.sendall(b"one")
total = peer.recv(9).decode()
print("the parameter server counts", total, flush=True)
task, folder = os.environ["TFCLUSTER_TASK"], os.environ["TFCLUSTER_OUTPUT_DIR"]
pathlib.Path(folder, task + ".counted").write_text(total)
"""
"""A program whose workers need their parameter server, but no TensorFlow."""


def rendered(folder: Path, cluster: UnderTest, *words: str) -> str:
    """Return the output of `tfcluster render`."""
    policy = folder / "policy.yaml"
    image = cluster.description.images["notebook"]
    said = {"defaultImage": image, "workspaceClaim": "", "defaultCpu": 0.01, **dns(cluster)}
    policy.write_text(yaml.safe_dump(said))
    tfcluster = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]
    return subprocess.run(
        [*tfcluster, "render", f"--policy={policy}", *words],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture
def kube_with_claims(cluster: UnderTest, kube: Kubectl) -> Kubectl:
    """A namespace with the tasks' volumes, and a pod that reads them."""
    claims = Template(CLAIMS.read_text())
    kube.apply(claims.substitute(storage_class=cluster.description.storage_class))
    kube.apply(_reader(cluster))
    return kube


def ended(kube: Kubectl, layout: str) -> str:
    """Wait until the workers have ended and the pod `reader` is running; return the folder of the
    workers' output.
    """
    for job in LAYOUTS[layout]:
        kube.wait("job", job, lambda it: condition(it, "Complete") == "True", "it ends", 600)
    kube.running("reader")
    return f"/log/{LAYOUTS[layout][0].partition('-')[0]}/1"


def ends_with_its_manifests(kube: Kubectl, manifests: str) -> None:
    """Check that the parameter server runs until the applied manifests are deleted."""
    (server,) = [each for each in kube.every("pod") if "-ps-" in each["metadata"]["name"]]
    assert server["status"]["phase"] == "Running"
    kube("delete", "-f", "-", "--wait=false", stdin=manifests)
    kube("delete", "pod", "reader", "--wait=false")
    wait_until(lambda: not kube.every("pod"), "nothing is left", seconds=60)


@pytest.mark.needs("rwx", "network-policy")
def test_a_program_runs_by_kubectl_alone(
    cluster: UnderTest, kube_with_claims: Kubectl, tmp_path: Path
) -> None:
    """On a cluster without TFCluster, workers reach their parameter server and write output and
    files to the log volume. The parameter server runs until its manifests are deleted.
    """
    kube, program = kube_with_claims, tmp_path / "counts.py"
    program.write_text(COUNTS)
    words = ["--workers=2", "--ps=1", "--memory=128Mi", "--name=classic", str(program)]
    manifests = rendered(tmp_path, cluster, "--layout=per-task", *words)
    kube.apply(manifests)
    folder = ended(kube, "per-task")
    counted = [kube.exec("reader", "cat", f"{folder}/worker-{n}.counted") for n in range(2)]
    assert sorted(counted) == ["1", "2"]
    said = kube.exec("reader", "cat", f"{folder}/worker-0.log")
    assert f"the parameter server counts {counted[0]}" in said
    ends_with_its_manifests(kube, manifests)


@pytest.mark.long  # test_user_journey.py trains in pods of the same template
@pytest.mark.needs("rwx", "network-policy")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_digits_are_learned_by_kubectl_alone(
    cluster: UnderTest, kube_with_claims: Kubectl, tmp_path: Path, layout: str
) -> None:
    """Both layouts train to the end on a cluster without TFCluster, with output and checkpoints in
    the log volume. The parameter server runs until its manifests are deleted.
    """
    kube = kube_with_claims
    name = LAYOUTS[layout][0].partition("-")[0]
    launch = ["--workers=2", "--ps=1", "--memory=1536Mi", f"--name={name}", str(DIGITS)]
    words = [f"--layout={layout}", *launch, "--", f"--steps={STEPS}"]
    manifests = rendered(tmp_path, cluster, *words)
    kube.apply(manifests)
    folder = ended(kube, layout)
    said = kube.exec("reader", "cat", f"{folder}/worker-0.log")
    accuracy = re.search(r"held-out accuracy: ([\d.]+)", said)
    assert accuracy, said
    assert float(accuracy[1]) >= 0.95
    saved = re.findall(r"model\.ckpt-(\d+)\.index", kube.exec("reader", "ls", folder))
    assert max(map(int, saved)) >= STEPS
    ends_with_its_manifests(kube, manifests)


def _reader(cluster: UnderTest) -> Object:
    """Return a pod of another image that mounts the log volume."""
    reader = pod("reader", cluster.busybox, volumeMounts=[{"name": "log", "mountPath": "/log"}])
    reader["spec"]["volumes"] = [{"name": "log", "persistentVolumeClaim": {"claimName": "log"}}]
    return reader


@pytest.mark.parametrize("layout", ["native", "per-task"])
@pytest.mark.parametrize("mode", ["between-graph", "in-graph"])
def test_kubectl_applies_what_is_printed(
    cluster: UnderTest, kube: Kubectl, tmp_path: Path, layout: str, mode: str
) -> None:
    """The API server accepts every object of both layouts as printed."""
    program = [] if mode == "in-graph" else [str(DIGITS)]
    words = [f"--layout={layout}", f"--mode={mode}", "--workers=2", "--ps=1", *program]
    manifests = rendered(tmp_path, cluster, *words)
    said = kube("apply", "--dry-run=server", "-f", "-", stdin=manifests)
    assert len(said.splitlines()) == manifests.count("\nkind: ")
    assert all(line.endswith("created (server dry run)") for line in said.splitlines())
