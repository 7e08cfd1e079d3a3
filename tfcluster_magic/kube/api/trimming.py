"""What caches keep of an object: what somebody here reads. Pure.

Promises never to change the object that it is given, and that what `observe`, `waiting` and `room`
read is still there. A cache of 600 pods is a few MiB this way.
"""

from __future__ import annotations

from typing import Any

from ...spec import Phase

Object = dict[str, Any]

_OF_POD = (
    *("nodeName", "nodeSelector", "volumes", "imagePullSecrets", "overhead", "resources"),
    *("schedulerName", "priorityClassName"),
)
_OF_CONTAINER = ("name", "image", "resources")
_FINAL = {phase.value for phase in Phase if phase.is_final}


def pod(found: Object) -> Object:
    """A pod without what its containers are told to do."""
    spec = found.get("spec") or {}
    kept = {key: spec[key] for key in _OF_POD if key in spec}
    kept["containers"] = [
        {key: each[key] for key in _OF_CONTAINER if key in each}
        for each in spec.get("containers") or []
    ]
    return {"metadata": _head(found), "spec": kept, "status": found.get("status") or {}}


def job(found: Object) -> Object:
    """A Job without its pods' template."""
    kept = {key: value for key, value in found["spec"].items() if key != "template"}
    return {"metadata": _head(found), "spec": kept, "status": found.get("status") or {}}


def node(found: Object) -> Object:
    """A node without the images it holds."""
    status = {key: value for key, value in found["status"].items() if key != "images"}
    return {"metadata": _head(found), "spec": found.get("spec") or {}, "status": status}


def tfcluster(found: Object) -> Object:
    """A TFCluster; one that is over and gave everything back without its program."""
    kept = {**found, "metadata": _head(found)}
    status = found.get("status") or {}
    if status.get("phase") in _FINAL and status.get("releasedAt") is not None:
        kept["spec"] = {key: value for key, value in found["spec"].items() if key != "program"}
    return kept


def _head(found: Object) -> Object:
    head = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    notes = head.get("annotations")
    if notes:
        # What kubectl apply keeps is the whole object once more.
        last = "kubectl.kubernetes.io/last-applied-configuration"
        head["annotations"] = {key: value for key, value in notes.items() if key != last}
    return head
