"""Features of the project's own cluster, in the format of support/kube/cluster_description.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from . import images, storage

FOR_PODS = ("busybox", "notebook")  # images that the tests' pods use
ALWAYS = (
    "gateway", "ingress", "network-policy", "node-inside", "quota", "registry", "rwx",
)  # fmt: skip


def write(file: Path, *, ingress: str, more: Sequence[str]) -> None:
    """Write the description of a cluster; `ingress` is the URL of its ingress controller."""
    texts = {
        "can": sorted([*ALWAYS, *more]),
        "storage-class": storage.CLASS,
        "ingress-class": "traefik",
        "gateway-class": "traefik",
        "ingress-address": ingress,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in texts.items()]  # valid TOML
    named = [f'{name} = "{images.build(name).reference}"' for name in FOR_PODS]
    file.write_text("\n".join([*lines, "", "[images]", *named, ""]))
