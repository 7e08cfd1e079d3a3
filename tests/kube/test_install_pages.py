"""Blocks of the pages for administrators: an overlay outside the clone, a user's namespace, the
check of a StorageClass.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubenode.paths import ROOT
from support import doc_pages
from support.kube.kubectl import Kubectl, Object
from support.kube.under_test import UnderTest

HUB = "hub-kubernetes"
DISK = "fast-disk"


def block(page: str, beginning: str) -> str:
    """Return the block of a how-to that begins with a text."""
    blocks = doc_pages.blocks(ROOT / "docs" / "how-to" / f"{page}.md")
    (found,) = (each.text for each in blocks if each.text.startswith(beginning))
    return found


def made(cluster: UnderTest, overlay: Path) -> dict[tuple[str, str, str], Object]:
    """Return the objects of an overlay by kind, namespace and name without its hash."""
    objects = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(overlay))))
    heads = [each["metadata"] for each in objects]
    return {
        (
            each["kind"],
            head.get("namespace", ""),
            re.sub(r"-[a-z0-9]{10}$", "", head["name"]),
        ): each
        for each, head in zip(objects, heads, strict=True)
    }


def test_an_overlay_outside_the_clone(cluster: UnderTest, tmp_path: Path) -> None:
    """The folder has its own policies, configuration, patches and routes, and all other objects of
    the clone's overlay.
    """
    (tmp_path / "tfcluster").symlink_to(ROOT)
    copying = "\n".join(re.findall(r"^\$ (.*)$", block(HUB, "$ mkdir site"), re.MULTILINE))
    subprocess.run(["sh", "-ec", copying], cwd=tmp_path, check=True)
    site = tmp_path / "site"
    for name in ("jupyterhub_config.py", "hub-policy.yaml", "operator-policy.yaml"):
        with (site / name).open("a") as file:
            file.write("# changed here\n")
    (site / "httproute.yaml").write_text(block(HUB, "apiVersion: gateway.networking.k8s.io"))
    written = site / "kustomization.yaml"
    said: dict[str, Any] = yaml.safe_load(written.read_text())
    more: dict[str, Any] = yaml.safe_load(block(HUB, "resources:\n"))
    said["resources"] = more["resources"]
    said["configMapGenerator"] += more["configMapGenerator"]
    said |= yaml.safe_load(block(HUB, "patches:\n"))
    written.write_text(yaml.safe_dump(said))

    mine = made(cluster, site)
    upstream = made(cluster, ROOT / "k8s" / "overlays" / "hub-httproute")
    assert {*mine} - {*upstream} == {("HTTPRoute", "tfcluster-hub", "hub-redirect")}
    assert {*upstream} <= {*mine}
    for namespace, name, key in (
        ("tfcluster-hub", "hub-config", "jupyterhub_config.py"),
        ("tfcluster-hub", "tfcluster-hub-policy", "policy.yaml"),
        ("tfcluster-system", "tfcluster-policy", "policy.yaml"),
    ):
        theirs = upstream["ConfigMap", namespace, name]["data"][key]
        assert mine["ConfigMap", namespace, name]["data"] == {key: theirs + "# changed here\n"}
    policy = mine["ConfigMap", "tfcluster-hub", "tfcluster-hub-policy"]
    assert policy["metadata"]["name"] == "tfcluster-hub-policy"

    for (kind, _, name), each in mine.items():
        if kind == "PersistentVolumeClaim":
            assert each["spec"]["storageClassName"] == DISK
        if kind == "ServiceAccount":
            assert each["imagePullSecrets"] == [{"name": "registry"}]
        if (kind, name) == ("NetworkPolicy", "dns"):
            assert each["spec"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "192.0.2.10/32"}}]
    archives = mine["PersistentVolumeClaim", "tfcluster-hub", "console-archives"]["spec"]
    assert archives["resources"]["requests"]["storage"] == "200Gi"

    routes = [mine["HTTPRoute", "tfcluster-hub", name]["spec"] for name in ("hub", "hub-redirect")]
    assert [route["parentRefs"][0]["sectionName"] for route in routes] == ["https", "http"]
    paths = {route["rules"][0]["matches"][0]["path"]["value"] for route in routes}
    assert paths == {"/tf/"}


def test_a_namespace_for_a_user(cluster: UnderTest) -> None:
    """The API server accepts every object, and the claims get volumes."""
    name = f"alice-{uuid.uuid4().hex[:8]}"
    text = block("install-kubernetes", "apiVersion: v1\nkind: Namespace\n")
    objects = list(yaml.safe_load_all(re.sub(r"\balice\b", name, text)))
    for each in objects:
        if each["kind"] == "PersistentVolumeClaim":
            each["spec"]["storageClassName"] = cluster.description.storage_class
    inside = cluster.kubectl.within(name)
    try:
        inside.apply(*objects)
        for claim in ("workspace", "data", "log"):
            inside.wait("pvc", claim, is_bound, "it is bound")
        quota = inside.get("resourcequota", "tasks")["spec"]["hard"]
        assert quota["count/tfclusters.tfcluster.dev"] == "40"
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def is_bound(claim: Object) -> bool:
    """Return whether a claim has a volume."""
    return bool(claim["status"]["phase"] == "Bound")


@pytest.mark.needs("rwx", "two-nodes")
def test_the_check_of_a_storage_class(cluster: UnderTest, kube: Kubectl, tmp_path: Path) -> None:
    """Both pods say that the class is usable."""
    objects = list(yaml.safe_load_all(block("storage", "apiVersion: v1\n")))
    claim, job = objects
    claim["spec"]["storageClassName"] = cluster.description.storage_class
    job["spec"]["template"]["spec"]["containers"][0]["image"] = cluster.busybox
    file = tmp_path / "storage-check.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    said = ""
    for line in block("storage", "$ kubectl apply").splitlines():
        words = line.removeprefix("$ kubectl ").replace(file.name, str(file)).split()
        said += kube(*words, seconds=620)
    assert re.search(r"^writer: ok, the other node answered after \d+ s$", said, re.MULTILINE)
    assert re.search(r"^reader: ok$", said, re.MULTILINE)
