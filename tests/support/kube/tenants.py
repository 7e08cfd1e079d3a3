"""The user of a tenant's namespace: an account with the user's rights, notebook pods, a kubeconfig.

`operator.new_tenant` creates the namespace; this module adds its user. The rights are those in
k8s/base/rbac-user.yaml, as a Role of the namespace, so that no test changes cluster-wide objects.
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from kubenode.paths import ROOT
from support.kube import workloads
from support.kube.kubectl import Kubectl, Object

ACCOUNT = "notebook"
POD = "notebook"
VOLUMES = {"workspace": "/home/jovyan", "data": "/data", "log": "/log"}
API = "rbac.authorization.k8s.io"
TASKS = {"matchLabels": {"app.kubernetes.io/managed-by": "tfcluster-operator"}}
CLIENT = {"port": 2230, "endPort": 2249, "protocol": "TCP"}
"""Ports of a notebook's pod from which In-Graph servers fetch data of a strategy's client; see
docs/how-to/install-kubernetes.md.
"""
CARRIED = "/tmp/carried"
CELLS = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in CELLS:
    shell.run_cell(cell).raise_error()
"""


def user_rules() -> Sequence[Object]:
    """Return the rights of a user in k8s/base."""
    said = yaml.safe_load((ROOT / "k8s" / "base" / "rbac-user.yaml").read_text())
    rules: Sequence[Object] = said["rules"]
    return rules


def rights(rules: Sequence[Object], namespace: str, account: str = ACCOUNT) -> list[Object]:
    """Return an account of `namespace`, and a Role with these rules that is bound to it."""
    head = {"name": account}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": head},
        {"apiVersion": f"{API}/v1", "kind": "Role", "metadata": head, "rules": list(rules)},
        {
            "apiVersion": f"{API}/v1",
            "kind": "RoleBinding",
            "metadata": head,
            "roleRef": {"apiGroup": API, "kind": "Role", "name": account},
            "subjects": [subject],
        },
    ]


def move_in(kube: Kubectl) -> None:
    """Add a user to a tenant's namespace, and allow the connections that notebooks need; return
    when the operator serves the namespace.
    """
    kube.apply(
        *rights(user_rules(), kube.namespace),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "notebook"},
            "spec": {
                "podSelector": {"matchLabels": {"tfcluster.dev/notebook": "true"}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": TASKS}], "ports": [CLIENT]}],
                "egress": [{}],
            },
        },
    )
    kube("wait", "--for=create", "configmap/tfcluster-options", "--timeout=180s", seconds=200)


def notebook(image: str, name: str = POD, **more: Any) -> Object:
    """Return a pod as the hub starts it for the user: with the user's account and volumes, and no
    other rights.
    """
    made = workloads.pod(
        name,
        image,
        "sleep",
        "86400",
        volumeMounts=[{"name": volume, "mountPath": at} for volume, at in VOLUMES.items()],
        env=[{"name": "JUPYTER_IMAGE_SPEC", "value": image}],
        resources={"requests": {"cpu": "10m", "memory": "256Mi"}},
        **more,
    )
    made["metadata"]["labels"]["tfcluster.dev/notebook"] = "true"
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in VOLUMES]
    made["spec"] |= {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": True,
        "volumes": claims,
    }
    return made


def carry(kube: Kubectl, pod: str, files: Iterable[tuple[Path, str]]) -> None:
    """Copy files and folders into a pod, each to its path below CARRIED. This clone's package is
    copied too, because the node may have started with an older image.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for source, path in files:
            archive.add(source, path, filter=_worth_it)
    into = f"mkdir -p {CARRIED} && base64 -d | tar -xz -C {CARRIED}"
    text = base64.b64encode(packed.getvalue()).decode()
    kube("exec", "-i", pod, "--", "sh", "-c", into, stdin=text)


def our_package() -> tuple[Path, str]:
    """Return this clone's package, to be copied into a pod by `carry`; a process of the pod imports
    it if PYTHONPATH is CARRIED.
    """
    return ROOT / "tfcluster_magic", "tfcluster_magic"


def _worth_it(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out compiled files, and files of other tests."""
    parts = Path(entry.name).parts
    others = parts[:1] == ("tests",) and (
        parts[1:2] not in ((), ("conftest.py",), ("support",), ("unit",))
        or (parts[1:2] == ("unit",) and parts[2:3] not in ((), ("backends",)))
    )
    return None if others or "__pycache__" in parts or "labextension" in parts else entry


def run_cells(kube: Kubectl, cells: Sequence[str], folder: Path) -> str:
    """Run cells one by one in one kernel of the notebook pod; return their output. `folder` belongs
    to the test.
    """
    script = folder / "cells.py"
    script.write_text(CELLS.replace("in CELLS", f"in {list(cells)!r}"))
    carry(kube, POD, [(script, "cells.py")])
    command = f"cd && PYTHONPATH={CARRIED} python -W ignore {CARRIED}/cells.py"
    return kube.exec(POD, "sh", "-c", command, seconds=600)


def kubeconfig(kube: Kubectl, where: Path, *, seconds: int = 3600, account: str = ACCOUNT) -> Path:
    """Return a kubeconfig of a namespace's user, as on a laptop, with a token that expires."""
    said = json.loads(kube("config", "view", "--raw", "--minify", "-o", "json"))
    token = kube("create", "token", account, f"--duration={seconds}s").strip()
    server: Object = said["clusters"][0]["cluster"]
    return write_kubeconfig(server, {"token": token}, kube.namespace, where)


def write_kubeconfig(server: Object, user: Object, namespace: str, where: Path) -> Path:
    """Write a kubeconfig for one server and one user."""
    context = {"cluster": "tests", "user": "user", "namespace": namespace}
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": server}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "tests", "context": context}],
        "current-context": "tests",
    }
    where.write_text(json.dumps(said))
    return where
