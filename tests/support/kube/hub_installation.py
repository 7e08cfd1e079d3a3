"""Installation of this clone's hub on the tests' cluster: k8s/overlays/hub-* with current images.

`rendered` returns the objects that an administrator would apply, `apply` applies them. Beyond the
overlays, the hub has one more service, whose token `hub.Hub.api` uses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml
from kubenode import images, paths, registry
from support.kube.operator import dns, dns_patches
from support.kube.operator import policy as policy_of_tasks

if TYPE_CHECKING:
    from support.kube.kubectl import Object
    from support.kube.under_test import UnderTest

NAMESPACE = "tfcluster-hub"
STATE, AUDIT, ARCHIVES = "hub-state", "console-audit", "console-archives"
"""Claims of the hub, and their folders on node-1."""
ROOM = "24m"
"""Size of the volume for archives, so small that a test can fill it with a user's data."""
PREFIX = "/tf/"
TOKEN = "tests-" + "0" * 32
SCOPES = ["admin:users", "admin:servers", "admin:groups", "tokens", "access:servers"]
MISSING = "registry:5000/notebook:is-not-there"
APPENDED = f"""
c.TenantSpawner.patience_seconds = 5
c.TenantSpawner.lost_seconds = 5
c.Spawner.poll_interval = 5
c.JupyterHub.services.append({{"name": "tests", "api_token": "{TOKEN}"}})
c.JupyterHub.load_roles.append({{"name": "tests", "services": ["tests"], "scopes": {SCOPES!r}}})
c.KubeSpawner.args.append("--LabApp.expose_app_in_browser=True")
c.JupyterHub.last_activity_interval = 5  # idle notebooks are found within seconds
c.Spawner.environment.update({{"JUPYTERHUB_ACTIVITY_INTERVAL": "5"}})
services = c.JupyterHub.services.get_value([])
(culler,) = [each for each in services if each["name"] == "idle-culler"]
culler["command"][culler["command"].index("--cull-every=60")] = "--cull-every=5"
"""
OWN_DISK = "tests-own-disk"
"""The name of a group, and of the storage class of its claims. test_console_usage.py creates both.
"""
HUGE = {"name": "huge", "title": "Too large", "cpu": 512, "memory": "4Ti"}


def policy(cluster: UnderTest) -> str:
    """Return the policy for users on the tests' cluster."""
    notebook = cluster.description.images["notebook"]
    small = {"name": "small", "cpu": 0.01, "memory": "256Mi", "memoryLimit": "2Gi"}
    storage = {"class": cluster.description.storage_class, "workspace": "200Mi"}
    said = {
        "default": {
            "sizes": [small, HUGE],
            "storage": {**storage, "data": "100Mi", "log": "100Mi"},
        },
        "groups": {
            "ml": {"sizes": [small, {**small, "name": "large", "title": "Large, of the group ml"}]},
            "brief": {"idle": {"cull": 5}},
            OWN_DISK: {
                "storage": {"class": OWN_DISK, "workspace": "50Mi", "data": "50Mi", "log": "50Mi"}
            },
        },
        "images": [{"name": "notebook", "image": notebook}, {"name": "lost", "image": MISSING}],
        **dns(cluster),
    }
    return yaml.safe_dump(said)


