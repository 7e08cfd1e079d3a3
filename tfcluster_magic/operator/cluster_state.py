"""What decides on launches beside our own runs: other pods, quotas, limits, claims, tenants.

Promises one watch for each kind, and that what the operator may not read counts as not known. It
keeps nothing of secrets: their names and types are asked for when a run names some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..i18n import _
from ..kube.api import decoding, labels
from ..kube.api.amounts import amounts
from ..kube.api.client import Api, ApiError, Object, path
from ..kube.api.informer import Informer, Informers
from ..kube.capacity.namespace_limits import Bounds, bounds
from ..kube.capacity.nodes import bound
from ..kube.capacity.policy_check import Claim, Names
from ..kube.objects.policy import Shared
from .caches import OURS

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Ground(Informers):
    """Informers for what namespaces and nodes have beside our own objects.

    Args:
        api: the connection.
        namespace: only that one's; empty for all.
    """

    def __init__(self, api: Api, namespace: str = "") -> None:
        def of_namespace(found: Object) -> str:
            return str(found["metadata"].get("namespace", ""))

        def follow(resource: str, **more: Any) -> Informer:
            return Informer(api, path(resource, namespace), group=of_namespace, **more)

        self._api = api
        self.others = Informer(
            api,
            path("pods"),
            selector=OURS.replace("=", "!="),
            shape=decoding.POD,
            trim=_pod,
        )
        self.quotas = follow("resourcequotas")
        self.ranges = follow("limitranges", trim=_plain)
        self.claims = follow("persistentvolumeclaims", trim=_claim)
        self.classes = Informer(api, path("storageclasses"), trim=_plain)
        self.tenants = Informer(
            api, path("namespaces"), trim=_plain, selector=f"{labels.TENANT}=true"
        )
        self.all = (
            *(self.others, self.quotas, self.ranges, self.claims, self.classes, self.tenants),
        )

    @property
    def settled(self) -> bool:
        """Whether each was seen once, or is known to be none of the operator's business."""
        return all(each.synced.is_set() or is_closed(each) for each in self.all)

    def names(self, namespace: str, nodes: int | None, limits: Bounds) -> Names:
        """What runs may name in a namespace."""
        classes = None if is_closed(self.classes) else self.classes.every()
        return Names(
            claims=None if is_closed(self.claims) else self._claims(namespace),
            classes=None if classes is None else tuple(c["metadata"]["name"] for c in classes),
            default_class=next((c["metadata"]["name"] for c in classes or () if _default(c)), ""),
            nodes=nodes,
            claim_most=limits.claim_most,
        )

    def _claims(self, namespace: str) -> dict[str, Claim]:
        return {each["metadata"]["name"]: claim(each) for each in self.claims.of(namespace)}

    def shared(self, namespace: str) -> tuple[Shared, ...]:
        """The claims that all tasks of a namespace read, by name."""
        marked = {
            each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get(
                labels.MOUNTED_AT, ""
            )
            for each in self.claims.of(namespace)
            if not each["metadata"].get("deletionTimestamp")
        }
        return tuple(
            Shared(name, where)
            for name, where in sorted(marked.items())
            if where.startswith("/") and ":" not in where
        )

    def tenant_annotations(self, namespace: str) -> Mapping[str, str]:
        """The annotations of a tenant's namespace; none of one that nobody labelled as such."""
        found = self.tenants.get("", namespace)
        return {} if found is None else found["metadata"].get("annotations") or {}

    def secrets(self, namespace: str) -> dict[str, str] | None:
        """Names and types of the secrets that are labelled for tasks; None where nobody may look.

        Asked of the API when a run names some, so that none is ever kept. Raises ApiError.
        """
        try:
            found = self._api.every(
                path("secrets", namespace), labelSelector=f"{labels.FOR_TASKS}=true"
            )
        except ApiError as error:
            if error.status == 403:
                return None
            raise
        return {each["metadata"]["name"]: str(each.get("type", "")) for each in found.items}

    def bounds(self, namespace: str) -> Bounds:
        """What the LimitRanges of a namespace say."""
        return bounds(self.ranges.of(namespace))

    def quotas_now(self, namespace: str) -> list[Object]:
        """The ResourceQuotas as the API server has them at this moment, where there are any.

        Raises ApiError.
        """
        if is_closed(self.quotas) or not self.quotas.of(namespace):
            return []
        return self._api.every(path("resourcequotas", namespace)).items


def is_closed(cache: Informer) -> bool:
    """Whether the operator may not read these objects."""
    problem = cache.problem
    return not cache.synced.is_set() and problem is not None and problem.status in (401, 403, 404)


def claim(found: Mapping[str, Any]) -> Claim:
    """A PersistentVolumeClaim as runs see it."""
    obstacle = ""
    if found["metadata"].get("deletionTimestamp"):
        obstacle = _("it is being deleted")
    elif (found.get("status") or {}).get("phase") == "Lost":
        obstacle = _("its volume is lost")
    elif found["spec"].get("volumeMode") == "Block":
        obstacle = _("it is a block device, not a file system")
    size = amounts((found.get("status") or {}).get("capacity")).get("storage", 0.0)
    modes = tuple(found["spec"].get("accessModes") or ())
    return Claim(modes=modes, obstacle=obstacle, size=size)


def _default(found: Object) -> bool:
    return (found["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def _plain(found: Object) -> Object:
    kept = {key: value for key, value in found.items() if key in ("spec", "status")}
    return {**kept, "metadata": _head(found)}


def _claim(found: Object) -> Object:
    spec = {k: v for k, v in found["spec"].items() if k in ("accessModes", "volumeMode")}
    told = found.get("status") or {}
    status = {key: told.get(key) for key in ("phase", "capacity")}
    return {"metadata": _head(found), "spec": spec, "status": status}


def _pod(found: Object) -> Object:
    """A pod that is none of ours: what it takes of its node."""
    return {"metadata": _head(found), "bound": bound(found)}


def _head(found: Object) -> Object:
    keep = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "annotations")
    return {key: value for key, value in found["metadata"].items() if key in keep}
