"""From untrusted data to a `Spec`: every problem at once, each with its field, its value and what
is allowed.

Shapes and bounds come from `models.py`; the rules between fields are here. Used by every face, so
that a form, a YAML file and a command line get the same refusals. Creates nothing and touches no
world.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from .errors import InvalidRequest, Problem
from .models import ENV_NAME_PATTERN, Mode, Model, ServerKind, Spec, TaskType
from .names import NAME_RULE, is_valid
from .quantity import MEMORY_RULE, parse_duration, parse_memory

MOST_TASKS = 1000
SMALLEST_MEMORY = "64Mi"
RESERVED_ENV = ("TF_CONFIG", "TFCLUSTER_", "JUPYTERHUB_", "JPY_", "LD_PRELOAD")


def validate(data: Mapping[str, Any]) -> Spec:
    """Build a Spec from JSON-like data. Raises InvalidRequest with every problem."""
    problems: list[Problem] = []
    clean = _check(data, Spec, "spec", problems)
    spec: Spec | None = None
    if not problems:
        spec = msgspec.convert(clean, Spec)
        problems += check(spec)
    if problems or spec is None:
        raise InvalidRequest(problems)
    return spec


def validate_name(name: str) -> None:
    """Raise InvalidRequest unless `name` may name a cluster."""
    if not is_valid(name):
        raise InvalidRequest([Problem("name", name, NAME_RULE)])


def check(spec: Spec) -> list[Problem]:
    """The rules between fields, for a spec whose shape is right."""
    return [problem for rule in _RULES for problem in rule(spec)]


# -- shapes: one problem for each leaf, where msgspec alone would stop at the first ---------------


def _check(data: object, kind: type[Model], path: str, problems: list[Problem]) -> object:
    """Check an object field by field; returns it with durations turned into seconds."""
    if not isinstance(data, Mapping):
        problems.append(Problem(path, data, "expected an object"))
        return data
    known = {field.encode_name: field for field in fields(kind)}
    clean: dict[str, object] = {}
    for key, value in data.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            meant = f"; did you mean {close[0]!r}?" if close else "."
            problems.append(
                Problem(f"{path}.{key}", value, f"no such field{meant} Allowed: {', '.join(known)}")
            )
            continue
        clean[key] = _check_field(known[key], value, f"{path}.{key}", problems)
    for name, field in known.items():
        if field.required and name not in data:
            problems.append(Problem(f"{path}.{name}", None, "it is required"))
    return clean


def _check_field(field: FieldInfo, value: object, path: str, problems: list[Problem]) -> object:
    model = _model_in(field.type)
    if model is not None and value is not None:
        return _check(value, model, path, problems)
    if isinstance(value, str) and ".lifecycle." in path and _is_seconds(field.type):
        try:
            value = parse_duration(value)
        except ValueError as error:
            problems.append(Problem(path, value, str(error)))
            return value
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        text = str(error).split(" - at `$")[0]
        problems.append(Problem(path, value, _allowed(field, path) or _in_words(text)))
    return value


def _allowed(field: FieldInfo, path: str) -> str:
    """What is allowed, where msgspec's own words would be a regular expression or less."""
    for candidate in (field.type, *get_args(field.type)):
        if isinstance(candidate, type) and issubclass(candidate, enum.Enum):
            return "use " + " or ".join(str(member.value) for member in candidate)
    return MEMORY_RULE if path.endswith(".memory") else ""


def _in_words(text: str) -> str:
    """Msgspec's message for people: "expected `int` >= 0" gives "use a whole number >= 0"."""
    for kind, words in _KINDS:
        text = text.replace(f"`{kind}`", words)
    text = text.replace("Expected ", "use ")
    return re.sub(r", got `\w+`$", "", text)


_KINDS = (
    ("float | null", "a number"),
    ("int | null", "a whole number"),
    ("str | null", "text"),
    ("float", "a number"),
    ("int", "a whole number"),
    ("str", "text"),
    ("bool", "true or false"),
    ("object | null", "an object"),
    ("object", "an object"),
    ("array", "a list"),
)


