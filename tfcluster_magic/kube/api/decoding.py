"""Decoding of the API's objects, trimming of objects for caches, and conversion of times. Pure.

Decoders return plain dicts with only the fields that TFCluster reads. The API server sends each pod
three times before the pod runs. Most of a pod is managedFields or our own input; skipping these
parts takes a tenth of the time that decoding them would take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from ...spec import Phase, conversion
from ...spec.record_size import PAYLOAD
from ...spec.resource_form import parse_time
from .labels import GROUP


class Shape:
    """The decoders of a kind of objects: one for watch events, one for pages of a list."""

    def __init__(self, kind: Any) -> None:
        """Create the decoders. `kind` is a TypedDict of the fields to keep, or dict for
        everything.
        """
        event = msgspec.defstruct("Event", [("type", str), ("object", kind)])
        items = ("items", list[kind] | None, None)
        page = msgspec.defstruct("Page", [items, ("metadata", dict[str, Any], {})])
        self.event: msgspec.json.Decoder[Any] = conversion.decoder(event)
        self.page: msgspec.json.Decoder[Any] = conversion.decoder(page)


class ObjectMeta(TypedDict, total=False):
    """The metadata of an object without managedFields."""

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
    """The image and resources of a container; `restartPolicy` marks a sidecar."""

    name: Any
    image: Any
    resources: Any
    restartPolicy: Any


class PodSpec(TypedDict, total=False):
    """The requests and the node of a pod."""

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
    """A pod without commands, environment and probes."""

    metadata: ObjectMeta
    spec: PodSpec
    status: Any


class JobSpec(TypedDict, total=False):
    """The spec of a Job without the pod template."""

    suspend: Any
    completions: Any
    parallelism: Any


class Job(TypedDict, total=False):
    """A Job with the fields that describe its tasks."""

    metadata: ObjectMeta
    spec: JobSpec
    status: Any


class AnyObject(TypedDict, total=False):
    """An object without managedFields."""

    metadata: ObjectMeta
    spec: Any
    status: Any


WHOLE_SHAPE, POD_SHAPE, JOB_SHAPE, NAMED_SHAPE = (
    Shape(each) for each in (dict[str, Any], Pod, Job, AnyObject)
)


def epoch_seconds(timestamp: str | None) -> float | None:
    """Return an API time, `2026-01-31T12:00:00Z`, in seconds since the epoch; None for no time."""
    return parse_time(timestamp) if timestamp else None


def condition(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the condition of this type; empty if the object has none."""
    every = (found.get("status") or {}).get("conditions") or []
    return next((each for each in every if each["type"] == kind), {})


# Trimming of objects for caches: a cache of 600 pods takes a few MiB. The given object is never
# changed, and every field that `kube.status` and the checks of free resources read is kept.

Object = dict[str, Any]

_OF_POD = (
    *("nodeName", "nodeSelector", "volumes", "imagePullSecrets", "overhead", "resources"),
    *("schedulerName", "priorityClassName"),
)
_OF_CONTAINER = ("name", "image", "resources")
_FINAL = {phase.value for phase in Phase if phase.is_final}


def trim_pod(found: Object) -> Object:
    """Return a pod without commands, environment and probes."""
    spec = found.get("spec") or {}
    kept = {key: spec[key] for key in _OF_POD if key in spec}
    kept["containers"] = [
        {key: each[key] for key in _OF_CONTAINER if key in each}
        for each in spec.get("containers") or []
    ]
    return {"metadata": _head(found), "spec": kept, "status": found.get("status") or {}}


def trim_job(found: Object) -> Object:
    """Return a Job without its pod template."""
    kept = {key: value for key, value in found["spec"].items() if key != "template"}
    return {"metadata": _head(found), "spec": kept, "status": found.get("status") or {}}


def trim_node(found: Object) -> Object:
    """Return a node without its list of images."""
    status = {key: value for key, value in found["status"].items() if key != "images"}
    return {"metadata": _head(found), "spec": found.get("spec") or {}, "status": status}


_OF_RECORD = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "finalizers"),
)
_TOLD_BYTES = 16 * 1024
"""Maximum characters of one of our annotations. No launch writes a longer annotation, so a longer
one is ignored.
"""
_SHOWN = ("interpreter", *(f"program.{name}" for name in ("source", "entrypoint", "path", "url")))
"""Fields of a spec whose texts stay in the cache, because the operator reads them; each text has at
most 4096 characters.
"""
_PAYLOAD = {each.path for each in PAYLOAD if each.names[0] != "pods"}.difference(_SHOWN)
"""Fields of a spec with texts of any length, which only the tasks need. They are not cached, but
read again when tasks are created.
"""
_OF_ENDED_SPEC = ("mode", "replicas", "lifecycle", "stop")
_OF_ENDED_STATUS = (
    *("phase", "reason", "completionTime", "releasedTime", "counts", "usage"),
    "observedGeneration",
)
_LONGEST_SHOWN = 100
"""A pod annotation in the cache is cut to this many characters; the message of a refusal shows no
more.
"""


def trim_tfcluster(found: Object) -> Object:
    """Return a TFCluster with only the fields that the operator needs in its cache.

    The result lacks the environment, arguments and program, which may be large. A run that is over
    keeps only what accounting, retention and counts need.
    """
    head = {key: value for key, value in found["metadata"].items() if key in _OF_RECORD}
    if notes := _own_annotations(found["metadata"]):
        head["annotations"] = notes
    spec, status = found.get("spec") or {}, found.get("status") or {}
    if status.get("phase") in _FINAL and status.get("releasedTime") is not None:
        spec = {key: spec[key] for key in _OF_ENDED_SPEC if key in spec}
        status = {key: status[key] for key in _OF_ENDED_STATUS if key in status}
        head.pop("annotations", None)
    else:
        spec = {key: value for key, value in spec.items() if key not in _PAYLOAD}
        if isinstance(program := spec.get("program"), dict):
            spec["program"] = {k: v for k, v in program.items() if f"program.{k}" not in _PAYLOAD}
        if isinstance(pods := spec.get("pods"), dict) and pods.get("annotations"):
            shown = {k: str(v)[:_LONGEST_SHOWN] for k, v in pods["annotations"].items()}
            spec["pods"] = {**pods, "annotations": shown}
    return {"metadata": head, "spec": spec, "status": status}


def _own_annotations(head: Object) -> Object:
    """Return the annotations of TFCluster and of Kubernetes' Jobs. No other annotations are read
    from the cache.
    """
    ours = (f"{GROUP}/", "batch.kubernetes.io/")
    return {
        key: value
        for key, value in (head.get("annotations") or {}).items()
        if key.startswith(ours) and len(value) <= _TOLD_BYTES
    }


def _head(found: Object) -> Object:
    head = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    if head.get("annotations"):
        head["annotations"] = _own_annotations(head)
    return head
