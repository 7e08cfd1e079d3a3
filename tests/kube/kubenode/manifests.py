"""Objects applied as the cluster's admin, from `manifests/` and from modules.

kubectl runs on node-1, so that no door is needed. Objects are applied by the server
(`--server-side`), because some definitions do not fit into kubectl's annotation. This module never
deletes an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import build, paths
from .node import Node

FOLDER = paths.KUBE / "manifests"


def apply(node: Node, *files: str) -> None:
    """Apply files of `manifests/`.

    Raises:
        NodeError: the API server refused an object; the message has its answer.
    """
    apply_texts(node, ((FOLDER / file).read_text() for file in files))


def apply_texts(node: Node, texts: Iterable[str]) -> None:
    """Apply objects given as YAML or JSON.

    Raises:
        NodeError: the API server refused an object; the message has its answer.
    """
    kubectl(node, "apply", "--server-side", "--force-conflicts", "-f-", stdin="\n---\n".join(texts))


def kubectl(node: Node, *arguments: str | Path, stdin: str = "") -> str:
    """Run kubectl on `node`, which must be node-1, as the cluster's admin, and return its output.

    Raises:
        NodeError: kubectl failed.
    """
    admin = f"--kubeconfig={node.state}/pki/admin.kubeconfig"
    return node.run([build.binary("kubectl"), admin, *arguments], stdin=stdin, timeout=240)
