"""The custom resource as the models define it; tests/kube checks it on an API server."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import pytest
from msgspec.structs import fields
from support.invalid_specs import SAME, WRONG, Wrong

from tfcluster_magic.errors import InvalidRequest, Problem
from tfcluster_magic.i18n import language
from tfcluster_magic.kube.objects import crd
from tfcluster_magic.launch.validation import rules, validate
from tfcluster_magic.launch.validation.schema import element_type, model_type
from tfcluster_magic.spec import MEMORY_PATTERN, Clause, Model, Spec, Status, resource_form
from tfcluster_magic.spec.spec import ANNOTATION_PATTERN

SCHEMA = crd.object_schema()
SPEC = SCHEMA["properties"]["spec"]
STATUS = SCHEMA["properties"]["status"]


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema below `node`, with its path."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


VALUES = ".params[]"
"""Fields for the values of a message, which may be messages themselves."""


def paths_of(kind: type[Model], path: str) -> Iterator[str]:
    """Yield the path in the resource of every field of a model and of the models in it."""
    other = resource_form.other_names(kind)
    for field in fields(kind):
        where = f"{path}.{other.get(field.encode_name, field.encode_name)}"
        yield where
        below = model_type(field.type)
        if inner := below or element_type(field.type) or _value_in(field.type):
            yield from paths_of(inner, where if below else f"{where}[]")


def _value_in(annotation: Any) -> type[Model] | None:
    """Return the model X if `annotation` is `dict[str, X]`, also within Annotated; otherwise
    None.
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return model_type(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def test_every_field_of_the_models_is_in_the_resource_and_no_other() -> None:
    """The resource has every field of a record except the addresses, which follow from the name."""
    named = {path for path, _ in nodes(SPEC, "spec") if not path.endswith("[]")}
    assert named - {"spec", *paths_of(Spec, "spec")} == {"spec.pods.imagePullSecrets[].name"}
    assert {"spec", *paths_of(Spec, "spec")} - named == set()

    told = {path for path, _ in nodes(STATUS, "status") if not path.endswith("[]")}
    told = {re.sub(r"(counts)\.(chief|worker|ps|evaluator)", r"\1[]", path) for path in told}
    whole = {"status", *paths_of(Status, "status")}
    assert whole - told == {"status.addresses"}
    alone = re.compile(
        r"status\.(ready|observedGeneration|conditions.*|usage\.days\[\].*)|.*\.decimals"
        r"|.*\.(chief|worker|ps|evaluator)"
    )
    assert [p for p in told - whole if not (alone.fullmatch(p) or p.endswith("[]"))] == []


@pytest.mark.parametrize("word", ["$ref", "nullable", "title", "exclusiveMaximum"])
def test_nothing_is_in_the_schema_that_kubernetes_refuses(word: str) -> None:
    """The schema has no references, unions or nulls, which JSON Schema has but Kubernetes
    refuses.
    """
    assert json.dumps(word) + ":" not in json.dumps(crd.crd_object())


def test_every_schema_has_a_type_and_none_takes_unknown_fields() -> None:
    """The schema is structural: each node has a type, and unknown fields are dropped, except in the
    values of messages, which only the operator writes. A quantity is text or a number.
    """
    for path, node in nodes(SCHEMA, ""):
        if "status" in path and path.endswith(VALUES):
            assert node == {"x-kubernetes-preserve-unknown-fields": True}
            continue
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}] and "type" not in node
            continue
        assert "anyOf" not in node, path
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert "x-kubernetes-preserve-unknown-fields" not in node, path
        assert not {"properties", "additionalProperties"} <= node.keys(), path


# The following tests check the conventions of the Kubernetes API that are visible in a schema.
# docs/reference/kubernetes-resource.md discusses all conventions.


def test_every_field_is_explained() -> None:
    """`kubectl explain` has a sentence for each field."""
    unit = re.compile(r"(In (milli)?seconds\.|In RFC 3339\.|A quantity\.)?( Default: .*)?")
    silent = {
        path
        for path, node in nodes(SCHEMA, "")
        if not path.endswith("[]")
        and not (
            node.get("description", "").endswith(".") and not unit.fullmatch(node["description"])
        )
    }
    assert silent == {".metadata"}  # Kubernetes itself describes metadata


def test_no_number_is_a_floating_point_number() -> None:
    """Numbers are integers of a known size, in schemas and in defaults."""
    for path, node in nodes(SCHEMA, ""):
        assert node.get("type") != "number", path
        assert (
            "type" not in node
            or (node["type"] == "integer") == ("format" in node)
            or (node["format"] == "date-time")
        ), path
        assert not isinstance(node.get("default"), float), path


