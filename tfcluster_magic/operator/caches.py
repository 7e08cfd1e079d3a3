"""What the operator knows of a cluster: one informer for each kind, and which run a change is of.

Promises one watch for each kind, of our own objects alone where there are others. Nodes are of the
whole cluster: an operator that may not read them goes on without.
"""

from __future__ import annotations

from collections.abc import Callable

from ..kube.api import decoding, labels, trimming
from ..kube.api.client import Api, Object, path
from ..kube.api.informer import Informer, Informers, Update

Key = tuple[str, str]
"""Namespace and name of a run."""

OURS = "app.kubernetes.io/managed-by=tfcluster-operator"


class Caches(Informers):
    """Runs, pods, Jobs and nodes as they are now.

    Args:
        api: the connection.
        namespace: only that one's; empty for all.
        wake: told the run that a change is of.
    """

    def __init__(self, api: Api, namespace: str, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._lost_nodes: frozenset[str] = frozenset()
        self.gone: Callable[[Object], None] = lambda _found: None
        """Told each run whose record went, as it was at last."""

        def of_runs(update: Update) -> None:
            wake(run_of(update.object))

        self.runs = Informer(
            api,
            path("tfclusters", namespace),
            shape=decoding.NAMED,
            trim=trimming.tfcluster,
            changed=self._run_changed,
        )
        self.pods = Informer(
            api,
            path("pods", namespace),
            selector=OURS,
            shape=decoding.POD,
            trim=trimming.pod,
            group=run_of,
            changed=of_runs,
        )
        self.jobs = Informer(
            api,
            path("jobs", namespace),
            selector=OURS,
            shape=decoding.JOB,
            trim=trimming.job,
            group=run_of,
            changed=of_runs,
        )
        self.nodes = Informer(
            api,
            path("nodes"),
            shape=decoding.NAMED,
            trim=trimming.node,
            changed=self._node_changed,
        )
        self.needed = (self.runs, self.pods, self.jobs)
        self.all = (*self.needed, self.nodes)

    @property
    def synced(self) -> bool:
        """Whether everything that is needed was seen once."""
        return all(each.synced.is_set() for each in self.needed)

    def lost_nodes(self) -> frozenset[str]:
        """The nodes that are not ready."""
        return self._lost_nodes

    def _run_changed(self, update: Update) -> None:
        head, old = update.object["metadata"], update.old
        if old is not None and (update.new is None or old["metadata"]["uid"] != head["uid"]):
            self.gone(old)
        self._wake((head["namespace"], head["name"]))

    def _node_changed(self, update: Update) -> None:
        old, new = update.old, update.new
        if old is not None and new is not None and is_ready(old) == is_ready(new):
            return  # a heartbeat
        name = update.object["metadata"]["name"]
        there = new is None or is_ready(new)
        self._lost_nodes = self._lost_nodes - {name} if there else self._lost_nodes | {name}
        for key in {run_of(p) for p in self.pods.every() if p["spec"].get("nodeName") == name}:
            self._wake(key)


def run_of(found: Object) -> Key:
    """The run that an object of ours belongs to."""
    head = found["metadata"]
    return head.get("namespace", ""), (head.get("labels") or {}).get(labels.NAME, "")


def is_ready(node: Object) -> bool:
    """Whether a node says that it is ready."""
    conditions = node["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
