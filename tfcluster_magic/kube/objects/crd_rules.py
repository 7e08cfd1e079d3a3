"""The rules between fields, in CEL: what `validation/` refuses, kubectl is told in the same words.

A table and nothing else. Whatever a rule walks through is bounded in `models/`, for the API server
counts what a rule could cost at most and refuses a schema that may cost too much.

Ref: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...i18n import language
from ...launch.validation import MOST_INLINE, MOST_TASKS, RESERVED_ENV, SMALLEST_MEMORY
from ...launch.validation.pods import OURS, RESERVED_ANNOTATIONS, SMALLEST_CLAIM, SYSTEM
from ...launch.validation.shapes import rule_of
from ...program.snapshots import INLINE_BYTES
from ...spec import ENV_NAME_PATTERN
from ...spec.names import name_rule
from ...spec.pods import ANNOTATION_PATTERN
from ..api.client import Object
from ..api.labels import RUN_PATTERN
from .openapi import matches

_MANY = ("volumes", "secrets")


@dataclass(frozen=True)
class Rule:
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


_HIDDEN = rf"self.path.matches(r'^/(({_under(OURS)})(/.*)?|({_under(SYSTEM)}))$')"
_HIDES = (
    "it would hide what tasks need: choose another folder, such as /mnt/images, not one below "
    f"{', '.join(OURS)} nor a folder of the system"
)
_PLAIN = "write the path without '.', '..', a doubled '/' or one at the end"
_TAKEN = "this name is set by TFCluster itself; choose another"
_TWICE = "it is named twice: once is enough"
_MOUNTS = (
    "(has(self.volumes) ? self.volumes.map(v, v.path) : []) + "
    "(has(self.secrets) ? self.secrets.filter(s, has(s.path) && s.path != '').map(s, s.path) : [])"
)
_AS_ENVIRONMENT = "self.filter(s, !has(s.path) || s.path == '').map(s, s.name)"

RULES = (
    *(
        Rule("", f"{_sum(each)} <= 1", "there is at most 1", f"replicas.{each}.count")
        for each in ("chief", "evaluator")
    ),
    *(
        Rule(
            "",
            f"self.mode != 'in-graph' || {_sum(each)} == 0",
            "in-graph has ps and workers only: 0",
            f"replicas.{each}.count",
        )
        for each in ("chief", "evaluator")
    ),
    Rule(
        "",
        f"{_sum('worker', 'chief')} > 0",
        "at least 1 worker (or a chief) is needed",
        "replicas.worker.count",
    ),
    Rule(
        "",
        f"{_sum('chief', 'worker', 'ps', 'evaluator')} <= {MOST_TASKS}",
        f"at most {MOST_TASKS} tasks in all",
        "replicas",
    ),
    Rule(
        "",
        "self.mode != 'between-graph' || has(self.program)",
        "between-graph runs a program: name a file, a folder, a URL or a cell",
        "program",
    ),
    Rule(
        "",
        "self.mode != 'in-graph' || !has(self.program)",
        "in-graph runs no program: the notebook is the client",
        "program",
    ),
    Rule(
        "",
        "self.mode == 'in-graph' || self.server == 'native'",
        "only in-graph clusters have servers",
        "server",
    ),
    *(
        Rule(
            f"replicas.{each}.resources",
            "!has(self.memory) || !isQuantity(self.memory) || "
            f"quantity(self.memory).compareTo(quantity('{SMALLEST_MEMORY}')) >= 0",
            f"TensorFlow cannot start below {SMALLEST_MEMORY}",
            "memory",
        )
        for each in ("chief", "worker", "ps", "evaluator")
    ),
    Rule(
        "env",
        f"self.all(k, {matches('k', ENV_NAME_PATTERN)})",
        "a name has letters, digits and '_', and no digit first",
    ),
    Rule("env", _free("self", RESERVED_ENV), _TAKEN),
    Rule(
        "program",
        "!has(self.files) || "
        f"self.files.map(k, size(k) + size(self.files[k])).sum() <= {MOST_INLINE}",
        f"at most {INLINE_BYTES // 1024} KiB travel inside the record: launch a larger program "
        "with `tfcluster launch`, which puts it into your workspace",
        "files",
    ),
    Rule(
        "program",
        "!has(self.files) || self.entrypoint in self.files",
        "it is not among the program's files: name one of them",
        "entrypoint",
    ),
    Rule(
        "interpreter",
        r"self.startsWith('/') && !self.contains('\x00')",
        "name a Python by its full path",
    ),
    *(Rule(f"pods.{each}[]", f"!has(self.path) || !({_HIDDEN})", _HIDES, "path") for each in _MANY),
    *(
        Rule(
            f"pods.{each}[]",
            r"!has(self.path) || !self.path.matches(r'/\.{0,2}(/|$)')",
            _PLAIN,
            "path",
        )
        for each in _MANY
    ),
    Rule(
        "pods.volumes[]",
        "!has(self.subPath) || self.subPath == '' || "
        r"!self.subPath.matches(r'(^|/)\.{0,2}(/|$)')",
        _PLAIN,
        "subPath",
    ),
    Rule(
        "pods",
        f"({_MOUNTS}).all(p, ({_MOUNTS}).exists_one(q, q == p))",
        "something else is mounted there: use each path once",
    ),
    Rule("pods.imagePullSecrets", "self.all(n, self.exists_one(m, m == n))", _TWICE),
    Rule(
        "pods.secrets",
        f"{_AS_ENVIRONMENT}.all(n, {_AS_ENVIRONMENT}.exists_one(m, m == n))",
        _TWICE,
    ),
    Rule(
        "pods.annotations",
        f"self.all(k, {matches('k', ANNOTATION_PATTERN)})",
        _english(lambda: rule_of(ANNOTATION_PATTERN)),
    ),
    Rule("pods.annotations", _free("self", RESERVED_ANNOTATIONS), _TAKEN),
    Rule(
        "pods.dataClaim",
        "!isQuantity(self.size) || "
        f"quantity(self.size).compareTo(quantity('{SMALLEST_CLAIM}')) >= 0",
        f"a claim has at least {SMALLEST_CLAIM}",
        "size",
    ),
)
"""Below `spec`."""

NO_NUL = ("env[]", "program.arguments[]")
"""Texts without a NUL character, said by a pattern: in CEL it would cost too much."""
NAME = Rule(
    "metadata.name",
    f"{matches('self', RUN_PATTERN)} && !self.matches(r'-[0-9]+-[0-9]+$')",
    f"name it <cluster>-<run>, such as digits-1; for <cluster>: {_english(name_rule)}",
)
