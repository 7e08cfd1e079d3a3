"""The Kubernetes backend on a server that keeps objects, by a kubeconfig, as a laptop has it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from kube_server import KubeServer

from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.backends.kubernetes.published import OPTIONS
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.kube.capacity.offer import OFFER, Offer
from tfcluster_magic.quota.preflight import Limit, Options

NAMESPACE = "alice"
MUCH = Limit(total=1e15, free=1e15)


def publish(server: KubeServer, offer: Offer | None = None, **options: object) -> None:
    """What the operator says of the namespace."""
    told = {"backend": "kubernetes", "cpu": MUCH, "memory": MUCH, "gpu": MUCH, **options}
    data = {
        OPTIONS: msgspec.json.encode(Options(**told)).decode(),  # type: ignore[arg-type]
        OFFER: msgspec.json.encode((offer or Offer()).published()).decode(),
    }
    server.put(path("configmaps", NAMESPACE, labels.OPTIONS), {"data": data})


def backend(
    server: KubeServer, folder: Path, patched: pytest.MonkeyPatch, name: str = NAMESPACE
) -> KubernetesBackend:
    """The backend of whoever has the kubeconfig."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server.api().server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": name}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    patched.setenv("KUBECONFIG", str(file))
    return KubernetesBackend()
