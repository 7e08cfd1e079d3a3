"""An overlay outside the clone, from the commands and blocks of docs/how-to/hub-kubernetes.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from kubenode.paths import ROOT
from support import doc_pages
from support.kube.kubectl import Object
from support.kube.under_test import UnderTest

PAGE = ROOT / "docs" / "how-to" / "hub-kubernetes.md"
DISK = "fast-disk"


def block(beginning: str) -> str:
    """Return the block of the page that begins with a text."""
    (found,) = (each.text for each in doc_pages.blocks(PAGE) if each.text.startswith(beginning))
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
    copying = "\n".join(re.findall(r"^\$ (.*)$", block("$ mkdir site"), re.MULTILINE))
    subprocess.run(["sh", "-ec", copying], cwd=tmp_path, check=True)
    site = tmp_path / "site"
    for name in ("jupyterhub_config.py", "hub-policy.yaml", "operator-policy.yaml"):
        with (site / name).open("a") as file:
            file.write("# changed here\n")
    (site / "httproute.yaml").write_text(block("apiVersion: gateway.networking.k8s.io"))
    written = site / "kustomization.yaml"
    said: dict[str, Any] = yaml.safe_load(written.read_text())
    more: dict[str, Any] = yaml.safe_load(block("resources:\n"))
    said["resources"] = more["resources"]
    said["configMapGenerator"] += more["configMapGenerator"]
    said |= yaml.safe_load(block("patches:\n"))
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
