"""The JSON Schema of the models as the structural schema that Kubernetes wants. Pure.

Promises the same names, bounds and descriptions, and that what is absent and what is null are one.
A pattern becomes a CEL rule that says in words what may be written. It knows nothing of TFClusters.

Ref: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...i18n import language
from ...launch.validation.shapes import rule_of
from ..api.client import Object

_KEPT = (
    "type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "maxItems",
    "maxProperties",
)  # fmt: skip
VALIDATIONS = "x-kubernetes-validations"


def structural(schema: Mapping[str, Any], name: str, *, strict: bool = True) -> Object:
    """The definition `name` of a JSON Schema (2020-12) with every reference resolved.

    Not `strict`, it has neither bounds nor defaults: for what only the operator writes, so that an
    older schema refuses nothing that a newer operator says.
    """
    definitions = schema["$defs"]
    with language("en"):
        return _node({"$ref": f"#/$defs/{name}"}, definitions, strict)


def _node(node: Mapping[str, Any], definitions: Mapping[str, Any], strict: bool) -> Object:
    """One schema. Structural: `type` stands everywhere, and nothing is hidden in `anyOf`."""
    told = dict(node)
    while "$ref" in told or "anyOf" in told:
        if "anyOf" in told:  # X or null: the API server takes null for absent
            (inner,) = (each for each in told.pop("anyOf") if each.get("type") != "null")
        else:
            inner = definitions[told.pop("$ref").rsplit("/", 1)[-1]]
        told = {**inner, **told}
    made: Object = {}
    if "description" in told:
        made["description"] = _sentence(told["description"])
    made |= {key: told[key] for key in _KEPT if key in told and (strict or key == "type")}
    made.setdefault("type", "string")  # an enum
    if "exclusiveMinimum" in told and strict:
        made |= {"minimum": told["exclusiveMinimum"], "exclusiveMinimum": True}
    if words := rule_of(made.get("pattern", "")):
        made[VALIDATIONS] = [{"rule": matches("self", made.pop("pattern")), "message": words}]
    if "properties" in told:
        made["properties"] = {
            key: _node(each, definitions, strict) for key, each in told["properties"].items()
        }
        if told.get("required"):
            made["required"] = list(told["required"])
    elif isinstance(told.get("additionalProperties"), Mapping):
        made["additionalProperties"] = _node(told["additionalProperties"], definitions, strict)
    if "items" in told:
        made["items"] = _node(told["items"], definitions, strict)
    default = told.get("default")
    if strict and (default or (default == {} and "properties" in made)):
        made["default"] = default
    return made


def matches(value: str, pattern: str) -> str:
    """A CEL expression: whether `value` has this pattern, none of which has a quotation mark."""
    return f"{value}.matches(r'{pattern}')"


def _sentence(text: str) -> str:
    """A description for `kubectl explain`: one paragraph, a capital letter, a full stop."""
    text = " ".join(text.replace("`", "'").split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