def test_durations_times_and_amounts_say_their_unit() -> None:
    """A duration is an integer, and its field is called `…Seconds`. A time is written in RFC 3339,
    and its field is called `…Time`. CPU and memory are quantities. `kubectl explain` names these
    units.
    """
    for path, node in nodes(SCHEMA, ""):
        name, told = path.rsplit(".", 1)[-1], node.get("description", "")
        is_time = node.get("format") == "date-time"
        assert is_time == bool(re.search("(^t|T)ime$", name)) == ("In RFC 3339." in told), path
        if "In seconds." in told or "In milliseconds." in told:
            assert node["type"] == "integer" and name.endswith("econds"), path
        if "x-kubernetes-int-or-string" in node:
            assert "A quantity." in told, path
        is_text = node.get("pattern") == MEMORY_PATTERN
        assert not is_text, f"{path}: write it as a quantity, in spec/resource_form.py"
    amounts = {path for path, node in nodes(SCHEMA, "") if "x-kubernetes-int-or-string" in node}
    assert {path.rsplit(".", 1)[-1] for path in amounts} >= {"cpu", "memory", "size"}
    ruled = {f".spec.{rule.at}" for rule in crd.QUANTITY_RULES}
    missing = {path for path in amounts if path.startswith(".spec.")} - ruled
    assert not missing, f"add a rule for {missing} to QUANTITY_RULES of kube/objects/crd.py"
    lifecycle = SPEC["properties"]["lifecycle"]["properties"]
    durations = {name for name, node in lifecycle.items() if "In seconds." in node["description"]}
    assert durations == set(DURATIONS)


DURATIONS = (
    "reclaimAfterSeconds",
    "queueTimeoutSeconds",
    "startTimeoutSeconds",
    "imageTimeoutSeconds",
    "maxDurationSeconds",
    "idleTimeoutSeconds",
    "stallTimeoutSeconds",
    "graceSeconds",
    "keepForSeconds",
)


def test_constants_and_names_are_in_camel_case() -> None:
    """Values of enumerations begin with a capital letter, names of fields with a small letter."""
    for path, node in nodes(SCHEMA, ""):
        assert all(re.fullmatch(r"([A-Z][a-z]*)+", value) for value in node.get("enum", ())), path
        assert all(re.fullmatch(r"[a-z][A-Za-z0-9]*", name) for name in node.get("properties", ()))


def test_maps_hold_no_objects() -> None:
    """The values of a map are texts or numbers. Objects stand in fields, or in lists with a key."""
    for path, node in nodes(SCHEMA, ""):
        value = node.get("additionalProperties", {})
        assert value.get("type") not in ("object", "array"), path


def test_conditions_are_those_of_kubernetes() -> None:
    """Conditions are a list with the type as key; each is a metav1.Condition. The status also has
    observedGeneration.
    """
    told = STATUS["properties"]
    conditions = told["conditions"]
    assert told["observedGeneration"]["type"] == "integer"
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    fields_ = {"type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"}
    assert set(conditions["items"]["properties"]) == fields_
    assert set(conditions["items"]["required"]) == fields_ - {"observedGeneration"}


def test_every_default_is_explained() -> None:
    """`kubectl explain` does not show defaults, so each field's text states its default."""
    for path, node in nodes(SPEC, "spec"):
        if node.get("default") not in (None, {}):
            said = node["default"]
            words = said if isinstance(said, str) else json.dumps(said)
            assert f"Default: {words}." in node["description"], path


def test_bounds_and_defaults_are_those_of_the_models() -> None:
    """The API server fills in the models' defaults, and refuses values that the models refuse."""
    by_path = dict(nodes(SPEC, "spec"))

    count = by_path["spec.replicas.worker.count"]
    assert (count["minimum"], count["maximum"]) == (0, 1000)
    cpu = json.dumps(by_path["spec.replicas.ps.resources.cpu"])
    assert "isGreaterThan(quantity('0'))" in cpu and "isGreaterThan(quantity('1024'))" in cpu
    longest = by_path["spec.lifecycle.maxDurationSeconds"]
    assert (longest["minimum"], longest["maximum"], longest["default"]) == (1, 31622400, 86400)
    assert by_path["spec.lifecycle.graceSeconds"]["minimum"] == 0
    assert by_path["spec.lifecycle.heals"]["default"] == 3
    assert by_path["spec.replicas.worker"]["default"] == {"count": 1}
    assert by_path["spec.mode"]["enum"] == ["BetweenGraph", "InGraph"]
    assert by_path["spec.mode"]["default"] == "BetweenGraph"
    assert by_path["spec.pods.volumes"]["maxItems"] == 20
    assert by_path["spec.pods.volumes[]"]["required"] == ["claimName", "path"]
    assert by_path["spec.program.sha256"]["pattern"] == "^([0-9a-f]{64})?$"


