"""A notebook whose node does not answer: how that is seen of its pod, and what its user is told.

Pure. The hub may not read nodes. Of a node that went away Kubernetes writes into each of its pods
that it is not ready, and leaves what the kubelet said of the containers last as it was.
Ref: https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...i18n import _
from ...kube.api.decoding import condition, seconds

Object = Mapping[str, Any]


def silent_since(pod: Object) -> float | None:
    """Since when the node of a notebook that ran has not answered, in seconds since the epoch;
    None while it does.
    """
    every = (pod.get("status") or {}).get("containerStatuses") or ()
    ready = condition(dict(pod), "Ready")
    if not every or not all(each.get("ready") for each in every) or ready.get("status") != "False":
        return None
    return seconds(ready.get("lastTransitionTime"))


def is_lost(pod: Object | None, now: float, patience: float) -> bool:
    """Whether a notebook is given up: its node has not answered for so many seconds."""
    since = silent_since(pod) if pod else None
    return since is not None and now - since >= patience


def node_of(pod: Object) -> str:
    """The node that a pod is on."""
    return str(pod["spec"].get("nodeName") or "")


def said(pod: Object) -> str:
    """What its user is told when a notebook was given up."""
    text = _(
        "The node {node}, on which your notebook ran, does not answer any more, so the notebook "
        "was given up. Your files are where they were, and your clusters go on; what its kernels "
        "had in memory is lost. Started again, it runs on another node."
    )
    return text.format(node=node_of(pod))
