"""Which fields of objects are read: decoders that skip all others. Pure.

Promises plain objects, as the API wrote them, with nothing but what somebody here may read. A pod
is told three times until it runs, and most of it is what we said ourselves or who wrote which
field: to skip that costs a tenth of making objects of it. What a field holds is never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec


class Shape:
    """How objects of a kind are decoded, alone in a watch and together in a list.

    Made when a module is imported: msgspec learns a type when it is first used, and crashes when
    two threads do that at once (0.22).
    """

    def __init__(self, kind: Any) -> None:
        """`kind` is a TypedDict of what is kept, or dict for everything."""
        event = msgspec.defstruct("Event", [("type", str), ("object", kind)])
        items = ("items", list[kind] | None, None)
        page = msgspec.defstruct("Page", [items, ("metadata", dict[str, Any], {})])
        self.event: msgspec.json.Decoder[Any] = msgspec.json.Decoder(event)
        self.page: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)


class Head(TypedDict, total=False):
    """An object's metadata without who wrote which field of it."""

    name: Any
    generateName: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    generation: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any


class Container(TypedDict, total=False):
    """What a container is and asks for; `restartPolicy` tells a sidecar."""

    name: Any
    image: Any
    resources: Any
    restartPolicy: Any


class PodSpec(TypedDict, total=False):
    """What a pod asks for, and where it is."""

    nodeName: Any
    nodeSelector: Any
    volumes: Any
    imagePullSecrets: Any
    schedulerName: Any
    priorityClassName: Any
    overhead: Any
    resources: Any
    containers: list[Container] | None
    initContainers: list[Container] | None


class Pod(TypedDict, total=False):
    """A pod without what its containers are told to do."""

    metadata: Head
    spec: PodSpec
    status: Any


class JobSpec(TypedDict, total=False):
    """A Job without its pods' template."""

    suspend: Any
    completions: Any
    parallelism: Any


class Job(TypedDict, total=False):
    """A Job as far as it tells of its tasks."""

    metadata: Head
    spec: JobSpec
    status: Any


class Named(TypedDict, total=False):
    """An object of which all is read but who wrote it."""

    metadata: Head
    spec: Any
    status: Any


WHOLE, POD, JOB, NAMED = (Shape(each) for each in (dict[str, Any], Pod, Job, Named))


def seconds(timestamp: str | None) -> float | None:
    """Return a time of the API, `2026-01-31T12:00:00Z`, in epoch seconds; None for no time."""
    if not timestamp:
        return None
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def condition(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return one of an object's conditions, empty when it has none of this kind."""
    every = (found.get("status") or {}).get("conditions") or []
    return next((each for each in every if each["type"] == kind), {})
