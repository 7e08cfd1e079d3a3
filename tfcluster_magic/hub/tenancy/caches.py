"""Tenancy's caches of the cluster, and the comparison of existing with wanted objects.

There is one informer for each kind, limited to our own objects. A changed object causes a
reconciliation of its namespace; a change of a quota's usage does not. Secrets are never listed. The
comparison ignores defaults that the API server fills in.

Ref: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Collection
from typing import Any

from ...kube.api import labels
from ...kube.api.client import Api, path
from ...kube.api.decoding import epoch_seconds
from ...kube.api.informer import CacheUpdate, Informer, InformerGroup
from ...kube.api.resource_amounts import parse_quantity
from .namespace_objects import HUB, MANAGED_BY, MANAGER, ApiServerAddress

Object = dict[str, Any]

CONTENT = {
    "ServiceAccount": ("imagePullSecrets",),
    "RoleBinding": ("roleRef", "subjects"),
    "LimitRange": ("spec",),
    "ResourceQuota": ("spec",),
    "NetworkPolicy": ("spec",),
    "PersistentVolumeClaim": (),
}
"""The fields of each kind that `is_as_wanted` compares. The size of a claim is compared by
`must_grow`.
"""


def trim_object(found: Object) -> Object:
    """Return the fields of an object that are cached."""
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


def is_as_wanted(wanted: Object, found: Object) -> bool:
    """Return whether an object equals the wanted one in the compared fields."""
    marks = found["metadata"].get("labels") or {}
    if any(marks.get(key) != value for key, value in wanted["metadata"]["labels"].items()):
        return False
    if mounted_at(wanted) != mounted_at(found):
        return False
    words = CONTENT[wanted["kind"]]
    return all(_same(wanted.get(word), found.get(word)) for word in words)


COUNT_SECONDS = 10.0
"""Seconds after which a ResourceQuota that has not begun to count is recreated.

If Kubernetes did not know a resource when its quota was created, the quota starts to count only
minutes later. Until then the quota refuses everything.
"""


def never_counts(found: Object, now: float) -> bool:
    """Return whether a ResourceQuota should have begun to count by now, but has not."""
    made = epoch_seconds(found["metadata"].get("creationTimestamp"))
    return not found["counts"] and made is not None and now > made + COUNT_SECONDS


def mounted_at(found: Object) -> str:
    """Return the path at which all tasks of a namespace mount a claim read-only; empty if they do
    not.
    """
    marks = found["metadata"].get("annotations") or {}
    return str(marks.get(labels.MOUNTED_AT) or "")


def must_grow(wanted: Object, found: Object) -> bool:
    """Return whether a claim is smaller than wanted and must be enlarged. A claim that is larger
    than wanted keeps its size.
    """
    return _size(found) < _size(wanted)


def is_wrongly_pending(wanted: Object, found: Object, classes: Collection[str]) -> bool:
    """Return whether a claim waits for a class or volume that is no longer wanted.

    Return False for a claim that already has a volume: only its user may give up the data in it.
    """
    if found.get("phase") not in (None, "", "Pending"):
        return False
    said, there = wanted["spec"], found["spec"]
    if said.get("volumeName"):
        return bool(said["volumeName"] != there.get("volumeName"))
    class_, old = said.get("storageClassName"), there.get("storageClassName")
    if class_ is None:  # the API server filled in some default class, which may have changed
        return bool(old is not None and old not in classes)
    return bool(class_ != old)


def _size(claim: Object) -> float:
    return parse_quantity(claim["spec"]["resources"]["requests"]["storage"])


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
        return parse_quantity(wanted) == parse_quantity(found)
    except ValueError:
        return False


# -- caches

RESOURCES = {
    "ServiceAccount": "serviceaccounts",
    "RoleBinding": "rolebindings",
    "LimitRange": "limitranges",
    "ResourceQuota": "resourcequotas",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
}
API_SERVICE = "kubernetes"
"""Name of the EndpointSlice in `default` with the API server's addresses."""


class TenancyCaches(InformerGroup):
    """Caches of tenants' namespaces, our objects in them, storage classes, and the API server's
    addresses.

    Args:
        api: the connection to the API server.
        home: the hub's namespace.
        wake: called with the name of a namespace in which something has changed.
        wake_all: called after a change that affects all namespaces.
    """

    def __init__(
        self, api: Api, home: str, wake: Callable[[str], None], wake_all: Callable[[], None]
    ) -> None:
        def inside(update: CacheUpdate) -> None:
            if not update.old or not update.new or _content(update.old) != _content(update.new):
                wake(update.object["metadata"]["namespace"])

        def itself(update: CacheUpdate) -> None:
            wake(update.object["metadata"]["name"])

        tenants = f"{labels.TENANT}=true,{HUB}={home}"
        self.namespaces = Informer(
            api, path("namespaces"), selector=tenants, trim=_namespace, changed=itself
        )
        self.ours = {
            kind: Informer(
                api,
                path(resource),
                selector=f"{MANAGED_BY}={MANAGER},{HUB}={home}",
                trim=trim_object,
                group=lambda found: found["metadata"]["namespace"],
                changed=inside,
            )
            for kind, resource in RESOURCES.items()
        }
        self.classes = Informer(
            api, path("storageclasses"), trim=_class, changed=lambda _update: wake_all()
        )
        self.slices = Informer(
            api,
            path("endpointslices", "default"),
            fields=f"metadata.name={API_SERVICE}",
            trim=_slice,
            changed=lambda _update: wake_all(),
        )
        self.all = (self.namespaces, *self.ours.values(), self.classes, self.slices)

    @property
    def synced(self) -> bool:
        """Whether every cache has its first list of objects."""
        return all(each.synced.is_set() for each in self.all)

    def there(self, namespace: str) -> dict[tuple[str, str], Object]:
        """Return our objects in a namespace, by kind and name."""
        return {
            (kind, found["metadata"]["name"]): found
            for kind, informer in self.ours.items()
            for found in informer.of(namespace)
        }

    def servers(self) -> tuple[ApiServerAddress, ...]:
        """Return the API server's own addresses and the Service address that pods use."""
        found = set()
        slice_ = self.slices.get("default", API_SERVICE) or {}
        for address in slice_.get("addresses", ()):
            for port in slice_["ports"]:
                found.add(ApiServerAddress(_single(address), port))
        if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
            found.add(
                ApiServerAddress(
                    _single(host), int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
                )
            )
        return tuple(sorted(found, key=lambda each: (each.network, each.port)))


def _single(address: str) -> str:
    return str(ipaddress.ip_network(address))


def _namespace(found: Object) -> Object:
    head = found["metadata"]
    kept = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
    made: Object = {"metadata": {key: head[key] for key in kept if key in head}}
    if "deletionTimestamp" in head:
        made["status"] = found.get("status") or {}  # says what delays the deletion
    return made


def _class(found: Object) -> Object:
    head = found["metadata"]
    default = (head.get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class")
    return {
        "metadata": {"name": head["name"], "resourceVersion": head.get("resourceVersion")},
        "default": default == "true",
        "waits": found.get("volumeBindingMode") == "WaitForFirstConsumer",
    }


def _slice(found: Object) -> Object:
    head = found["metadata"]
    return {
        "metadata": {key: head.get(key) for key in ("name", "namespace", "resourceVersion")},
        "addresses": [a for end in found.get("endpoints") or () for a in end["addresses"]],
        "ports": [each["port"] for each in found.get("ports") or ()],
    }


def _content(found: Object) -> Object:
    head = {key: value for key, value in found["metadata"].items() if key != "resourceVersion"}
    return {**found, "metadata": head}
