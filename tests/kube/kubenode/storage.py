"""The StorageClass for claims that many pods share: k8s/storage/glusterfs, as people apply it.

It takes the preset as it is, with images of the local registry in the place of the public ones. The
volume is gluster.py's; this module never touches it.
"""

from __future__ import annotations

from . import build, images, manifests, paths, registry
from .commands import run
from .errors import NodeError
from .node import Node

CLASS = "gluster"
NAMESPACE = "tfcluster-storage"
PRESET = paths.ROOT / "k8s" / "storage" / "glusterfs"
PUBLIC = {  # what the preset names: what stands for it here
    "rancher/local-path-provisioner:v0.0.30": "local-path-provisioner",
    "docker.io/library/busybox:1.37": "busybox",
}


def start(node: Node) -> None:
    """Offer the StorageClass; returns when its provisioner runs, so a node must take pods by then.

    Raises:
        NodeError: an image cannot be built, or the provisioner does not start.
    """
    text = run([build.binary("kubectl"), "kustomize", PRESET])
    for public, name in PUBLIC.items():
        if public not in text:
            raise NodeError(
                f"{PRESET} names no image {public}: let PUBLIC in {__name__} follow it."
            )
        image = images.build(name)
        registry.push(image, node)
        text = text.replace(public, image.reference)
    manifests.apply_texts(node, [text])
    rollout = ["rollout", "status", "deployment/provisioner", f"--namespace={NAMESPACE}"]
    manifests.kubectl(node, *rollout, "--timeout=180s")
