"""The StorageClass for shared claims: k8s/storage/glusterfs, as users apply it.

This module applies the manifests of that folder, with images from the local registry instead of the
public ones. gluster.py serves the volume itself.
"""

from __future__ import annotations

from . import build, images, manifests, paths, registry
from .commands import run
from .errors import NodeError
from .node import Node

CLASS = "gluster"
NAMESPACE = "tfcluster-storage"
PRESET = paths.ROOT / "k8s" / "storage" / "glusterfs"
PUBLIC = {  # the images in PRESET, each with the local image that replaces it
    "rancher/local-path-provisioner:v0.0.30": "local-path-provisioner",
    "docker.io/library/busybox:1.37": "busybox",
}


def start(node: Node) -> None:
    """Apply the StorageClass; return when its provisioner is running. This needs a node that takes
    pods.

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