def rendered(
    cluster: UnderTest,
    folder: Path,
    way: str = "ingress",
    prefix: str = PREFIX,
    *,
    settings: Sequence[str] = (),
    files: Mapping[str, str] = MappingProxyType({}),
    ingress: Sequence[Object] = (),
    pool: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the output of `kubectl kustomize k8s/overlays/hub-<way>` for the tests' cluster.

    `settings` are further lines of hub-settings, and `files` further files of hub-config with their
    text. `ingress` are operations that change the Ingress. `pool` selects the nodes for all pods
    except notebooks, with the keys `nodeSelector` and `tolerations`.
    """
    copy = folder / f"hub-{way}-{prefix.strip('/').replace('/', '-')}"
    for part in ("k8s", "hub_config"):
        shutil.copytree(paths.ROOT / part, copy / part, ignore=shutil.ignore_patterns("proxy"))
    with (copy / "hub_config" / "jupyterhub_config.py").open("a") as config:
        config.write(APPENDED)
    (copy / "hub_config" / "policy.yaml").write_text(policy(cluster))
    if files:
        _add_files(copy / "hub_config", files)
    (copy / "k8s" / "base" / "policy.yaml").write_text(policy_of_tasks(cluster, **pool))
    overlay = copy / "k8s" / "overlays" / f"hub-{way}"
    said = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    for image in said["images"]:
        reference = _pushed(cluster, image["name"].removeprefix("tfcluster/"))
        image["newName"], _colon, image["newTag"] = reference.rpartition(":")
    said["configMapGenerator"][0]["literals"] = [
        f"TFCLUSTER_HUB_BASE_URL={prefix}",
        f"TFCLUSTER_HUB_NOTEBOOK_IMAGE={cluster.description.images['notebook']}",
        *settings,
    ]
    patches = [*_patches(cluster, way), *(_patch("Ingress", "hub", each) for each in ingress)]
    said["patches"] = [*said.get("patches", []), *patches, *_placed(pool)]
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(said))
    return cluster.kubectl("kustomize", str(overlay))


def _add_files(folder: Path, files: Mapping[str, str]) -> None:
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name, text in files.items():
        (folder / name).write_text(text)
        said["configMapGenerator"][0]["files"].append(name)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(said))


def _pushed(cluster: UnderTest, name: str) -> str:
    assert cluster.own, "the hub's images can be pushed only to the project's own node"
    image = images.build(name)
    registry.push(image, cluster.own.first)
    return image.reference


def _patches(cluster: UnderTest, way: str) -> Sequence[Object]:
    known = cluster.description
    # On the project's own node, use the node's disk, because a database should not be on GlusterFS.
    state = {
        "op": "add",
        "path": "/spec/storageClassName",
        "value": "" if cluster.own else known.storage_class,
    }
    found = [_patch("PersistentVolumeClaim", name, state) for name in (STATE, AUDIT, ARCHIVES)]
    found += dns_patches(cluster)
    if way == "ingress":
        name = {"op": "add", "path": "/spec/ingressClassName", "value": known.ingress_class}
        return [*found, _patch("Ingress", "hub", name)]
    gateway = [{"name": "traefik", "namespace": "kube-system"}]
    parents = {"op": "replace", "path": "/spec/parentRefs", "value": gateway}
    return [*found, _patch("HTTPRoute", "hub", parents)]


def _placed(pool: Mapping[str, Any]) -> Sequence[Object]:
    """Return the patch by which every Deployment runs only on these nodes."""
    if not pool:
        return []
    inside = "/spec/template/spec"
    chosen = {"op": "add", "path": f"{inside}/nodeSelector", "value": pool["nodeSelector"]}
    tolerated = ({"path": f"{inside}/tolerations/-", "value": each} for each in pool["tolerations"])
    return [_patch("Deployment", ".*", chosen, *({"op": "add", **each} for each in tolerated))]


def _patch(kind: str, name: str, *operations: Object) -> Object:
    return {"target": {"kind": kind, "name": name}, "patch": json.dumps(operations)}


def apply(cluster: UnderTest, text: str) -> None:
    """Apply the output of `rendered`, and wait until the four Deployments in it are ready."""
    every = ["apply", "--server-side", "--force-conflicts", "-f", "-"]
    cluster.kubectl(*every, stdin=text, seconds=180)
    inside = cluster.kubectl.within(NAMESPACE)
    for name in ("proxy", "hub", "tenancy", "console"):
        inside("rollout", "status", f"deployment/{name}", "--timeout=60s", seconds=70)


def reapply(cluster: UnderTest, text: str) -> None:
    """Do the same as `apply`, but keep the policy, which other tests extend for their groups."""
    every = yaml.safe_load_all(text)
    kept = [each for each in every if each["metadata"]["name"] != "tfcluster-hub-policy"]
    apply(cluster, yaml.safe_dump_all(kept))


def own_disk(cluster: UnderTest, claim: str = STATE) -> Object:
    """Return a volume on the disk of node-1 for a claim of the hub, with an empty folder."""
    assert cluster.own
    folder = disk(claim)
    cluster.own.first.run(["install", "-d", "-o1000", "-g100", "-m700", folder])
    if claim == ARCHIVES:
        options = f"size={ROOM},uid=1000,gid=100,mode=700"
        mount = f"mountpoint -q {folder} || mount -t tmpfs -o {options} archives {folder}"
        cluster.own.first.run(["sh", "-c", mount])
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": claim},
        "spec": {
            "capacity": {"storage": "50Gi" if claim == ARCHIVES else "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": NAMESPACE, "name": claim},
            "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def disk(claim: str) -> str:
    """Return the folder of node-1 for a claim of the hub."""
    return f"/var/lib/tfcluster/{claim}"


def bring_secrets(cluster: UnderTest) -> str:
    """Run the documented command that creates the hub's Secrets; return its messages."""
    environment = {**os.environ, "KUBECONFIG": cluster.kubectl.kubeconfig}
    words = [sys.executable, "-m", "tfcluster_magic.hub", "secrets"]
    made = subprocess.run(
        words, env=environment, cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    cluster.kubectl("apply", "-f", "-", stdin=made.stdout)
    return made.stderr
