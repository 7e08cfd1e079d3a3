"""The CustomResourceDefinition of TFCluster, made of the models. Pure.

Promises that `kubectl apply` refuses what `%tfcluster launch` refuses, in the same words, before
anything is stored, and that a stored spec changes in nothing but `stop`. What of that a schema
cannot say are CEL rules; `validation/` has the same once more, and a test holds them together.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import fields

from ...spec import KIND, Spec, schema
from ..api.client import Object
from ..api.labels import GROUP, VERSION
from .crd_rules import NAME, NO_NUL, RULES
from .openapi import VALIDATIONS, structural

PLURAL = "tfclusters"
_COLUMNS = (
    ("Phase", "string", ".status.phase", "Where the run is.", 0),
    ("Ready", "string", ".status.ready", "Tasks that run or have succeeded, of all.", 0),
    ("Reason", "string", ".status.reason", "Why it is there.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Since the launch.", 0),
    ("Message", "string", ".status.message", "The reason as a sentence.", 1),
)


def definition() -> Object:
    """The object that an administrator applies."""
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["tfc"],
        "categories": ["all"],
    }
    columns = [
        {"name": name, "type": kind, "jsonPath": path, "description": text}
        | ({"priority": priority} if priority else {})
        for name, kind, path, text, priority in _COLUMNS
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": openapi()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "tfcluster"},
        },
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "preserveUnknownFields": False,
            "versions": [version],
        },
    }


def openapi() -> Object:
    """The schema of a whole object."""
    whole = schema()
    spec = structural(whole, "Spec")
    for rule in RULES:
        _at(spec, rule.at).setdefault(VALIDATIONS, []).append(rule.as_object())
    for where in NO_NUL:
        _at(spec, where)["pattern"] = r"^[^\x00]*$"
    spec[VALIDATIONS] += _unchanging(spec)
    status = structural(whole, "Status", strict=False)
    del status["properties"]["addresses"]  # they follow from the name
    status["properties"]["ready"] = {
        "type": "string",
        "description": "Tasks that run or have succeeded, of all, as in 2/3.",
    }
    return {
        "description": "One run of a TensorFlow cluster, called <cluster>-<run>, as in digits-1.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", VALIDATIONS: [NAME.as_object()]}},
            },
            "spec": spec,
            "status": status,
        },
    }


def _at(node: Object, where: str) -> Any:
    """The schema at a path such as `pods.volumes[].path`; `[]` is each value of a list or map."""
    for part in where.split(".") if where else ():
        name = part.removesuffix("[]")
        node = node["properties"][name]
        if part != name:
            node = node["items"] if "items" in node else node["additionalProperties"]
    return node


def _unchanging(spec: Object) -> list[Object]:
    """Transition rules: of a run that exists only `stop` may be set, and that once."""
    found = []
    for name in (field.encode_name for field in fields(Spec)):
        if name == "stop":
            rule = "!has(oldSelf.stop) || (has(self.stop) && self.stop == oldSelf.stop)"
            message = "a run that is asked to stop stays so: launch another one"
        else:
            both = f"has(self.{name}) && has(oldSelf.{name}) && self.{name} == oldSelf.{name}"
            rule = f"({both}) || (!has(self.{name}) && !has(oldSelf.{name}))"
            if "default" in spec["properties"][name]:
                rule = f"self.{name} == oldSelf.{name}"
            message = "only spec.stop can change once a run exists: launch another one"
        found.append({"rule": rule, "message": message, "fieldPath": f".{name}"})
    return found
