"""What becomes of a user who was removed: rights go, runs are stopped, data stays.

Promises that a namespace is deleted only when its annotation says that the data shall go, or the
policy does, and only after its runs: a namespace that goes before them can stay Terminating. It
removes one thing that keeps a namespace, the finalizers of TFClusters: no other controller has any
business on our kind. Users may write no other kind; what an administrator's own controllers keep,
they must release.
"""

from __future__ import annotations

import logging
import time

from ...i18n import _
from ...kube.api import labels
from ...kube.api.client import Api, ApiError, Object, path
from ...kube.api.decoding import condition
from ...kube.api.gone import COLLECTOR, discard, is_deleted, keepers

REMOVED, REMOVED_DATA = f"{labels.GROUP}/removed", f"{labels.GROUP}/removed-data"
AGAIN = 1.0
"""Seconds until one looks whether runs and pods have gone."""
FINAL = ("Succeeded", "Failed", "Stopped")

log = logging.getLogger(__name__)


def is_removed(namespace: Object) -> bool:
    """Whether the hub says that the user of a namespace was removed."""
    return REMOVED in (namespace["metadata"].get("annotations") or {})


def loses_data(namespace: Object, by_default: bool) -> bool:
    """Whether the data of a removed user shall go: as was asked, else as the policy says."""
    said = (namespace["metadata"].get("annotations") or {}).get(REMOVED_DATA)
    return by_default if said is None else said == "true"


def under_way(namespace: Object) -> str:
    """Say of a namespace that is being deleted what keeps it, if Kubernetes knows."""
    told = condition(namespace, "NamespaceFinalizersRemaining")
    if told.get("status") != "True":
        return _("the namespace is being deleted")
    text = _("the namespace is being deleted, and finalizers keep it. Kubernetes says: {why}")
    return text.format(why=told.get("message", ""))


def stop_runs(api: Api, namespace: str, reason: str) -> None:
    """Stop what still runs, with a reason that its record keeps. Raises ApiError."""
    where = path("tfclusters", namespace)
    for run in api.every(where).items:
        over = (run.get("status") or {}).get("phase") in FINAL
        if not over and not (run.get("spec") or {}).get("stop"):
            stop = {"reason": reason, "by": "tfcluster-tenancy", "at": time.time()}
            api.merge(f"{where}/{run['metadata']['name']}", {"spec": {"stop": stop}})


def discard_runs(api: Api, namespace: str) -> bool:
    """Delete the runs of a namespace; whether there was one. Raises ApiError.

    A namespace that is deleted before them waits for their pods, and these for their Jobs, which
    make no other pods there any more and let none go that has failed:
    https://kubernetes.io/docs/concepts/workloads/controllers/job/#backoff-limit-per-index
    Finalizers that somebody else has set would keep them for ever, and are removed.
    """
    where = path("tfclusters", namespace)
    runs = api.every(where).items
    for run in runs:
        name = run["metadata"]["name"]
        if not is_deleted(run):
            discard(api, f"{where}/{name}", run["metadata"]["uid"])
        elif keepers(run):
            _release(api, f"{where}/{name}", run)
    return bool(runs)


def _release(api: Api, where: str, run: Object) -> None:
    """Remove what keeps a deleted run; what somebody changed just now is tried next time.

    Raises ApiError.
    """
    head = run["metadata"]
    left = [each for each in head["finalizers"] if each in COLLECTOR]
    log.info("%s/%s: released from %s", head["namespace"], head["name"], ", ".join(keepers(run)))
    change = {"resourceVersion": head["resourceVersion"], "finalizers": left or None}
    try:
        api.merge(where, {"metadata": change})
    except ApiError as error:
        if not error.gone and error.status != 409:
            raise


def clear(api: Api, found: Object) -> float | None:
    """Delete the runs of a namespace, then itself; seconds until the next look, None when it is
    done. Raises ApiError.
    """
    namespace = found["metadata"]["name"]
    runs = discard_runs(api, namespace)
    tasks = "app.kubernetes.io/managed-by=tfcluster-operator"
    if runs or api.every(path("pods", namespace), labelSelector=tasks).items:
        return AGAIN
    discard(api, path("namespaces", "", namespace), found["metadata"]["uid"])
    return None
