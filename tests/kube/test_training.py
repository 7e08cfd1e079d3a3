"""Training by plain manifests: the product's own runtime is process 1 of every pod."""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import Template

import pytest
from conftest import UnderTest
from kubectl import Kubectl, Object, condition
from kubenode.paths import KUBE, ROOT
from workloads import pod

MANIFESTS = KUBE / "manifests" / "digits"
RUNTIME = ROOT / "tfcluster_magic" / "runtime"
NAME = "digits-1"
STEPS = 600
COUNTS = {"ps": 1, "worker": 2}
TASK = {
    "version": 1,
    "cluster": "digits",
    "run": 1,
    "name": NAME,
    "uid": "digits-1",
    "mode": "between-graph",
    "counts": COUNTS,
    # An Indexed Job calls a pod by its own name and the index, below the Service's.
    "addressTemplate": "{name}-{type}-{index}.{name}",
    "port": 2222,
    "program": {
        "dir": "/tfcluster/program",
        "entrypoint": "between_graph.py",
        "arguments": [f"--steps={STEPS}"],
        "flags": ["ps_hosts", "worker_hosts", "job_name", "task_index", "log_path"],
        "serves": True,
        "workingDir": None,
    },
    "env": {},
    "threads": {"ps": 1, "worker": 1},
    "dataDir": "/data",
    "outputDir": f"/log/{NAME}",
    "resumeFrom": None,
    "grace": 10.0,
}


def config_map(name: str, files: dict[str, str]) -> Object:
    """Files for pods."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": files}


def texts(folder: Path, *names: str) -> dict[str, str]:
    """Files of the clone, as a ConfigMap's keys can name them."""
    return {name.replace("/", "--"): (folder / name).read_text() for name in names}


def launch(cluster: UnderTest, kube: Kubectl) -> None:
    """Apply all manifests of the training."""
    runtime = [str(each.relative_to(RUNTIME)) for each in sorted(RUNTIME.rglob("*.py"))]
    values = {
        "storage_class": cluster.description.storage_class,
        "image": cluster.description.images["notebook"],
        "runtime": json.dumps([{"key": n.replace("/", "--"), "path": n} for n in runtime]),
    }

    def manifest(file: str, **more: object) -> str:
        return Template((MANIFESTS / file).read_text()).substitute(values, **more)

    kube.apply(
        config_map("runtime", texts(RUNTIME, *runtime)),
        config_map("program", texts(ROOT / "examples", "between_graph.py", "digits.py")),
        config_map("task", {"task.json": json.dumps(TASK)}),
        manifest("claims.yaml"),
        manifest("network.yaml"),
        *(manifest("tasks.yaml", type=kind, count=count) for kind, count in COUNTS.items()),
    )


@pytest.mark.needs("rwx", "network-policy")
def test_digits_are_learned(cluster: UnderTest, kube: Kubectl) -> None:
    """Between-Graph training in restricted pods learns the digits; its ps ends when told."""
    launch(cluster, kube)
    kube.wait("job", f"{NAME}-worker", _is_over, "the workers have ended", seconds=600)
    assert condition(kube.get("job", f"{NAME}-worker"), "Complete") == "True", _logs(kube)
    for worker in kube.every("pod", f"tfcluster={NAME},type=worker"):
        assert _message(worker)["cause"] == "Completed"

    kube.apply(_reader(cluster))
    kube.running("reader")
    said = kube.exec("reader", "cat", f"/log/{NAME}/worker-0.log")
    accuracy = re.search(r"held-out accuracy: ([\d.]+)", said)
    assert accuracy, said
    assert float(accuracy[1]) >= 0.95
    saved = re.findall(r"model\.ckpt-(\d+)\.index", kube.exec("reader", "ls", f"/log/{NAME}"))
    assert max(map(int, saved)) >= STEPS

    (ps,) = kube.every("pod", f"tfcluster={NAME},type=ps")
    assert ps["status"]["phase"] == "Running"
    kube("patch", "job", f"{NAME}-ps", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    # Sooner than Kubernetes kills what does not end: the runtime has heard SIGTERM.
    kube.gone("pod", ps["metadata"]["name"], seconds=60)


def _reader(cluster: UnderTest) -> Object:
    """A pod of another image that sees the log volume."""
    reader = pod("reader", cluster.busybox, volumeMounts=[{"name": "log", "mountPath": "/log"}])
    reader["spec"]["volumes"] = [{"name": "log", "persistentVolumeClaim": {"claimName": "log"}}]
    return reader


def _is_over(job: Object) -> bool:
    return "True" in (condition(job, "Complete"), condition(job, "Failed"))


def _message(ended: Object) -> Object:
    """What the runtime left as the termination message."""
    state = ended["status"]["containerStatuses"][0]["state"]
    message: Object = json.loads(state["terminated"]["message"])
    return message


def _logs(kube: Kubectl) -> str:
    return kube("logs", "-l", f"tfcluster={NAME}", "--tail=20", "--prefix")
