"""What on a Kubernetes cluster belongs to no run and to no user any more, and how it is removed.

Promises to call nothing a leak that the API server has not just now said to have no run: an object
with our labels and no owner, whose TFCluster is gone. What has an owner goes with that, by itself.
Data of removed users is told, too; it is tenancy that deletes it, when it is marked here.

Ref: https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from ....errors import Conflict, NotFound
from ....i18n import _
from ....kube.api import labels
from ....kube.api.client import Api, ApiError, path
from ....kube.api.gone import find
from ...tenancy.removal import REMOVED_DATA, is_removed
from .base import Leak
from .kubernetes_runs import ONLY

Object = dict[str, Any]
OURS = "app.kubernetes.io/managed-by=tfcluster-operator"
KINDS = {
    "Job": "jobs",
    "Pod": "pods",
    "Service": "services",
    "ConfigMap": "configmaps",
    "NetworkPolicy": "networkpolicies",
    "PodGroup": "podgroups",
    "PersistentVolumeClaim": "persistentvolumeclaims",
}
"""Of what a run is made; `PodGroup` is there with Volcano alone."""
NAMESPACE = "Namespace"


class Leaks:
    """Finds and removes them.

    Args:
        api: the connection.
        is_run: whether there is a run of this uid, as far as is known here.
        owner: whose the things in a namespace are.
    """

    def __init__(
        self, api: Api, is_run: Callable[[str], bool], owner: Callable[[str], str]
    ) -> None:
        self._api, self._is_run, self._owner = api, is_run, owner

    def objects(self) -> Iterator[Leak]:
        """Objects of runs that are gone. Raises ApiError."""
        for kind in KINDS:
            for found in self._listed(kind):
                if _may_be(found) and not self._is_run(_uid(found)) and self._has_no_run(found):
                    yield self._leak(kind, found)

    def namespaces(self, namespaces: Collection[Object], users: Collection[str]) -> Iterator[Leak]:
        """Namespaces, with all data, of users who were removed and are not back."""
        for found in namespaces:
            head, owner = found["metadata"], self._owner(found["metadata"]["name"])
            if is_left(found) and owner not in users:
                text = _(
                    "the namespace {name} with all data of a user who was removed from the hub"
                )
                what = text.format(name=head["name"])
                yield Leak(owner=owner, id=f"{NAMESPACE}:{head['name']}", kind=NAMESPACE, what=what)

    def remove(self, namespace: str, leak: str) -> None:
        """Delete an object, if it is a leak still.

        Raises:
            NotFound: there is no such leak.
            Conflict: it is another object by now.
            ApiError: the API does not let us.
        """
        kind, _colon, name = leak.partition(":")
        every = self._listed(kind, namespace, name) if kind in KINDS and name else []
        found = next((each for each in every if each["metadata"]["name"] == name), None)
        if found is None or not _may_be(found) or not self._has_no_run(found):
            raise gone()
        head = found["metadata"]
        try:
            self._api.delete(path(KINDS[kind], namespace, head["name"]), uid=head["uid"])
        except ApiError as error:
            if error.gone:
                raise gone() from None
            if error.status == 409:
                raise Conflict(_("{what} is another one by now").format(what=leak)) from None
            raise

    def mark(self, found: Object) -> None:
        """Have tenancy delete the namespace of a removed user, as it is known here.

        Raises:
            Conflict: it was changed meanwhile.
            ApiError: the API does not let us.
        """
        head = found["metadata"]
        kept = {key: head[key] for key in ("uid", "resourceVersion")}
        change = {"metadata": {**kept, "annotations": {REMOVED_DATA: "true"}}}
        try:
            self._api.merge(path("namespaces", "", head["name"]), change)
        except ApiError as error:
            if error.gone:
                raise gone() from None
            if error.status == 409:
                text = _("{name} was changed just now: look again")
                raise Conflict(text.format(name=head["name"])) from None
            raise

    def _listed(self, kind: str, namespace: str = "", name: str = "") -> list[Object]:
        query: dict[str, Any] = {"fieldSelector": f"metadata.name={name}"} if name else {}
        where = path(KINDS[kind], namespace)
        try:
            return self._api.every(where, shape=ONLY, labelSelector=OURS, **query).items
        except ApiError as error:
            if kind == "PodGroup" and error.gone:  # there is no Volcano
                return []
            raise

    def _has_no_run(self, found: Object) -> bool:
        head = found["metadata"]
        name = head["labels"][labels.NAME]
        run = find(self._api, path("tfclusters", head["namespace"], name))
        return run is None or run["metadata"]["uid"] != _uid(found)

    def _leak(self, kind: str, found: Object) -> Leak:
        head = found["metadata"]
        text = _("{kind} {name} in the namespace {namespace}, of the run {run} that is gone")
        if kind == "PersistentVolumeClaim":
            text = _("{kind} {name} in the namespace {namespace}, with data of the run {run}")
        words = {"kind": kind, "name": head["name"], "namespace": head["namespace"]}
        what = text.format(run=head["labels"][labels.NAME], **words)
        owner = self._owner(head["namespace"])
        return Leak(owner=owner, id=f"{kind}:{head['name']}", kind=kind, what=what)


def is_left(namespace: Object) -> bool:
    """Whether a namespace is that of a removed user, and is kept."""
    head = namespace["metadata"]
    notes = head.get("annotations") or {}
    going = head.get("deletionTimestamp") or notes.get(REMOVED_DATA) == "true"
    return is_removed(namespace) and not going


def gone() -> NotFound:
    """What was removed by somebody else, or is none."""
    return NotFound(_("there is no such leak any more"))


def _may_be(found: Object) -> bool:
    """Whether an object says that it is a run's, belongs to nothing, and is not going already."""
    head = found["metadata"]
    marks = head.get("labels") or {}
    ours = bool(marks.get(labels.UID)) and bool(marks.get(labels.NAME))
    return ours and not head.get("ownerReferences") and not head.get("deletionTimestamp")


def _uid(found: Object) -> str:
    return str(found["metadata"]["labels"][labels.UID])