def _model_in(annotation: Any) -> type[Model] | None:
    """The model behind `X` or `X | None`."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Model):
            return candidate
    return None


def _is_seconds(annotation: Any) -> bool:
    """Whether a field of `Lifecycle` is a duration: a float, however annotated."""
    if annotation is float:
        return True
    return get_origin(annotation) is not None and any(_is_seconds(a) for a in get_args(annotation))


# -- rules between fields -------------------------------------------------------------------------


def _counts(spec: Spec) -> list[Problem]:
    replicas = spec.replicas
    problems = [
        Problem(f"spec.replicas.{single.value}.count", count, "there is at most 1")
        for single in (TaskType.CHIEF, TaskType.EVALUATOR)
        if (count := replicas.of(single).count) > 1
    ]
    if not replicas.worker.count and not replicas.chief.count:
        problems.append(
            Problem("spec.replicas.worker.count", 0, "at least 1 worker (or a chief) is needed")
        )
    if replicas.total > MOST_TASKS:
        problems.append(
            Problem("spec.replicas", replicas.total, f"at most {MOST_TASKS} tasks in all")
        )
    return problems


def _mode(spec: Spec) -> list[Problem]:
    if spec.mode is Mode.BETWEEN_GRAPH:
        problems = []
        if spec.program is None:
            problems.append(
                Problem(
                    "spec.program",
                    None,
                    "between-graph runs a program: name a file, a folder, a URL or a cell",
                )
            )
        if spec.server is not ServerKind.NATIVE:
            problems.append(
                Problem("spec.server", spec.server.value, "only in-graph clusters have servers")
            )
        return problems
    return [
        Problem(
            f"spec.replicas.{t.value}.count",
            spec.replicas.of(t).count,
            "in-graph has ps and workers only: 0",
        )
        for t in (TaskType.CHIEF, TaskType.EVALUATOR)
        if spec.replicas.of(t).count
    ] + (
        [
            Problem(
                "spec.program",
                spec.program.source,
                "in-graph runs no program: the notebook is the client",
            )
        ]
        if spec.program is not None
        else []
    )


def _memory(spec: Spec) -> list[Problem]:
    problems = []
    for task_type in TaskType:
        memory = spec.replicas.of(task_type).resources.memory
        if memory is not None and parse_memory(memory) < parse_memory(SMALLEST_MEMORY):
            field = f"spec.replicas.{task_type.value}.resources.memory"
            problems.append(
                Problem(field, memory, f"TensorFlow cannot start below {SMALLEST_MEMORY}")
            )
    return problems


def _env(spec: Spec) -> list[Problem]:
    found = []
    for key, value in spec.env.items():
        where = f"spec.env.{key}"
        if not re.fullmatch(ENV_NAME_PATTERN, key):  # a schema's `$` lets a last newline pass
            rule = "a name has letters, digits and '_', and no digit first"
            found.append(Problem("spec.env", key, rule))
        if key.startswith(RESERVED_ENV):
            rule = "this name is set by TFCluster itself; choose another"
            found.append(Problem(where, value, rule))
        if "\0" in value:
            found.append(Problem(where, value, "a value cannot hold a NUL character"))
    return found


def _arguments(spec: Spec) -> list[Problem]:
    arguments = spec.program.arguments if spec.program else ()
    return [
        Problem(f"spec.program.arguments[{i}]", text, "an argument cannot hold a NUL character")
        for i, text in enumerate(arguments)
        if "\0" in text
    ]


def _text(spec: Spec) -> list[Problem]:
    """What came from the disk or a command line may be any bytes, and a record is UTF-8."""
    try:
        msgspec.json.encode(spec)
    except UnicodeEncodeError:
        return list(_undecodable(msgspec.to_builtins(spec), "spec"))
    return []


def _undecodable(value: object, path: str) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _undecodable(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _undecodable(item, f"{path}[{index}]")
    elif isinstance(value, str) and any(0xD800 <= ord(c) <= 0xDFFF for c in value):
        yield Problem(path, value, "it is not UTF-8 text, and a record holds nothing else")


_RULES: tuple[Callable[[Spec], list[Problem]], ...] = (
    _counts,
    _mode,
    _memory,
    _env,
    _arguments,
    _text,
)
