"""The CustomResourceDefinition of TFCluster, generated from the models. Pure.

`kubectl apply` refuses the same specs as `%tfcluster launch`, with the same messages, before
anything is stored. Only `stop` of a stored spec can change. Rules that a schema cannot express are
in CEL; `launch.validation` has the same rules, and a test compares the two. `spec.resource_form`
defines names, units and types of fields.

Ref:
https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
Ref:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
Ref: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import fields

from ...i18n import ENGLISH, language
from ...launch.validation import rules
from ...launch.validation.schema import PATTERN_RULES
from ...spec import (
    ENV_NAME_PATTERN,
    KIND,
    Clause,
    Mode,
    Model,
    Spec,
    TaskType,
    resource_form,
    schema,
)
from ...spec.names import RUN_NAME_RULE
from ...spec.quantities import MEMORY_RULE
from ...spec.record_size import AROUND, PAYLOAD, PayloadField, Texts, stored_bytes_in_cel
from ...spec.resource_form import constant
from ...spec.spec import ANNOTATION_PATTERN, MOST_CORES, PAYLOAD_BYTES
from ..api.client import Object
from ..api.labels import GROUP, LONGEST_RUN_NAME, RUN_PATTERN, VERSION

_KEPT = (
    "type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "maxItems", "maxProperties",
)  # fmt: skip
VALIDATIONS = "x-kubernetes-validations"


def structural_schema(
    schema: Mapping[str, Any],
    name: str,
    *,
    strict: bool = True,
    models: Mapping[str, type[Model]] = resource_form.MODELS,
) -> Object:
    """Return the definition `name` of a JSON Schema (2020-12) with every reference resolved.

    If `strict` is false, the result has neither bounds nor defaults. Fields that only the operator
    writes use this form, so that an older schema accepts everything from a newer operator.
    """
    definitions = schema["$defs"]
    with language("en"):
        return _node({"$ref": f"#/$defs/{name}"}, definitions, strict, models)


def _node(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    strict: bool,
    models: Mapping[str, type[Model]],
) -> Object:
    """Return one node as a structural schema: `type` is always set, and no field is defined only in
    `anyOf`.
    """
    told, model = _resolved(node, definitions, models)
    if "anyOf" in told:  # such as the values of a message, which may be messages themselves
        return {"x-kubernetes-preserve-unknown-fields": True}
    made: Object = {}
    if "description" in told:
        made["description"] = _sentence(told["description"])
    made |= {key: told[key] for key in _KEPT if key in told and (strict or key == "type")}
    made.setdefault("type", "string")  # an enum
    if "exclusiveMinimum" in told and strict:
        made |= {"minimum": told["exclusiveMinimum"], "exclusiveMinimum": True}
    if words := PATTERN_RULES.get(made.get("pattern", "")):
        rule = CelRule("", cel_matches("self", made.pop("pattern")), words)
        made[VALIDATIONS] = [rule.as_object()]
    if "properties" in told:
        parts = {
            key: _node(each, definitions, strict, models)
            for key, each in told["properties"].items()
        }
        made["properties"] = resource_form.properties(model, parts) if model else parts
        if told.get("required"):
            other = resource_form.other_names(model) if model else {}
            made["required"] = [other.get(key, key) for key in told["required"]]
    elif isinstance(told.get("additionalProperties"), Mapping):
        made["additionalProperties"] = _node(
            told["additionalProperties"], definitions, strict, models
        )
    if "items" in told:
        made["items"] = _node(told["items"], definitions, strict, models)
    default = told.get("default")
    if strict and (default or (default == {} and "properties" in made)):
        made["default"] = default
    if strict and isinstance(default, (bool, int)) and not default:  # objects omit such fields
        made["description"] = _default_told(made.get("description", ""), default)
    if made["type"] == "integer":
        made["format"] = "int32" if made.get("maximum", 2**31) < 2**31 else "int64"
    return made


def _resolved(
    node: Mapping[str, Any],
    definitions: Mapping[str, Any],
    models: Mapping[str, type[Model]],
) -> tuple[Object, type[Model] | None]:
    """Return a schema without references, and the model that it describes. `anyOf` stays if several
    types are possible.
    """
    told, model = dict(node), None
    while "$ref" in told or "anyOf" in told:
        if "anyOf" in told:  # X or null: the API server treats null as absent
            inner, *others = (each for each in told["anyOf"] if each.get("type") != "null")
            if others:
                break
            del told["anyOf"]
        else:
            name = told.pop("$ref").rsplit("/", 1)[-1]
            inner, model = definitions[name], models.get(name)
        told = {**inner, **told}
    return told, model


def cel_matches(value: str, pattern: str) -> str:
    """Return a CEL expression that tests `value` against a pattern, which must not contain
    quotation marks.
    """
    return f"{value}.matches(r'{pattern}')"


def _default_told(text: str, default: object) -> str:
    """Add the default to a description, because `kubectl explain` shows it nowhere else."""
    said = default if isinstance(default, str) else json.dumps(default)
    return f"{text} Default: {said}."


def tell_defaults(node: Object) -> None:
    """Add the defaults to the descriptions of a schema."""
    if default := node.get("default"):
        node["description"] = _default_told(node["description"], default)
    for below in (*node.get("properties", {}).values(), *filter(None, [node.get("items")])):
        tell_defaults(below)


def _sentence(text: str) -> str:
    """Return a description for `kubectl explain`: one paragraph, a capital letter, a full stop."""
    text = " ".join(text.replace("`", "'").split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


# CEL rules, most of them about several fields, with the messages of `launch.validation`. Every
# list and map that a rule iterates over has a maximum size in the models. Without it, the API
# server would estimate too high a cost of the rule, and refuse the schema.

_MANY = ("volumes", "secrets")


@dataclass(frozen=True)
class CelRule:
    """A validation rule below `spec`.

    `at` is the path of the schema, with `[]` for each value of a list or map. `message` is the
    error if `rule` is false, and `field` the path of the affected field below `at`.
    """

    at: str
    rule: str
    message: Clause
    field: str = ""
    is_for_new: bool = False
    """Whether the rule applies only to new objects."""

    def as_object(self) -> Object:
        """Return the rule as an element of a schema."""
        with language(ENGLISH):
            made: Object = {"rule": self.rule, "message": str(self.message)}
        if self.is_for_new:
            made |= {"rule": f"oldSelf.hasValue() || {self.rule}", "optionalOldSelf": True}
        return made | ({"fieldPath": f".{self.field}"} if self.field else {})


def _free(names: str, taken: tuple[str, ...]) -> str:
    """Return a CEL expression that is true if no key of a map begins with one of these prefixes."""
    return f"{names}.all(k, " + " && ".join(f"!k.startsWith('{each}')" for each in taken) + ")"


def _sum(*types: str) -> str:
    return " + ".join(f"self.replicas.{each}.count" for each in types)


def _under(folders: tuple[str, ...]) -> str:
    return "|".join(folder[1:] for folder in folders)


def _at_least(value: str, least: str) -> str:
    """Return a CEL expression that is true if `value` is at least `least`. The expression is also
    true if `value` is not a quantity, because other rules refuse such a value.
    """
    return (
        f"!isQuantity(string({value})) || "
        f"quantity(string({value})).compareTo(quantity('{least}')) >= 0"
    )


_IN_GRAPH, _BETWEEN = constant(Mode.IN_GRAPH.value), constant(Mode.BETWEEN_GRAPH.value)
_OURS, _OF_SYSTEM = _under(rules.RESERVED_MOUNTS), _under(rules.SYSTEM_FOLDERS)
_HIDDEN = rf"self.path.matches(r'^/(({_OURS})(/.*)?|({_OF_SYSTEM}))$')"
_MOUNTS = (
    "(has(self.volumes) ? self.volumes.map(v, v.path) : []) + "
    "(has(self.secrets) ? self.secrets.filter(s, has(s.path) && s.path != '').map(s, s.path) : [])"
)


def _is_there(root: str, row: PayloadField) -> str:
    """Return a CEL expression that is true if a field of the table `PAYLOAD` exists."""
    last = len(row.names) if row.is_optional else len(row.names) - 1
    return " && ".join(f"has({'.'.join((root, *row.names[: n + 1]))})" for n in range(last))


def _characters(root: str, row: PayloadField) -> str:
    """Return a CEL expression for the number of characters of a field, 0 if it does not exist."""
    where = f"{root}.{row.path}"
    if row.kind is Texts.ONE:
        counted = f"size({where}) + {AROUND}"
    elif row.kind is Texts.LIST:
        counted = f"{where}.map(t, size(t) + {AROUND}).sum()"
    elif row.kind is Texts.OBJECTS:
        each = " + ".join(_characters("o", part) for part in row.parts)
        counted = f"{where}.map(o, {each}).sum()"
    else:
        share = " * 3 / 4" if row.kind is Texts.FILES else ""
        counted = f"{where}.map(k, size(k) + size({where}[k]){share} + {2 * AROUND}).sum()"
    there = _is_there(root, row)
    return f"({there} ? {counted} : 0)" if there else counted


_PAYLOAD = " + ".join(_characters("self", row) for row in PAYLOAD)
"""CEL expression for the number of characters in all texts that have no limit of their own.
`k8s/base/admission.yaml` limits their bytes; counting bytes here would cost too much in CEL.
"""


def policy_variables() -> dict[str, str]:
    """Return the variables of `k8s/base/admission.yaml` that count bytes, as CEL expressions.

    The variables count the bytes of these parts: texts, contents of files, both together, the
    overhead of base64, and labels and annotations before and after the change. The table `PAYLOAD`
    lists the fields with texts and files; the expressions read them from the variable `spec`.
    """
    root = "variables.spec"
    marks = (PayloadField("labels", Texts.MAP), PayloadField("annotations", Texts.MAP))
    size, around = stored_bytes_in_cel("t"), f"{AROUND}"
    return {
        "texts": _lists(root, PAYLOAD),
        "files": " + ".join(
            f"({_is_there(root, row)} ? {_values(f'{root}.{row.path}')} : [])"
            for row in PAYLOAD
            if row.kind is Texts.FILES
        ),
        "payload": f"variables.texts.map(t, {size} + {around}).sum() + "
        f"variables.files.map(t, ({size}) * 3 / 4 + {around}).sum()",
        "base64": f"variables.files.map(t, ({size} + 3) / 4).sum()",
        "marks": f"[object, oldObject].map(o, o == null ? 0 : ({_lists('o.metadata', marks)})"
        f".map(t, {size} + {around}).sum())",
    }


def _lists(root: str, rows: Sequence[PayloadField]) -> str:
    """Return a CEL expression for a list of the texts of fields, without contents of files."""
    return " + ".join(
        f"({_is_there(root, row)} ? {' + '.join(_texts(f'{root}.{row.path}', row))} : [])"
        for row in rows
    )


def _texts(where: str, row: PayloadField) -> Iterator[str]:
    if row.kind is Texts.ONE:
        yield f"[{where}]"
    elif row.kind is Texts.LIST:
        yield where
    elif row.kind is Texts.OBJECTS:
        for part in row.parts:
            there = _is_there("o", part)
            of = f"{where}.filter(o, {there})" if there else where
            yield f"{of}.map(o, {_as_text(f'o.{part.path}', part)})"
    else:
        yield f"{where}.map(k, k)"
        if row.kind is Texts.MAP:
            yield _values(where)


def _as_text(where: str, part: PayloadField) -> str:
    """Return a CEL expression that joins a part of an object into one text. In a map, each
    separator is as long as the characters that JSON adds around a text, so that the length of the
    result is about the length of the JSON.
    """
    if part.kind is Texts.ONE:
        return where
    around = "-" * AROUND
    return f"{where}.map(k, k + '{around}' + {where}[k]).join('{around}')"


def _values(where: str) -> str:
    return f"{where}.map(k, {where}[k])"


_WRITTEN = "(" + " || ".join(f"has(self.{each})" for each in rules.PROGRAM_FORMS) + ")"
_HAS_CHECKSUM = "has(self.sha256) && self.sha256 != ''"
_HAS_ENTRYPOINT = "has(self.entrypoint) && self.entrypoint != ''"
_AS_ENVIRONMENT = (
    "self.filter(s, (!has(s.path) || s.path == '') && "
    "(!has(s.variables) || size(s.variables) == 0)).map(s, s.name)"
)

SPEC_RULES = (
    *(
        CelRule("", f"{_sum(each)} <= 1", rules.ONE_AT_MOST, f"replicas.{each}.count")
        for each in ("chief", "evaluator")
    ),
    *(
        CelRule(
            "",
            f"self.mode != '{_IN_GRAPH}' || {_sum(each)} == 0",
            rules.NO_SUCH_TASKS,
            f"replicas.{each}.count",
        )
        for each in ("chief", "evaluator")
    ),
    CelRule("", f"{_sum('worker', 'chief')} > 0", rules.WORKER_NEEDED, "replicas.worker.count"),
    CelRule(
        "",
        f"{_sum('chief', 'worker', 'ps', 'evaluator')} <= {rules.MOST_TASKS}",
        rules.TASKS_AT_MOST,
        "replicas",
    ),
    CelRule("", f"self.mode != '{_BETWEEN}' || has(self.program)", rules.PROGRAM_NEEDED, "program"),
    CelRule(
        "", f"self.mode != '{_IN_GRAPH}' || !has(self.program)", rules.PROGRAM_UNUSED, "program"
    ),
    *(
        CelRule(
            "",
            f"self.mode == '{constant(each.mode.value)}' || "
            f"self.{each.field} == '{constant(each.default.value)}'",
            each.why,
            each.field,
        )
        for each in rules.ONLY_IN
    ),
    *(
        CelRule(
            f"replicas.{each}.resources",
            f"!has(self.memory) || {_at_least('self.memory', rules.SMALLEST_MEMORY)}",
            rules.MEMORY_AT_LEAST,
            "memory",
        )
        for each in ("chief", "worker", "ps", "evaluator")
    ),
    CelRule("env", f"self.all(k, {cel_matches('k', ENV_NAME_PATTERN)})", rules.ENV_NAME),
    CelRule("env", _free("self", rules.RESERVED_ENV), rules.RESERVED_NAME),
    CelRule("", f"{_PAYLOAD} <= {PAYLOAD_BYTES}", rules.PAYLOAD_AT_MOST, is_for_new=True),
    CelRule(
        "program",
        f"[{', '.join(f'has(self.{each})' for each in rules.PROGRAM_FORMS)}]"
        ".filter(said, said).size() <= 1",
        rules.ONE_PROGRAM,
    ),
    CelRule("program", f"{_WRITTEN} || {_HAS_CHECKSUM}", rules.NO_PROGRAM),
    CelRule(
        "program",
        f"{_WRITTEN} || !({_HAS_CHECKSUM}) || ({_HAS_ENTRYPOINT})",
        rules.ENTRYPOINT_NEEDED,
        "entrypoint",
    ),
    CelRule(
        "program",
        f"!has(self.command) || !({_HAS_CHECKSUM} || {_HAS_ENTRYPOINT})",
        rules.COMMAND_ALONE,
    ),
    CelRule(
        "program",
        "!has(self.files) || (has(self.entrypoint) && self.entrypoint in self.files)",
        rules.ENTRYPOINT_MISSING,
        "entrypoint",
    ),
    CelRule(
        "interpreter", r"self.startsWith('/') && !self.contains('\x00')", rules.INTERPRETER_PATH
    ),
    *(
        CelRule(f"pods.{each}[]", f"!has(self.path) || !({_HIDDEN})", rules.HIDING_MOUNT, "path")
        for each in _MANY
    ),
    *(
        CelRule(
            f"pods.{each}[]",
            r"!has(self.path) || !self.path.matches(r'/\.{0,2}(/|$)')",
            rules.PLAIN_PATH,
            "path",
        )
        for each in _MANY
    ),
    CelRule(
        "pods.volumes[]",
        "!has(self.subPath) || self.subPath == '' || "
        r"!self.subPath.matches(r'(^|/)\.{0,2}(/|$)')",
        rules.PLAIN_PATH,
        "subPath",
    ),
    CelRule("after", "self.all(d, self.exists_one(e, e.run == d.run))", rules.NAMED_TWICE),
    CelRule("pods", f"({_MOUNTS}).all(p, ({_MOUNTS}).exists_one(q, q == p))", rules.MOUNTED_TWICE),
    CelRule(
        "pods.imagePullSecrets",
        "self.all(n, self.exists_one(m, m.name == n.name))",
        rules.NAMED_TWICE,
    ),
    CelRule(
        "pods.secrets",
        f"{_AS_ENVIRONMENT}.all(n, {_AS_ENVIRONMENT}.exists_one(m, m == n))",
        rules.NAMED_TWICE,
    ),
    CelRule(
        "pods.secrets[]",
        "!has(self.path) || self.path == '' || !has(self.variables) || size(self.variables) == 0",
        rules.FILES_OR_VARIABLES,
        "variables",
    ),
    CelRule(
        "pods.secrets[].variables",
        f"self.all(k, {cel_matches('k', ENV_NAME_PATTERN)})",
        rules.ENV_NAME,
    ),
    CelRule("pods.secrets[].variables", _free("self", rules.RESERVED_ENV), rules.RESERVED_NAME),
    CelRule(
        "pods.annotations",
        f"self.all(k, {cel_matches('k', ANNOTATION_PATTERN)})",
        PATTERN_RULES[ANNOTATION_PATTERN],
    ),
    CelRule("pods.annotations", _free("self", rules.RESERVED_ANNOTATIONS), rules.RESERVED_NAME),
    CelRule(
        "pods.dataClaim",
        _at_least("self.size", rules.SMALLEST_CLAIM),
        rules.CLAIM_AT_LEAST,
        "size",
    ),
)
"""Validation rules of `spec` and the fields in it."""

_SIZES = [f"replicas.{each.value}.resources" for each in TaskType]
_IS_QUANTITY = "isQuantity(string(self))"
QUANTITY_RULES = (
    *(
        CelRule(f"{each}.cpu", _IS_QUANTITY, "write CPU cores such as 2, 0.5 or 500m")
        for each in _SIZES
    ),
    *(
        CelRule(
            f"{each}.cpu",
            f"!{_IS_QUANTITY} || (quantity(string(self)).isGreaterThan(quantity('0')) && "
            f"!quantity(string(self)).isGreaterThan(quantity('{MOST_CORES}')))",
            f"use more than 0 and at most {MOST_CORES} CPU cores",
        )
        for each in _SIZES
    ),
    *(
        CelRule(
            each,
            f"{_IS_QUANTITY} && !quantity(string(self)).isGreaterThan(quantity('1Pi'))",
            MEMORY_RULE,
        )
        for each in (*(f"{each}.memory" for each in _SIZES), "pods.dataClaim.size")
    ),
)
"""Rules for quantities, which may be texts or integers: a JSON type cannot check them."""

WHOLE = ("spec.env", "spec.program.files", "spec.pods.annotations", "status")
"""Fields that managedFields records as a whole; one record for each key would take as much space as
the keys.

