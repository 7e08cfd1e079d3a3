"""Whether an object that is there is what it shall be, and who it belongs to. Pure.

Promises that what the API server writes of its own (status, uid, amounts in another unit, empty
things that are left out) is no difference, and that whatever else somebody altered is one. Claims
and service accounts have more than is said of them: of those only what is said is compared.

Ref: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...kube.api import labels
from ...kube.api.amounts import quantity

Object = dict[str, Any]

CONTENT = {
    "ServiceAccount": ("imagePullSecrets",),
    "RoleBinding": ("roleRef", "subjects"),
    "LimitRange": ("spec",),
    "ResourceQuota": ("spec",),
    "NetworkPolicy": ("spec",),
    "PersistentVolumeClaim": (),
}
"""What of each kind is compared; of a claim its size alone (`grows`)."""


def trim(found: Object) -> Object:
    """What is kept of an object that is there."""
    head = found["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp")
    status = found.get("status") or {}
    where = mounted_at(found)
    marks = {"annotations": {labels.MOUNTED_AT: where}} if where else {}
    content = {key: found[key] for words in CONTENT.values() for key in words if key in found}
    return {
        "metadata": {**{key: head[key] for key in kept if key in head}, **marks},
        **content,
        "spec": found.get("spec"),
        "phase": status.get("phase"),
        "counts": "used" in status or "hard" not in (found.get("spec") or {}),
    }


def is_as(wanted: Object, found: Object) -> bool:
    """Whether an object that is there is as it shall be."""
    marks = found["metadata"].get("labels") or {}
    if any(marks.get(key) != value for key, value in wanted["metadata"]["labels"].items()):
        return False
    if mounted_at(wanted) != mounted_at(found):
        return False
    words = CONTENT[wanted["kind"]]
    return all(_same(wanted.get(word), found.get(word)) for word in words)


def mounted_at(found: Object) -> str:
    """Where all tasks of a namespace read a claim; empty for what they do not."""
    marks = found["metadata"].get("annotations") or {}
    return str(marks.get(labels.MOUNTED_AT) or "")


def grows(wanted: Object, found: Object) -> bool:
    """Whether a claim is smaller than it shall be; one that is larger stays so."""
    return _size(found) < _size(wanted)


def is_astray(wanted: Object, found: Object, classes: Collection[str]) -> bool:
    """Whether a claim waits for what is not wanted any more: another class, or another volume.

    One that has a volume never does: nobody but its user may give up what is in it.
    """
    if found.get("phase") not in (None, "", "Pending"):
        return False
    said, there = wanted["spec"], found["spec"]
    if said.get("volumeName"):
        return bool(said["volumeName"] != there.get("volumeName"))
    class_, old = said.get("storageClassName"), there.get("storageClassName")
    if class_ is None:  # the cluster's default, whichever the API server took for it
        return bool(old is not None and old not in classes)
    return bool(class_ != old)


def _size(claim: Object) -> float:
    return quantity(claim["spec"]["resources"]["requests"]["storage"])


def _same(wanted: Any, found: Any) -> bool:
    if _is_empty(wanted) and _is_empty(found):
        return True
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(_same(wanted.get(key), found.get(key)) for key in wanted.keys() | found.keys())
    if isinstance(wanted, list) and isinstance(found, list):
        pairs = zip(wanted, found, strict=False)
        return len(wanted) == len(found) and all(_same(w, f) for w, f in pairs)
    return bool(wanted == found) or _same_amount(wanted, found)


def _is_empty(value: Any) -> bool:
    return value is None or value in ([], {})


def _same_amount(wanted: Any, found: Any) -> bool:
    if not isinstance(wanted, str) or not isinstance(found, str):
        return False
    try:
        return quantity(wanted) == quantity(found)
    except ValueError:
        return False
