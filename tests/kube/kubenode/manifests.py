"""Objects given to the API server as the cluster's admin: files of `manifests/`, and of modules.

kubectl runs on node-1, so this needs no door. It applies on the server's side: some definitions are
longer than the annotation that kubectl would keep of them. It never removes anything.
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
        NodeError: the API server refused one; the message has its words.
    """
    apply_texts(node, ((FOLDER / file).read_text() for file in files))


def apply_texts(node: Node, texts: Iterable[str]) -> None:
    """Apply objects given as YAML or JSON.

    Raises:
        NodeError: the API server refused one; the message has its words.
    """
    kubectl(node, "apply", "--server-side", "--force-conflicts", "-f-", stdin="\n---\n".join(texts))


def kubectl(node: Node, *arguments: str | Path, stdin: str = "") -> str:
    """Run kubectl on `node`, node-1, as the cluster's admin, and return what it prints.

    Raises:
        NodeError: it failed.
    """
    admin = f"--kubeconfig={node.state}/pki/admin.kubeconfig"
    return node.run([build.binary("kubectl"), admin, *arguments], stdin=stdin, timeout=240)