Ref: https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
"""
TEXTS_WITHOUT_NUL = ("env[]", "program.arguments[]", "program.command[]")
"""Texts that may have no NUL characters. A pattern checks them, because CEL would cost too much."""
NAME_RULE = CelRule(
    "metadata.name",
    f"{cel_matches('self', RUN_PATTERN)} && !self.matches(r'-[0-9]+-[0-9]+$')",
    RUN_NAME_RULE,
)


PLURAL = "tfclusters"
Column = tuple[str, str, str, str, int]
"""A column of `kubectl get`: name, type, path, description, priority (1: only with `-o wide`)."""
_COLUMNS: Sequence[Column] = (
    ("Phase", "string", ".status.phase", "The phase of the run.", 0),
    ("Ready", "string", ".status.ready", "Tasks that run or have succeeded, out of all tasks.", 0),
    ("Reason", "string", ".status.reason", "Why the run is in this phase.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the launch.", 0),
    ("Message", "string", ".status.message", "The reason as a sentence.", 1),
)


def crd_object() -> Object:
    """Return the CustomResourceDefinition that an administrator applies."""
    return definition(KIND, PLURAL, "tfc", _COLUMNS, object_schema())


def definition(
    kind: str, plural: str, short_name: str, columns: Sequence[Column], schema: Object
) -> Object:
    """Return the CustomResourceDefinition of one of our kinds."""
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short_name],
        "categories": ["all"],
    }
    shown = [
        {"name": name, "type": kind, "jsonPath": path, "description": text}
        | ({"priority": priority} if priority else {})
        for name, kind, path, text, priority in columns
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": shown,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
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


def whole_object(kind: str, description: str, name: Object, spec: Object, status: Object) -> Object:
    """Return the schema of an object of one of our kinds, without rules for the whole object."""
    generated = {"description": "Not supported: the names of runs are numbered.", "type": "string"}
    return {
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"{GROUP}/{VERSION}.", "type": "string"},
            "kind": {"description": f"{kind}.", "type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": name, "generateName": generated},
            },
            "spec": spec,
            "status": status,
        },
    }


def add_spec_rules(spec: Object, *, is_template: bool = False) -> None:
    """Add our validation rules in CEL to the schema of a spec.

    Args:
        spec: the schema, which is changed.
        is_template: whether the spec is a schedule's template. The rules of a template also apply
            to every change of it, because no template comes from an earlier release with higher
            limits.
    """
    for rule in (*SPEC_RULES, *QUANTITY_RULES):
        made = replace(rule, is_for_new=False) if is_template else rule
        at_path(spec, rule.at).setdefault(VALIDATIONS, []).append(made.as_object())
    for where in TEXTS_WITHOUT_NUL:
        at_path(spec, where)["pattern"] = r"^[^\x00]*$"


def object_schema() -> Object:
    """Return the schema of a whole TFCluster: metadata, spec and status."""
    whole = schema()
    spec = structural_schema(whole, "Spec")
    tell_defaults(spec)
    add_spec_rules(spec)
    status = structural_schema(whole, "Status", strict=False)
    del status["properties"]["addresses"]  # addresses follow from the run's name
    status["properties"] |= _STATUS_OF_THE_RESOURCE
    name = {
        "description": "The name of the cluster and the number of the run, as in digits-1.",
        "type": "string",
        "maxLength": LONGEST_RUN_NAME,
        VALIDATIONS: [NAME_RULE.as_object()],
    }
    for where in WHOLE:
        found = at_path({"properties": {"spec": spec, "status": status}}, where)
        found["x-kubernetes-map-type"] = "atomic"
    about = "One run of a TensorFlow cluster, called <cluster>-<run>, as in digits-1."
    return whole_object(KIND, about, name, spec, status) | {VALIDATIONS: _unchanging(spec)}


def condition_schema(types: str) -> Object:
    """Return the schema of conditions; the text `types` says what each type of condition means."""
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One condition, as metav1.Condition.",
            "type": "object",
            "properties": {
                "type": {"description": types, "type": "string"},
                "status": {"description": "True, False or Unknown.", "type": "string"},
                "observedGeneration": {
                    "description": "The metadata.generation that this condition is about.",
                    "type": "integer",
                    "format": "int64",
                },
                "lastTransitionTime": {
                    "description": "Time of the last change of 'status'. In RFC 3339.",
                    "type": "string",
                    "format": "date-time",
                },
                "reason": {"description": "Why the status is so, in one word.", "type": "string"},
                "message": {"description": "Why the status is so, in English.", "type": "string"},
            },
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        },
    }


GENERATION: Object = {
    "description": "The metadata.generation of the spec that this status is about.",
    "type": "integer",
    "format": "int64",
}
_STATUS_OF_THE_RESOURCE: Mapping[str, Object] = {
    "ready": {
        "description": "Number of tasks that run or have succeeded, out of all tasks, as in 2/3.",
        "type": "string",
    },
    "observedGeneration": GENERATION,
    "conditions": {
        "description": "States that other tools can wait for: Admitted, Running, Complete, Failed.",
        **condition_schema(
            "Admitted: the run got what it asks for. Running: all of its tasks run. "
            "Complete: it has succeeded. Failed: it has ended without success."
        ),
    },
}
"""Status fields of the custom resource that a run's record lacks; `custom_resource.write_status`
writes them.
"""


def at_path(node: Object, where: str) -> Any:
    """Return the schema at a path such as `pods.volumes[].path`; `[]` is each value of a list or
    map.
    """
    for part in where.split(".") if where else ():
        name = part.removesuffix("[]")
        node = node["properties"][name]
        if part != name:
            node = node["items"] if "items" in node else node["additionalProperties"]
    return node


_NAME, _DASH = "self.metadata.name", "self.metadata.name.lastIndexOf('-') + 1"
_NEXT = f"[dyn({_NAME}.substring(0, {_DASH})), dyn(int({_NAME}.substring({_DASH})) + 1)]"
"""CEL for a list of the two parts of the next run's name, `digits-` and 3. The number is not
converted to text: the API server does not know the length of the text, and so would estimate too
high a cost of the rule.
"""


def _unchanging(spec: Object) -> list[Object]:
    """Return the transition rules: in an existing run only `stop` can be set, and only once.

    The rules stand at the root of the schema, because CEL knows the run's name only there. The
    messages name the next run: `digits-3` if this run is `digits-2`.
    """
    found = []
    for name in (field.encode_name for field in fields(Spec)):
        new, old = f"self.spec.{name}", f"oldSelf.spec.{name}"
        if name == "stop":
            rule = f"!has({old}) || (has({new}) && {new} == {old})"
            message = "a run that is asked to stop stays so"
        else:
            rule = f"(has({new}) && has({old}) && {new} == {old}) || (!has({new}) && !has({old}))"
            if "default" in spec["properties"][name]:
                rule = f"{new} == {old}"
            message = "only spec.stop can change once a run exists"
        said = f"{message}: create %s%d instead, or the next number that is free"
        found.append(
            {
                "rule": rule,
                "message": f"{message}: create the next run instead",
                "messageExpression": f"'{said}'.format({_NEXT})",
                "fieldPath": f".spec.{name}",
            }
        )
    return found
