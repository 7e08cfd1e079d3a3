"""The CustomResourceDefinition of TFCluster, made of the models. Pure.

`kubectl apply` refuses what `%tfcluster launch` refuses, in the same words, before anything is
stored, and a stored spec changes in nothing but `stop`. What a schema cannot say are CEL rules;
`launch.validation` has the same rules once more, and a test holds the two equal.

Ref: https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
Ref: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
Ref: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import fields

from ...i18n import language
from ...launch.validation import rules
from ...launch.validation.schema import pattern_rule
from ...program.snapshots import INLINE_BYTES
from ...spec import ENV_NAME_PATTERN, KIND, Spec, schema
from ...spec.names import name_rule
from ...spec.spec import ANNOTATION_PATTERN
from ..api.client import Object
from ..api.labels import GROUP, RUN_PATTERN, VERSION

_KEPT = (
    "type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "maxItems",
    "maxProperties",
)  # fmt: skip
VALIDATIONS = "x-kubernetes-validations"


def structural_schema(schema: Mapping[str, Any], name: str, *, strict: bool = True) -> Object:
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
            inner, *others = (each for each in told.pop("anyOf") if each.get("type") != "null")
            if others:  # such as the values of a message, which may be messages
                return {"x-kubernetes-preserve-unknown-fields": True}
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
    if words := pattern_rule(made.get("pattern", "")):
        made[VALIDATIONS] = [{"rule": cel_matches("self", made.pop("pattern")), "message": words}]
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


def cel_matches(value: str, pattern: str) -> str:
    """A CEL expression: whether `value` has this pattern, none of which has a quotation mark."""
    return f"{value}.matches(r'{pattern}')"


def _sentence(text: str) -> str:
    """A description for `kubectl explain`: one paragraph, a capital letter, a full stop."""
    text = " ".join(text.replace("`", "'").split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


# The rules between fields, in CEL: what `launch.validation` refuses, kubectl is told in the same
# words. Whatever a rule walks through is bounded in the models, for the API server counts what a
# rule could cost at most and refuses a schema that may cost too much.

_MANY = ("volumes", "secrets")


@dataclass(frozen=True)
class CelRule:
    """One rule: the path of the schema where it stands below `spec`, `[]` for each value of a list
    or map; what must hold; what is said else, and of which field below that path.
    """

    at: str
    rule: str
    message: str
    field: str = ""

    def as_object(self) -> Object:
        """As it stands in a schema."""
        made = {"rule": self.rule, "message": self.message}
        return made | ({"fieldPath": f".{self.field}"} if self.field else {})


def _english(say: Callable[[], str]) -> str:
    """What the code says in the language of the moment, in that of the schema."""
    with language("en"):
        return say()


def _free(names: str, taken: tuple[str, ...]) -> str:
    """That no key of a map begins with what is taken."""
    return f"{names}.all(k, " + " && ".join(f"!k.startsWith('{each}')" for each in taken) + ")"


def _sum(*types: str) -> str:
    return " + ".join(f"self.replicas.{each}.count" for each in types)


def _under(folders: tuple[str, ...]) -> str:
    return "|".join(folder[1:] for folder in folders)


_OURS, _OF_SYSTEM = _under(rules.RESERVED_MOUNTS), _under(rules.SYSTEM_FOLDERS)
_HIDDEN = rf"self.path.matches(r'^/(({_OURS})(/.*)?|({_OF_SYSTEM}))$')"
_HIDES = rules.HIDING_MOUNT.format(ours=", ".join(rules.RESERVED_MOUNTS))
_MOUNTS = (
    "(has(self.volumes) ? self.volumes.map(v, v.path) : []) + "
    "(has(self.secrets) ? self.secrets.filter(s, has(s.path) && s.path != '').map(s, s.path) : [])"
)
_AS_ENVIRONMENT = "self.filter(s, !has(s.path) || s.path == '').map(s, s.name)"

SPEC_RULES = (
    *(
        CelRule("", f"{_sum(each)} <= 1", rules.ONE_AT_MOST, f"replicas.{each}.count")
        for each in ("chief", "evaluator")
    ),
    *(
        CelRule(
            "",
            f"self.mode != 'in-graph' || {_sum(each)} == 0",
            rules.NO_SUCH_TASKS,
            f"replicas.{each}.count",
        )
        for each in ("chief", "evaluator")
    ),
    CelRule("", f"{_sum('worker', 'chief')} > 0", rules.WORKER_NEEDED, "replicas.worker.count"),
    CelRule(
        "",
        f"{_sum('chief', 'worker', 'ps', 'evaluator')} <= {rules.MOST_TASKS}",
        rules.TASKS_AT_MOST.format(most=rules.MOST_TASKS),
        "replicas",
    ),
    CelRule(
        "", "self.mode != 'between-graph' || has(self.program)", rules.PROGRAM_NEEDED, "program"
    ),
    CelRule("", "self.mode != 'in-graph' || !has(self.program)", rules.PROGRAM_UNUSED, "program"),
    *(
        CelRule(
            "",
            f"self.mode == '{each.mode.value}' || self.{each.field} == '{each.default.value}'",
            each.why,
            each.field,
        )
        for each in rules.ONLY_IN
    ),
    *(
        CelRule(
            f"replicas.{each}.resources",
            "!has(self.memory) || !isQuantity(self.memory) || "
            f"quantity(self.memory).compareTo(quantity('{rules.SMALLEST_MEMORY}')) >= 0",
            rules.MEMORY_AT_LEAST.format(least=rules.SMALLEST_MEMORY),
            "memory",
        )
        for each in ("chief", "worker", "ps", "evaluator")
    ),
    CelRule("env", f"self.all(k, {cel_matches('k', ENV_NAME_PATTERN)})", rules.ENV_NAME),
    CelRule("env", _free("self", rules.RESERVED_ENV), rules.RESERVED_NAME),
    CelRule(
        "program",
        "!has(self.files) || "
        f"self.files.map(k, size(k) + size(self.files[k])).sum() <= {rules.MOST_INLINE}",
        rules.FILES_AT_MOST.format(limit=INLINE_BYTES // 1024),
        "files",
    ),
    CelRule(
        "program",
        "!has(self.files) || self.entrypoint in self.files",
        rules.ENTRYPOINT_MISSING,
        "entrypoint",
    ),
    CelRule(
        "interpreter", r"self.startsWith('/') && !self.contains('\x00')", rules.INTERPRETER_PATH
    ),
    *(
        CelRule(f"pods.{each}[]", f"!has(self.path) || !({_HIDDEN})", _HIDES, "path")
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
    CelRule("pods", f"({_MOUNTS}).all(p, ({_MOUNTS}).exists_one(q, q == p))", rules.MOUNTED_TWICE),
    CelRule("pods.imagePullSecrets", "self.all(n, self.exists_one(m, m == n))", rules.NAMED_TWICE),
    CelRule(
        "pods.secrets",
        f"{_AS_ENVIRONMENT}.all(n, {_AS_ENVIRONMENT}.exists_one(m, m == n))",
        rules.NAMED_TWICE,
    ),
    CelRule(
        "pods.annotations",
        f"self.all(k, {cel_matches('k', ANNOTATION_PATTERN)})",
        _english(lambda: pattern_rule(ANNOTATION_PATTERN)),
    ),
    CelRule("pods.annotations", _free("self", rules.RESERVED_ANNOTATIONS), rules.RESERVED_NAME),
    CelRule(
        "pods.dataClaim",
        "!isQuantity(self.size) || "
        f"quantity(self.size).compareTo(quantity('{rules.SMALLEST_CLAIM}')) >= 0",
        rules.CLAIM_AT_LEAST.format(least=rules.SMALLEST_CLAIM),
        "size",
    ),
)
"""Below `spec`."""

TEXTS_WITHOUT_NUL = ("env[]", "program.arguments[]")
"""Texts without a NUL character, said by a pattern: in CEL it would cost too much."""
NAME_RULE = CelRule(
    "metadata.name",
    f"{cel_matches('self', RUN_PATTERN)} && !self.matches(r'-[0-9]+-[0-9]+$')",
    f"name it <cluster>-<run>, such as digits-1; for <cluster>: {_english(name_rule)}",
)


# The definition.

PLURAL = "tfclusters"
_COLUMNS = (
    ("Phase", "string", ".status.phase", "Where the run is.", 0),
    ("Ready", "string", ".status.ready", "Tasks that run or have succeeded, of all.", 0),
    ("Reason", "string", ".status.reason", "Why it is there.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Since the launch.", 0),
    ("Message", "string", ".status.message", "The reason as a sentence.", 1),
)


def crd_object() -> Object:
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
        "schema": {"openAPIV3Schema": object_schema()},
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


def object_schema() -> Object:
    """The schema of a whole object."""
    whole = schema()
    spec = structural_schema(whole, "Spec")
    for rule in SPEC_RULES:
        _at(spec, rule.at).setdefault(VALIDATIONS, []).append(rule.as_object())
    for where in TEXTS_WITHOUT_NUL:
        _at(spec, where)["pattern"] = r"^[^\x00]*$"
    spec[VALIDATIONS] += _unchanging(spec)
    status = structural_schema(whole, "Status", strict=False)
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
                "properties": {"name": {"type": "string", VALIDATIONS: [NAME_RULE.as_object()]}},
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
