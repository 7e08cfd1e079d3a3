"""Tenancy's caches of the cluster, and the comparison of an object there with what it shall be.

One informer for each kind, of our own objects alone. A change of what was made in a namespace is
told as that namespace; what only counts (what a quota has used) is told to nobody. Secrets are
never listed. What the API server writes of its own is no difference between two objects.

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
"""What of each kind is compared; of a claim its size alone (`must_grow`)."""


def trim_object(found: Object) -> Object:
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


def is_as_wanted(wanted: Object, found: Object) -> bool:
    """Whether an object that is there is as it shall be."""
    marks = found["metadata"].get("labels") or {}
    if any(marks.get(key) != value for key, value in wanted["metadata"]["labels"].items()):
        return False
    if mounted_at(wanted) != mounted_at(found):
        return False
    words = CONTENT[wanted["kind"]]
    return all(_same(wanted.get(word), found.get(word)) for word in words)


COUNT_SECONDS = 10.0
"""Seconds after which a quota that counts nothing is made again: one of a resource that Kubernetes
did not know when it was made is counted only minutes later, and until then refuses everything.
"""


def never_counts(found: Object, now: float) -> bool:
    """Whether a quota has not begun to count, and should have."""
    made = epoch_seconds(found["metadata"].get("creationTimestamp"))
    return not found["counts"] and made is not None and now > made + COUNT_SECONDS


def mounted_at(found: Object) -> str:
    """Where all tasks of a namespace read a claim; empty for what they do not."""
    marks = found["metadata"].get("annotations") or {}
    return str(marks.get(labels.MOUNTED_AT) or "")


def must_grow(wanted: Object, found: Object) -> bool:
    """Whether a claim is smaller than it shall be; one that is larger stays so."""
    return _size(found) < _size(wanted)


def is_wrongly_pending(wanted: Object, found: Object, classes: Collection[str]) -> bool:
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


# -- the caches

RESOURCES = {
    "ServiceAccount": "serviceaccounts",
    "RoleBinding": "rolebindings",
    "LimitRange": "limitranges",
    "ResourceQuota": "resourcequotas",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
}
API_SERVICE = "kubernetes"
"""The EndpointSlice in `default` that has the API server's addresses."""


class TenancyCaches(InformerGroup):
    """Tenants' namespaces, what is in them of ours, storage classes, the API server's addresses.

    Args:
        api: the connection.
        home: the hub's namespace.
        wake: told the namespace that a change is of.
        wake_all: called when something changed that all depend on.
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
        """Whether everything was seen once."""
        return all(each.synced.is_set() for each in self.all)

    def there(self, namespace: str) -> dict[tuple[str, str], Object]:
        """What is in a namespace of ours, by kind and name."""
        return {
            (kind, found["metadata"]["name"]): found
            for kind, informer in self.ours.items()
            for found in informer.of(namespace)
        }

    def servers(self) -> tuple[ApiServerAddress, ...]:
        """Where the API server is: its own addresses, and the one that pods are told."""
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
        made["status"] = found.get("status") or {}  # says what keeps it
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