def test_the_status_bounds_nothing() -> None:
    """An older schema accepts everything that a newer operator writes, but drops unknown fields."""
    for path, node in nodes(STATUS, "status"):
        assert not node.keys() & {"enum", "pattern", "maximum", "maxItems", "default"}, path


def test_columns_show_what_there_is() -> None:
    """Each column of `kubectl get tfc` reads a field of the schema."""
    (version,) = crd.crd_object()["spec"]["versions"]
    known = {path for path, _ in nodes(SCHEMA, "")} | {".metadata.creationTimestamp"}

    assert {column["jsonPath"] for column in version["additionalPrinterColumns"]} <= known


def test_everything_but_stop_is_kept_from_changing() -> None:
    """Each field of a spec has its own rule for changes, so that a refusal names the field."""
    rules_ = [r for r in SCHEMA["x-kubernetes-validations"] if "oldSelf" in r["rule"]]
    assert {r["fieldPath"] for r in rules_} == {f".spec.{f.encode_name}" for f in fields(Spec)}


def test_what_an_earlier_release_took_can_be_stopped() -> None:
    """The limit for the sum of all texts applies only to new records. Otherwise, a stop of an old
    record would be refused, because a stop changes the spec and so checks every rule again.
    """
    rules = SCHEMA["properties"]["spec"]["x-kubernetes-validations"]
    (bound,) = (each for each in rules if "64 KiB together" in each["message"])
    assert bound["optionalOldSelf"] is True
    assert bound["rule"].startswith("oldSelf.hasValue() || ")


def test_the_resource_is_in_english_whatever_the_language() -> None:
    """The definition of the resource is the same if it is generated under another language."""
    with language("zh_CN"):
        assert crd.object_schema() == SCHEMA


@dataclass(frozen=True)
class Found:
    """A problem that `launch.validation.rules` found in a wrong spec, and the line of code that
    reported it.
    """

    wrong: Wrong
    field: str
    allowed: Clause
    line: int

    @property
    def place(self) -> str:
        """The path of the field in the resource, such as `spec.lifecycle.maxDurationSeconds`."""
        return re.sub(r"\[\d+\]", "[]", resource_form.field_path(self.field))

    def is_of(self, rule: crd.CelRule) -> bool:
        """Return whether a rule of the resource has the same message for the same field or a parent
        of it.
        """
        place = ".".join(part for part in ("spec", rule.at, rule.field) if part)
        return self.allowed == rule.message and bool(
            re.match(rf"{re.escape(place)}(\W|$)", self.place)
        )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Found]:
    """Return the problems that the rules of a launch find in all wrong specs."""
    made: list[Found] = []

    def note(field: str, value: object, allowed: Clause) -> Problem:
        made.append(Found(wrong, field, allowed, sys._getframe(1).f_lineno))
        return Problem(field, value, allowed)

    monkeypatch.setattr(rules, "Problem", note)
    for wrong in WRONG:
        with pytest.raises(InvalidRequest):
            validate(wrong.spec)
    return made


PATTERN = next(rule for rule in crd.SPEC_RULES if ANNOTATION_PATTERN in rule.rule)
"""The rule for map keys, which a schema cannot check. The models of `spec` check them; the rules of
a launch do not.
"""


def test_every_rule_of_the_resource_is_one_of_a_launch(found: list[Found]) -> None:
    """For each rule in CEL, there is a spec with only this mistake, which a launch refuses with the
    same message. tests/kube shows that the API server refuses this spec, too.
    """
    alone = [
        rule
        for rule in crd.SPEC_RULES
        if rule != PATTERN and not any(each.is_of(rule) for each in found)
    ]
    assert alone == [], (
        "each of these CEL rules of kube/objects/crd.py needs a spec in "
        "tests/support/invalid_specs.py that launch/validation/rules.py refuses with the same "
        "message for the same field"
    )


def test_every_rule_of_a_launch_is_one_of_the_resource(found: list[Found]) -> None:
    """Each problem that the rules of a launch can find occurs in one of the wrong specs. For each
    problem that `kubectl apply` has to report as a launch does, there is a rule in CEL with the
    same message.
    """
    calls = [n for n in ast.walk(ast.parse(inspect.getsource(rules))) if isinstance(n, ast.Call)]
    made = {n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "Problem"}
    untested = sorted(made - {each.line for each in found})
    assert untested == [], "\n".join(
        f"rules.py:{line} has no invalid spec: add one to tests/support/invalid_specs.py"
        for line in untested
    )

    alone = [
        each
        for each in found
        if each.wrong.kubectl == SAME and not any(map(each.is_of, crd.SPEC_RULES))
    ]
    assert alone == [], "\n".join(
        f"rules.py:{each.line} has no rule with the same message for {each.place} in "
        "kube/objects/crd.py: add one to SPEC_RULES"
        for each in alone
    )
