"""The custom resource as the models define it; what the API server does with it is tested there."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import pytest
from msgspec.structs import fields
from support.invalid_specs import SAME, WRONG, Wrong

from tfcluster_magic.errors import InvalidRequest, Problem
from tfcluster_magic.i18n import language
from tfcluster_magic.kube.objects import crd
from tfcluster_magic.launch.validation import rules, validate
from tfcluster_magic.launch.validation.schema import element_type, model_type
from tfcluster_magic.spec import Model, Spec, Status
from tfcluster_magic.spec.spec import ANNOTATION_PATTERN

SCHEMA = crd.object_schema()
SPEC = SCHEMA["properties"]["spec"]
STATUS = SCHEMA["properties"]["status"]


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below `node`, with its path."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


VALUES = ".params[]"
"""Where the values of a message stand, which are messages in turn."""


def paths_of(kind: type[Model], path: str) -> Iterator[str]:
    """The path of every field of a model and of the models in it."""
    for field in fields(kind):
        where = f"{path}.{field.encode_name}"
        yield where
        below = model_type(field.type)
        if inner := below or element_type(field.type) or _value_in(field.type):
            yield from paths_of(inner, where if below else f"{where}[]")


def _value_in(annotation: Any) -> type[Model] | None:
    """The model behind `dict[str, X]`."""
    return model_type(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def test_every_field_of_the_models_is_in_the_resource_and_no_other() -> None:
    """What a record holds can be stored in Kubernetes; addresses follow from the name."""
    named = {path for path, _ in nodes(SPEC, "spec") if not path.endswith("[]")}
    assert named == {"spec", *paths_of(Spec, "spec")}

    told = {path for path, _ in nodes(STATUS, "status") if not path.endswith("[]")}
    whole = {"status", *paths_of(Status, "status")}
    assert whole - told == {"status.addresses"}
    assert told - whole == {"status.ready"}


@pytest.mark.parametrize("word", ["$ref", "anyOf", "nullable", "title", "exclusiveMaximum"])
def test_nothing_is_in_the_schema_that_kubernetes_refuses(word: str) -> None:
    """References, unions and nulls of JSON Schema are resolved."""
    assert json.dumps(word) + ":" not in json.dumps(crd.crd_object())


def test_every_schema_has_a_type_and_none_takes_unknown_fields() -> None:
    """The schema is structural: each node has a type, and what it does not name is dropped; but
    for the values of messages, which the operator alone writes.
    """
    for path, node in nodes(SCHEMA, ""):
        if "status" in path and path.endswith(VALUES):
            assert node == {"x-kubernetes-preserve-unknown-fields": True}
            continue
        assert node["type"] in {"object", "array", "string", "integer", "number", "boolean"}, path
        assert "x-kubernetes-preserve-unknown-fields" not in node, path
        assert not {"properties", "additionalProperties"} <= node.keys(), path


def test_every_field_of_a_spec_is_explained() -> None:
    """`kubectl explain` has a sentence for each field that a person may write."""
    silent = {
        path
        for path, node in nodes(SPEC, "spec")
        if not path.endswith("[]") and not node.get("description", "").endswith(".")
    }
    assert silent == set()


def test_bounds_and_defaults_are_those_of_the_models() -> None:
    """The API server fills in what the models fill in, and refuses what they refuse."""
    by_path = dict(nodes(SPEC, "spec"))

    count = by_path["spec.replicas.worker.count"]
    assert (count["minimum"], count["maximum"]) == (0, 1000)
    cpu = by_path["spec.replicas.ps.resources.cpu"]
    assert (cpu["minimum"], cpu["exclusiveMinimum"], cpu["maximum"]) == (0, True, 1024)
    assert by_path["spec.lifecycle.heals"]["default"] == 3
    assert by_path["spec.replicas.worker"]["default"] == {"count": 1}
    assert by_path["spec.mode"]["enum"] == ["between-graph", "in-graph"]
    assert by_path["spec.pods.volumes"]["maxItems"] == 20
    assert by_path["spec.pods.volumes[]"]["required"] == ["claim", "path"]
    assert by_path["spec.program.sha256"]["pattern"] == "^[0-9a-f]{64}$"


def test_the_status_bounds_nothing() -> None:
    """An older schema refuses nothing that a newer operator writes, but drops what is unknown."""
    for path, node in nodes(STATUS, "status"):
        assert not node.keys() & {"enum", "pattern", "maximum", "maxItems", "default"}, path


def test_columns_show_what_there_is() -> None:
    """Each column of `kubectl get tfc` reads a field of the schema."""
    (version,) = crd.crd_object()["spec"]["versions"]
    known = {path for path, _ in nodes(SCHEMA, "")} | {".metadata.creationTimestamp"}

    assert {column["jsonPath"] for column in version["additionalPrinterColumns"]} <= known


def test_everything_but_stop_is_kept_from_changing() -> None:
    """Each field of a spec has a rule of its own for changes, so that a refusal names it."""
    kept = {
        rule["fieldPath"] for rule in SPEC["x-kubernetes-validations"] if "oldSelf" in rule["rule"]
    }
    assert kept == {f".{field.encode_name}" for field in fields(Spec)}


def test_the_resource_is_in_english_whatever_the_language() -> None:
    """A definition made under another language is the same."""
    with language("zh_CN"):
        assert crd.object_schema() == SCHEMA


@dataclass(frozen=True)
class Found:
    """A problem that `launch.validation.rules` found in a wrong spec, and the line that made it."""

    wrong: Wrong
    field: str
    allowed: str
    line: int

    def is_of(self, rule: crd.CelRule) -> bool:
        """Whether a rule of the resource says the same of the same field, or of one around it."""
        place = ".".join(part for part in ("spec", rule.at, rule.field) if part)
        field = re.sub(r"\[\d+\]", "[]", self.field)
        return self.allowed == rule.message and bool(re.match(rf"{re.escape(place)}(\W|$)", field))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Found]:
    """Return the problems that the rules of a launch find in all wrong specs."""
    made: list[Found] = []

    def note(field: str, value: object, allowed: str) -> Problem:
        made.append(Found(wrong, field, allowed, sys._getframe(1).f_lineno))
        return Problem(field, value, allowed)

    monkeypatch.setattr(rules, "Problem", note)
    for wrong in WRONG:
        with pytest.raises(InvalidRequest):
            validate(wrong.spec)
    return made


PATTERN = next(rule for rule in crd.SPEC_RULES if ANNOTATION_PATTERN in rule.rule)
"""Of keys of a map, for which a schema has no pattern; `spec` has it, and no rule of a launch."""


def test_every_rule_of_the_resource_is_one_of_a_launch(found: list[Found]) -> None:
    """For each rule in CEL there is a spec with that mistake alone, which a launch refuses in the
    same words; tests/kube shows that the API server refuses it, too.
    """
    alone = [
        rule
        for rule in crd.SPEC_RULES
        if rule != PATTERN and not any(each.is_of(rule) for each in found)
    ]
    assert alone == []


def test_every_rule_of_a_launch_is_one_of_the_resource(found: list[Found]) -> None:
    """Each problem that the rules of a launch can find is found in a wrong spec, and a rule in CEL
    has the same words for it where kubectl is to be told the same.
    """
    calls = [n for n in ast.walk(ast.parse(inspect.getsource(rules))) if isinstance(n, ast.Call)]
    made = {n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "Problem"}
    assert made - {each.line for each in found} == set()

    alone = [
        each
        for each in found
        if each.wrong.kubectl == SAME and not any(map(each.is_of, crd.SPEC_RULES))
    ]
    assert alone == []
