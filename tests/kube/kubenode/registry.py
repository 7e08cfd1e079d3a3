"""The nodes' image registry, `registry:5000`: Debian's docker-registry on node-1.

Pushed images stay in the cache, so that later pushes transfer only new layers. `registry:5000`
serves plain HTTP without a password, and only inside the nodes. The registry PRIVATE serves the
same images only with USER and PASSWORD.
"""

from __future__ import annotations

import time
from pathlib import Path

from . import paths
from .buildah import buildah
from .commands import say
from .config import filled
from .images import REGISTRY, Image, known
from .node import Node

PORT = int(REGISTRY.partition(":")[2])
PRIVATE = "registry:5001"
USER, PASSWORD = "tester", "open-sesame"
ACCOUNTS = f"{USER}:$2b$04$tfclustertfclustertfceR5c/FR3WLDWUVaHU6b9AOWKuKV3mvNu\n"  # bcrypt
MANIFESTS = "application/vnd.oci.image.manifest.v1+json"
# Zstd takes a tenth of gzip's time.
COMPRESSION = ["--compression-format=zstd", "--compression-level=1"]


def start(node: Node) -> None:
    """Start the registry on a node and wait until it answers.

    Raises:
        NodeError: it ended or did not answer in time.
    """
    storage = paths.cache() / "registry"
    storage.mkdir(parents=True, exist_ok=True)
    _serve(node, "registry", storage, PORT)
    node.write("/etc/docker-registry-accounts", ACCOUNTS)
    _serve(node, "registry-private", storage, int(PRIVATE.partition(":")[2]))


def _serve(node: Node, server: str, storage: Path, port: int) -> None:
    configuration = f"/etc/docker-{server}.yml"
    text = filled(f"{server}.yml", node, storage=str(storage), port=str(port))
    node.write(configuration, text)
    node.start(server, ["docker-registry", "serve", configuration])
    node.ready(server, ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"])


def configure(node: Node) -> None:
    """Configure containerd on a node for plain HTTP to both registries. containerd reads the
    configuration at each pull.
    """
    for server in (REGISTRY, PRIVATE):
        node.write(
            f"/etc/containerd/certs.d/{server}/hosts.toml",
            f'server = "http://{server}"\n[host."http://{server}"]\n'
            'capabilities = ["pull", "resolve"]\n',
        )


def push(image: Image, node: Node) -> None:
    """Push an image from buildah's storage to the registry on `node`, unless the registry has it.

    Raises:
        NodeError: the registry does not accept it.
    """
    if holds(image, node):
        return
    began = time.monotonic()
    buildah(
        ["push", "--quiet", "--tls-verify=false", *COMPRESSION, image.reference],
        network_of=node.pid,
        hosts=f"127.0.0.1 localhost\n{node.ip} registry",
    )
    say(f"image {image.name}: pushed in {time.monotonic() - began:.1f} s")


def holds(image: Image, node: Node) -> bool:
    """Return whether the registry on `node` has the image. It asks only for the manifest,
    which a registry accepts only after all layers.
    """
    asked = f"HEAD /v2/{image.name}/manifests/{image.tag} HTTP/1.0\r\nAccept: {MANIFESTS}\r\n\r\n"
    reply = node.run(["socat", "-t5", "-", f"TCP:127.0.0.1:{PORT}"], stdin=asked)
    return reply.split()[1:2] == ["200"]


def forget(reference: str, node: Node) -> None:
    """Remove an image from a node. Tests of private images need this, because a node gives a cached
    image even to pods without a Secret.
    """
    node.run(["ctr", "--namespace=k8s.io", "images", "rm", reference])


def forget_older(node: Node) -> None:
    """Remove images from a node that are no longer in buildah's storage. The node's disk outlives
    that storage.
    """
    lines = node.run(["ctr", "--namespace=k8s.io", "images", "ls"]).splitlines()[1:]
    digests = {reference: digest for reference, _, digest, *_ in map(str.split, lines)}
    stays = known()
    old = {
        digest
        for reference, digest in digests.items()
        if reference.startswith(f"{REGISTRY}/") and "@" not in reference and reference not in stays
    }
    old -= {digest for reference, digest in digests.items() if reference in stays}
    if gone := [reference for reference, digest in digests.items() if digest in old]:
        say(f"{node.name} forgets {len(old)} older images")
        node.run(["ctr", "--namespace=k8s.io", "images", "rm", *gone])
