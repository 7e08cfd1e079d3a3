"""What tenancy knows of the cluster: one informer for each kind, of our own objects alone.

Promises that a change of what was made in a namespace is told as that namespace, and that what
only counts (what a quota has used) is told to nobody. Secrets are never listed.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from typing import Any

from ...kube.api import labels
from ...kube.api.client import Api, path
from ...kube.api.informer import Informer, Informers, Update
from . import alike
from .objects import HUB, MANAGED_BY, MANAGER, Server

Object = dict[str, Any]

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


class Caches(Informers):
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
        def inside(update: Update) -> None:
            if not update.old or not update.new or _content(update.old) != _content(update.new):
                wake(update.object["metadata"]["namespace"])

        def itself(update: Update) -> None:
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
                trim=alike.trim,
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

    def servers(self) -> tuple[Server, ...]:
        """Where the API server is: its own addresses, and the one that pods are told."""
        found = set()
        slice_ = self.slices.get("default", API_SERVICE) or {}
        for address in slice_.get("addresses", ()):
            for port in slice_["ports"]:
                found.add(Server(_single(address), port))
        if host := os.environ.get("KUBERNETES_SERVICE_HOST"):
            found.add(Server(_single(host), int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))))
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
