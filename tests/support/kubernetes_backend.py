"""The Kubernetes backend on a server that stores objects, with a kubeconfig, as on a laptop."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from support.kube_server import KubeServer
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.backends.kubernetes.namespace_access import OPTIONS_KEY
from tfcluster_magic.kube.api import labels
from tfcluster_magic.kube.api.client import path
from tfcluster_magic.launch_checks.kubernetes import FACTS_KEY, LaunchFacts
from tfcluster_magic.quota.preflight import Limit, Options

NAMESPACE = "alice"
MUCH = Limit(total=1e15, free=1e15)


def publish(server: KubeServer, offer: LaunchFacts | None = None, **options: object) -> None:
    """Write the ConfigMap in which the operator publishes the launch options of the namespace."""
    told = {"backend": "kubernetes", "cpu": MUCH, "memory": MUCH, "gpu": MUCH, **options}
    data = {
        OPTIONS_KEY: msgspec.json.encode(Options(**told)).decode(),  # type: ignore[arg-type]
        FACTS_KEY: msgspec.json.encode((offer or LaunchFacts()).published()).decode(),
    }
    server.put(path("configmaps", NAMESPACE, labels.OPTIONS), {"data": data})


def backend(
    server: KubeServer, folder: Path, patched: pytest.MonkeyPatch, name: str = NAMESPACE
) -> KubernetesBackend:
    """Return a backend for the server; write a kubeconfig for this, and set KUBECONFIG to it."""
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
