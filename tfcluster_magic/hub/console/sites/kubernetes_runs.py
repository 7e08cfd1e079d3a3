"""Runs of a Kubernetes cluster as rows of the console, and leaks: what runs and users left behind.

Only the fields that a row needs are decoded and kept. A leak is an object with our labels and
without `ownerReferences`, whose TFCluster does not exist. Whether the TFCluster exists is read from
the API server, not from the cache. The namespace of a removed user is a leak too. This module only
marks such a namespace, and tenancy deletes it.

Ref: https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypedDict

import msgspec

from ....errors import Conflict, NotFound
from ....i18n import _
from ....kube import hour_ledgers
from ....kube.api import labels
from ....kube.api.client import Api, ApiError, find_object, path
from ....kube.api.decoding import ObjectMeta, Shape, epoch_seconds
from ....kube.objects import custom_resource
from ....lifecycle.messages import shown
from ....spec import Metadata, Replicas, ReplicaSet, Spec, TFCluster, conversion, resource_form
from ...tenancy import namespace_objects
from ...tenancy.provisioning import REMOVED_DATA, is_removed
from .base import Leak, SiteRun, run_row

Object = dict[str, Any]
OTHERS = "namespace:"
"""If a namespace belongs to no user of this hub, the owner of its runs is this prefix with the name
of the namespace.
"""


class _Spec(TypedDict, total=False):
    mode: Any
    replicas: Any
    stop: Any


class _Status(TypedDict, total=False):
    phase: Any
    reason: Any
    message: Any
    messages: Any
    startTime: Any
    runningTime: Any
    completionTime: Any
    releasedTime: Any
    usage: Any
    failures: Any
    attention: Any


class _Run(TypedDict, total=False):
    metadata: ObjectMeta
    spec: _Spec
    status: _Status


class _Where(TypedDict, total=False):
    nodeName: Any


class _Pod(TypedDict, total=False):
    metadata: ObjectMeta
    spec: _Where


class _Only(TypedDict, total=False):
    metadata: ObjectMeta


RUN, POD, ONLY = (Shape(each) for each in (_Run, _Pod, _Only))


def trim_run(found: Object) -> Object:
    """Return what the cache keeps of a TFCluster: its row, the person who stops it, whether all its
    resources are released, and its hours.
    """
    head, spec = found["metadata"], found.get("spec") or {}
    name, stop = str(head["name"]), spec.get("stop")
    cluster, number = custom_resource.split_name(name)
    read = TFCluster(
        metadata=Metadata(
            name=name,
            cluster=cluster or name,
            run=number,
            uid=str(head["uid"]),
            created_at=epoch_seconds(head.get("creationTimestamp")) or 0.0,
        ),
        spec=_spec(spec),
        status=custom_resource.read_status(found),
    )
    return {
        "metadata": _kept(found),
        "row": run_row(read),
        "stop": str(stop.get("by") or "") if isinstance(stop, dict) else None,
        "released": read.status.released_at is not None,
        "hours": hour_ledgers.accounted_run_of(found, ""),
    }


def trim_pod(found: Object) -> Object:
    """Return what the cache keeps of a pod: its run and its node."""
    return {
        "metadata": _kept(found),
        "uid": (found["metadata"].get("labels") or {}).get(labels.UID, ""),
        "node": (found.get("spec") or {}).get("nodeName") or "",
    }


def trim_namespace(found: Object) -> Object:
    """Return a tenant's namespace with only the metadata that is needed to find its user."""
    head = found["metadata"]
    more = ("labels", "annotations", "deletionTimestamp")
    return {"metadata": {**_kept(found), **{key: head[key] for key in more if key in head}}}


def user_of(namespace: Object, prefix: str) -> str:
    """Return the user that a namespace's annotation names. Return an empty text if that user's
    namespace would have another name than this one.
    """
    head = namespace["metadata"]
    user = str((head.get("annotations") or {}).get(labels.USER, ""))
    return (
        user if user and namespace_objects.namespace_of_user(user, prefix) == head["name"] else ""
    )


def owner_of(users: Mapping[str, str], namespace: str) -> str:
    """Return the owner of objects in a namespace; `users` has the hub's user of each namespace."""
    return users.get(namespace) or f"{OTHERS}{namespace}"


def run_rows(
    runs: Iterable[Object], pods: Iterable[Object], users: Mapping[str, str]
) -> tuple[SiteRun, ...]:
    """Return a row for each run, with its owner and the nodes of its pods."""
    nodes: dict[str, set[str]] = {}
    for pod in pods:
        if pod["node"]:
            nodes.setdefault(pod["uid"], set()).add(pod["node"])
    return tuple(
        msgspec.structs.replace(
            each["row"],
            owner=owner_of(users, each["metadata"]["namespace"]),
            nodes=tuple(sorted(nodes.get(each["metadata"]["uid"], ()))),
        )
        for each in runs
    )


