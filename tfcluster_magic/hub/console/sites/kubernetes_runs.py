"""Runs, pods and namespaces of a Kubernetes cluster as far as the console shows them. Pure.

Promises that of an object nothing is decoded or kept but what a row needs, so that thousands of
runs with their programs and histories cost some megabytes; and a row for every object, also for one
that nobody can read as a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from ....errors import Conflict
from ....i18n import _
from ....kube.api import labels
from ....kube.api.decoding import Head, Shape
from ....kube.capacity import ledgers
from ....kube.objects import custom_resource
from ....spec import Metadata, Replicas, ReplicaSet, Spec, TFCluster
from ...tenancy import names
from .base import Row
from .rows import row_of

Object = dict[str, Any]
OTHERS = "namespace:"
"""Beginning of the owner of runs in a namespace that is no user's of this hub."""


class _Spec(TypedDict, total=False):
    mode: Any
    replicas: Any
    stop: Any


class _Status(TypedDict, total=False):
    phase: Any
    reason: Any
    message: Any
    startedAt: Any
    runningAt: Any
    finishedAt: Any
    releasedAt: Any
    usage: Any
    failures: Any
    attention: Any


class _Run(TypedDict, total=False):
    metadata: Head
    spec: _Spec
    status: _Status


class _Where(TypedDict, total=False):
    nodeName: Any


class _Pod(TypedDict, total=False):
    metadata: Head
    spec: _Where


class _Only(TypedDict, total=False):
    metadata: Head


RUN, POD, ONLY = (Shape(each) for each in (_Run, _Pod, _Only))


def run(found: Object) -> Object:
    """A TFCluster as its row; whether somebody stops it, whether it holds anything still, and what
    it has held.
    """
    head, spec = found["metadata"], found.get("spec") or {}
    name, stop = str(head["name"]), spec.get("stop")
    cluster, number = custom_resource.split(name)
    made = str(head.get("creationTimestamp") or "1970-01-01T00:00:00Z").replace("Z", "+00:00")
    read = TFCluster(
        metadata=Metadata(
            name=name,
            cluster=cluster or name,
            run=number,
            uid=str(head["uid"]),
            created_at=datetime.fromisoformat(made).timestamp(),
        ),
        spec=_spec(spec),
        status=custom_resource.status(found),
    )
    return {
        "metadata": _kept(found),
        "row": row_of(read),
        "stop": str(stop.get("by") or "") if isinstance(stop, dict) else None,
        "released": read.status.released_at is not None,
        "hours": ledgers.run_of(found, ""),
    }


def trim_pod(found: Object) -> Object:
    """A pod of a run: whose it is, and where it runs."""
    return {
        "metadata": _kept(found),
        "uid": (found["metadata"].get("labels") or {}).get(labels.UID, ""),
        "node": (found.get("spec") or {}).get("nodeName") or "",
    }


def trim_namespace(found: Object) -> Object:
    """A tenant's namespace: labels and annotations say whose it is."""
    head = found["metadata"]
    more = ("labels", "annotations", "deletionTimestamp")
    return {"metadata": {**_kept(found), **{key: head[key] for key in more if key in head}}}


def user_of(namespace: Object, prefix: str) -> str:
    """Whose a namespace is; empty when it is not called as that user's is, and so is nobody's."""
    head = namespace["metadata"]
    user = str((head.get("annotations") or {}).get(labels.USER, ""))
    return user if user and names.namespace(user, prefix) == head["name"] else ""


def owner(users: Mapping[str, str], namespace: str) -> str:
    """The owner of what is in a namespace; `users` are the hub's by namespace."""
    return users.get(namespace) or f"{OTHERS}{namespace}"


def rows(
    runs: Iterable[Object], pods: Iterable[Object], users: Mapping[str, str]
) -> tuple[Row, ...]:
    """All runs, each with its owner and the nodes that its pods are on."""
    nodes: dict[str, set[str]] = {}
    for pod in pods:
        if pod["node"]:
            nodes.setdefault(pod["uid"], set()).add(pod["node"])
    return tuple(
        msgspec.structs.replace(
            each["row"],
            owner=owner(users, each["metadata"]["namespace"]),
            nodes=tuple(sorted(nodes.get(each["metadata"]["uid"], ()))),
        )
        for each in runs
    )


def _kept(found: Object) -> Object:
    head = found["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {key: head[key] for key in kept if key in head}


def _spec(told: Object) -> Spec:
    """What was asked for, without its program; of a spec that nobody can read, nothing."""
    try:
        return msgspec.convert({k: told[k] for k in ("mode", "replicas") if k in told}, Spec)
    except msgspec.ValidationError:
        return Spec(replicas=ReplicaSet(worker=Replicas(count=0)))


def last_words(cluster: TFCluster, task: str) -> list[str]:
    """What the record keeps of what a task printed last."""
    status = cluster.status
    exits = [each.exit for each in status.failures if each.task == task]
    exits += [each.exit for each in status.attention if each.name == task and each.exit]
    return list(next((each.last_lines for each in exits if each.last_lines), ()))


def refuse(name: str, found: Object) -> None:
    """Raise Conflict for a run that has ended, or that somebody stops already."""
    if found["released"]:
        text = _("{name} has ended already: {message}")
        raise Conflict(text.format(name=name, message=found["row"].message))
    if found["stop"] is not None:
        by = found["stop"] or _("its owner")
        raise Conflict(_("{name} is being stopped already, by {by}").format(name=name, by=by))
