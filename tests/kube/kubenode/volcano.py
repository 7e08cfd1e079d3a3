"""Gang scheduling, an option: Volcano's scheduler, controllers and admission, as servers of node-1.

Its definitions, roles and webhooks come from its own installer, whose Deployments are left out.
Pods select Volcano by `schedulerName: volcano`; its queue is called `default`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from . import build, manifests
from .commands import wait_until
from .config import filled, flags
from .node import Node
from .pki import Pki

SERVER = "volcano-scheduler"  # the server that starts last
DEFINITIONS = {"CustomResourceDefinition", "ClusterRole"}
WEBHOOKS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
NAMESPACE = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}'
QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: check}
spec: {weight: 1}
"""


def start(node: Node) -> None:
    """Start Volcano on node-1; return when its queue is open and its admission answers.

    Raises:
        NodeError: a server ended or did not answer in time.
    """
    Pki(node).user("volcano-scheduler", "/CN=volcano-scheduler")
    Pki(node).user("volcano-controller-manager", "/CN=volcano-controller-manager")
    served = "volcano-admission-service.volcano-system.svc"
    Pki(node).user("volcano-webhook-manager", "/CN=volcano-webhook-manager", [f"DNS:{served}"])
    manifests.apply_texts(node, [NAMESPACE, *installer(DEFINITIONS)])
    manifests.apply(node, "volcano.yaml")
    manifests.kubectl(node, "wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    manifests.apply_texts(node, installer(WEBHOOKS))
    conf = "volcano-scheduler.conf"
    node.write(f"/etc/volcano/{conf}", filled(conf, node))
    run(node, "volcano-webhook-manager")
    # The webhooks refuse everything until they answer; a dry run creates nothing.
    node.write("/etc/volcano/queue.yaml", QUEUE)
    question: list[str | Path] = [
        build.binary("kubectl"), f"--kubeconfig={node.state}/pki/admin.kubeconfig",
        "create", "--dry-run=server", "-f", "/etc/volcano/queue.yaml",
    ]  # fmt: skip
    node.ready("volcano-webhook-manager", question)
    run(node, "volcano-controller-manager")
    run(node, "volcano-scheduler")
    state = ["get", "queue", "default", "-o", "jsonpath={.status.state}"]
    wait_until(
        lambda: manifests.kubectl(node, *state) == "Open", "Volcano's default queue", seconds=90
    )


def run(node: Node, server: str) -> None:
    """Start one of Volcano's servers."""
    node.start(server, [build.binary(server), *flags(server, node)])


def installer(kinds: set[str]) -> Iterator[str]:
    """Yield the objects of some kinds from Volcano's own installer."""
    (file,) = build.resources("volcano", "installer")
    for text in file.read_text().split("\n---\n"):
        kind = re.search(r"^kind: *(\w+)", text, re.MULTILINE)
        if kind and kind[1] in kinds:
            yield text
