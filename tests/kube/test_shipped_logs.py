"""Logs of tasks, shipped by k8s/overlays/logs and a real OpenTelemetry Collector, and read back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubenode import build, images, paths, registry
from kubenode.commands import wait_until
from kubenode.errors import NodeError
from support.kube.kubectl import Kubectl, Object
from support.kube.operator import Tenant, spec_of
from support.kube.under_test import UnderTest
from support.kube.workloads import pod

from tfcluster_magic.spec import Lifecycle

pytestmark = [
    pytest.mark.long,  # the first run builds the collector, which takes ten minutes
    pytest.mark.alone,  # it reads the logs of all tasks of the node
    pytest.mark.needs("node-inside", "network-policy", "rwx"),
]
HOME = "tfcluster-logs"
PROGRAM = """
import os, sys, time
task = os.environ["TFCLUSTER_TASK"]
start = 1 + sum(name.startswith(f"{task}-began-") for name in os.listdir("."))
open(f"{task}-began-{start}", "w").close()
print(f"shipped: {task} start {start}", flush=True)
if task == "worker-1":
    sys.exit(start == 1)
while not os.path.exists("worker-1-began-2"):
    time.sleep(0.2)
"""
RECEIVER = """
import gzip, http.server, sys

class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        print(body.decode().replace(chr(10), " "), flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

http.server.ThreadingHTTPServer(("", 4318), Receiver).serve_forever()
"""
STRANGER = "echo shipped: by a stranger; sleep 3600"


@pytest.fixture
def receiver(kube: Kubectl, cluster: UnderTest) -> str:
    """Start a server of logs that prints what it gets, and return its address."""
    image = cluster.description.images["notebook"]
    kube.apply(pod("receiver", image, "python3", "-c", RECEIVER))
    return str(kube.running("receiver")["status"]["podIP"])


@pytest.fixture
def collector(cluster: UnderTest, receiver: str, tmp_path: Path) -> Iterator[Kubectl]:
    """The collector of k8s/overlays/logs, which sends JSON so that a test can read it."""
    assert cluster.own is not None
    build.build(["collector"])
    image = images.build("collector")
    registry.push(image, cluster.own.first)
    overlay = tmp_path / "logs"
    shutil.copytree(paths.ROOT / "k8s" / "overlays" / "logs", overlay)
    said = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    name, _colon, tag = image.reference.rpartition(":")
    said["images"] = [{"name": "otel/collector", "newName": name, "newTag": tag}]
    said["configMapGenerator"][1]["literals"] = [f"endpoint=http://{receiver}:4318"]
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(said))
    config = overlay / "collector-config.yaml"
    exporter = "  otlp_http:\n"
    assert exporter in config.read_text()
    config.write_text(config.read_text().replace(exporter, f"{exporter}    encoding: json\n"))
    cluster.kubectl("apply", "-k", str(overlay))
    inside = cluster.kubectl.within(HOME)
    try:
        inside("rollout", "status", "daemonset/collector", "--timeout=120s", seconds=150)
    except NodeError as error:
        said = inside("logs", "-l", "app=tfcluster-log-collector", "--tail=30")
        raise AssertionError(f"{error}\n{said}") from error
    yield inside
    cluster.kubectl("delete", "-k", str(overlay), "--wait=false")


def test_task_logs_have_run_task_attempt_and_user(
    cluster: UnderTest, tenant: Tenant, kube: Kubectl, collector: Kubectl, tmp_path: Path
) -> None:
    """Each printed line arrives once, with run, task, attempt and user; lines of pods that the
    operator did not create do not arrive. The collector is not root.
    """
    cluster.kubectl("annotate", "namespace", tenant.name, "tfcluster.dev/user=ida", "--overwrite")
    stranger = pod("stranger", cluster.busybox, "sh", "-c", STRANGER)
    stranger["spec"]["containers"][0]["name"] = "tensorflow"
    kube.apply(stranger)
    kube.running("stranger")
    (tmp_path / "train.py").write_text(PROGRAM)
    tenant.launch(
        "shipped-1", spec_of(tmp_path / "train.py", workers=2, lifecycle=Lifecycle(restarts=1))
    )
    tenant.wait("shipped-1", lambda status: status.get("releasedAt"), "it is over")
    wanted = {("worker-0", "1"), ("worker-1", "1"), ("worker-1", "2")}

    def lines() -> list[tuple[Object, str]]:
        """Return only the lines of this tenant's tasks: other tasks on the node are shipped too."""
        found = [each for each in _received(kube) if each[1].startswith("shipped: ")]
        assert not [line for _labels, line in found if "stranger" in line]
        return [each for each in found if each[0]["k8s.namespace.name"] == tenant.name]

    wait_until(
        lambda: {(a.get("task"), a.get("attempt")) for a, _line in lines()} >= wanted,
        "all lines are shipped",
        seconds=90,
        every=1.0,
    )
    found = lines()
    assert len({line for _labels, line in found}) == len(found), "a line came twice"
    for labels, line in found:
        assert line == f"shipped: {labels['task']} start {labels['attempt']}"
        assert (labels["run"], labels["user"]) == ("shipped-1", "ida")
        assert not [name for name in labels if name.startswith("tfcluster.")]
    (own,) = collector.every("pod", "app=tfcluster-log-collector")
    assert own["spec"]["securityContext"]["runAsUser"] == 10001


def _received(kube: Kubectl) -> list[tuple[Object, str]]:
    """Return the lines that the server of logs got, each with its labels."""
    found = []
    for body in kube.logs("receiver").splitlines():
        if not body.startswith("{"):
            continue
        for resource in json.loads(body)["resourceLogs"]:
            labels = {
                each["key"]: each["value"].get("stringValue")
                for each in resource["resource"]["attributes"]
            }
            records = [r for scope in resource["scopeLogs"] for r in scope["logRecords"]]
            found += [(labels, record["body"].get("stringValue", "")) for record in records]
    return found