def _kept(found: Object) -> Object:
    head = found["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {key: head[key] for key in kept if key in head}


def _spec(told: Object) -> Spec:
    """Return the spec without its program; an empty spec if it cannot be decoded."""
    keys = ("mode", "replicas")
    asked: Object = {key: told[key] for key in keys if key in told}
    try:
        return conversion.convert(resource_form.read(Spec, asked), Spec)
    except msgspec.ValidationError:
        return Spec(replicas=ReplicaSet(worker=Replicas(count=0)))


def last_lines(cluster: TFCluster, task: str) -> list[str]:
    """Return the last log lines of a task from the record of the run."""
    status = cluster.status
    exits = [each.exit for each in status.failures if each.task == task]
    exits += [each.exit for each in status.attention if each.name == task and each.exit]
    return list(next((each.last_lines for each in exits if each.last_lines), ()))


def refuse_to_stop(name: str, found: Object) -> None:
    """Raise Conflict if a run has ended or is already being stopped."""
    if found["released"]:
        text = _("{name} has already ended: {message}")
        raise Conflict(text.format(name=name, message=shown(found["row"])))
    if found["stop"] is not None:
        by = found["stop"] or _("its owner")
        raise Conflict(_("{name} is already being stopped by {by}").format(name=name, by=by))


# -- leaks

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
"""The kinds of a run's objects, and their names in the API; `PodGroup` exists only with Volcano."""
NAMESPACE = "Namespace"


class LeakFinder:
    """Finds and removes leaks: objects of runs that do not exist, and namespaces of removed users.

    Args:
        api: the connection to the API server.
        is_run: returns whether a run with this uid is known.
        owner: returns the owner of objects in a namespace.
    """

    def __init__(
        self, api: Api, is_run: Callable[[str], bool], owner: Callable[[str], str]
    ) -> None:
        self._api, self._is_run, self._owner = api, is_run, owner

    def objects(self) -> Iterator[Leak]:
        """Yield objects whose runs do not exist. Raises ApiError."""
        for kind in KINDS:
            for found in self._listed(kind):
                if _may_be(found) and not self._is_run(_uid(found)) and self._has_no_run(found):
                    yield self._leak(kind, found)

    def namespaces(self, namespaces: Collection[Object], users: Collection[str]) -> Iterator[Leak]:
        """Yield the namespaces of removed users, but not those of people who are users again."""
        for found in namespaces:
            head, owner = found["metadata"], self._owner(found["metadata"]["name"])
            if is_left(found) and owner not in users:
                text = _(
                    "the namespace {name} with all data of a user who was removed from the hub"
                )
                what = text.format(name=head["name"])
                yield Leak(owner=owner, id=f"{NAMESPACE}:{head['name']}", kind=NAMESPACE, what=what)

    def remove(self, namespace: str, leak: str) -> None:
        """Delete an object if it is still a leak.

        Raises:
            NotFound: there is no such leak.
            Conflict: the name belongs to another object now.
            ApiError: the API server refuses or does not answer.
        """
        kind, _colon, name = leak.partition(":")
        every = self._listed(kind, namespace, name) if kind in KINDS and name else []
        found = next((each for each in every if each["metadata"]["name"] == name), None)
        if found is None or not _may_be(found) or not self._has_no_run(found):
            raise no_such_leak()
        head = found["metadata"]
        try:
            self._api.delete(path(KINDS[kind], namespace, head["name"]), uid=head["uid"])
        except ApiError as error:
            if error.gone:
                raise no_such_leak() from None
            if error.status == 409:
                raise Conflict(_("{what} is another object now").format(what=leak)) from None
            raise

    def mark(self, found: Object) -> None:
        """Make tenancy delete the namespace of a removed user, unless the namespace has changed.

        Raises:
            Conflict: the namespace has changed.
            ApiError: the API server refuses or does not answer.
        """
        head = found["metadata"]
        kept = {key: head[key] for key in ("uid", "resourceVersion")}
        change = {"metadata": {**kept, "annotations": {REMOVED_DATA: "true"}}}
        try:
            self._api.merge(path("namespaces", "", head["name"]), change)
        except ApiError as error:
            if error.gone:
                raise no_such_leak() from None
            if error.status == 409:
                text = _("{name} has just changed: reload the page")
                raise Conflict(text.format(name=head["name"])) from None
            raise

    def _listed(self, kind: str, namespace: str = "", name: str = "") -> list[Object]:
        query: dict[str, Any] = {"fieldSelector": f"metadata.name={name}"} if name else {}
        where = path(KINDS[kind], namespace)
        try:
            return self._api.every(where, shape=ONLY, labelSelector=OURS, **query).items
        except ApiError as error:
            if kind == "PodGroup" and error.gone:  # Volcano is not installed
                return []
            raise

    def _has_no_run(self, found: Object) -> bool:
        head = found["metadata"]
        name = head["labels"][labels.NAME]
        run = find_object(self._api, path("tfclusters", head["namespace"], name))
        return run is None or run["metadata"]["uid"] != _uid(found)

    def _leak(self, kind: str, found: Object) -> Leak:
        head = found["metadata"]
        text = _("{kind} {name} in the namespace {namespace}, left by the run {run}, which is gone")
        if kind == "PersistentVolumeClaim":
            text = _("{kind} {name} in the namespace {namespace}, with data of the run {run}")
        words = {"kind": kind, "name": head["name"], "namespace": head["namespace"]}
        what = text.format(run=head["labels"][labels.NAME], **words)
        owner = self._owner(head["namespace"])
        return Leak(owner=owner, id=f"{kind}:{head['name']}", kind=kind, what=what)


def is_left(namespace: Object) -> bool:
    """Return whether a namespace belongs to a removed user and is not being deleted."""
    head = namespace["metadata"]
    notes = head.get("annotations") or {}
    going = head.get("deletionTimestamp") or notes.get(REMOVED_DATA) == "true"
    return is_removed(namespace) and not going


def no_such_leak() -> NotFound:
    """Return the error for a leak that does not exist (any more)."""
    return NotFound(_("this leak is already gone"))


def _may_be(found: Object) -> bool:
    """Return whether an object has the labels of a run, has no owner, and is not being deleted."""
    head = found["metadata"]
    marks = head.get("labels") or {}
    ours = bool(marks.get(labels.UID)) and bool(marks.get(labels.NAME))
    return ours and not head.get("ownerReferences") and not head.get("deletionTimestamp")


def _uid(found: Object) -> str:
    return str(found["metadata"]["labels"][labels.UID])
