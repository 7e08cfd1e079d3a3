"""Since when a pod holds what it asks for, and how much that is. Pure.

A pod holds it from when it is bound to a node: from then on nobody else gets it.

Ref: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions
"""

from __future__ import annotations

from typing import Any

from ..api.amounts import asked_by
from ..api.decoding import condition, seconds

Object = dict[str, Any]


def since(pod: Object) -> float | None:
    """When it was bound to its node, in epoch seconds; None: not yet."""
    bound = condition(pod, "PodScheduled")
    return seconds(bound.get("lastTransitionTime")) if bound.get("status") == "True" else None


def cores(pod: Object) -> float:
    """CPU cores that it asks for, as completed by the API server."""
    return asked_by(pod["spec"]).get("cpu", 0.0)
