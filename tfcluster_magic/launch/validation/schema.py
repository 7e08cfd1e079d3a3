"""Checks of types, bounds and patterns of untrusted data. msgspec alone would stop at the first
problem; this module reports every invalid value.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

from ...errors import Problem
from ...spec import MEMORY_PATTERN, Clause, Message, Model, conversion
from ...spec.quantities import MEMORY_RULE, NUMBER_RULE, non_finite_numbers, parse_duration
from ...spec.spec import (
    ANNOTATION_PATTERN,
    IMAGE_PATTERN,
    KEY_PATTERN,
    MOUNT_OR_NOTHING,
    MOUNT_PATTERN,
    OBJECT_NAME_PATTERN,
    PROGRAM_PATH_PATTERN,
    PROGRAM_URL_PATTERN,
    RUN_NAME_PATTERN,
    SUB_PATH_PATTERN,
    fields_of,
)


def check_schema(data: object, kind: type[Model], path: str, problems: list[Problem]) -> object:
    """Check an object field by field; return it with durations converted to seconds."""
    if not isinstance(data, Mapping):
        problems.append(Problem(path, data, Message("ExpectedObject")))
        return data
    odd = list(non_finite_numbers(data, path))
    if odd:
        problems += [Problem(at, text, NUMBER_RULE) for at, text in odd]
        return data
    known = {field.encode_name: field for field in fields_of(kind)}
    clean: dict[str, object] = {}
    for key, value in data.items():
        if key not in known:
            rule = Message("NoSuchField", {"known": list(known)})
            if close := difflib.get_close_matches(str(key), known, 1):
                values = {"close": close[0], "known": list(known)}
                rule = Message("NoSuchFieldBut", values)
            problems.append(Problem(_at(path, key), value, rule))
            continue
        clean[key] = _check_field(known[key], value, _at(path, key), problems)
    for name, field in known.items():
        if field.required and name not in data:
            problems.append(Problem(_at(path, name), None, Message("Required")))
    return clean


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _check_field(field: FieldInfo, value: object, path: str, problems: list[Problem]) -> object:
    model = model_type(field.type)
    if model is not None and value is not None:
        return check_schema(value, model, path, problems)
    element = element_type(field.type)
    if element is not None and isinstance(value, (list, tuple)):
        before = len(problems)
        value = [check_schema(v, element, f"{path}[{i}]", problems) for i, v in enumerate(value)]
        if len(problems) > before:
            return value
    if isinstance(value, str) and ".lifecycle." in path and _is_seconds(field.type):
        try:
            value = parse_duration(value)
        except ValueError as error:
            problems.append(Problem(path, value, error.args[0]))
            return value
    try:
        conversion.convert(value, field.type)
    except msgspec.ValidationError as error:
        text = str(error).split(" - at `$")[0]
        problems.append(Problem(path, value, _allowed(field) or _in_words(text)))
        return value
    if isinstance(value, str) and value.endswith("\n") and any(_patterns(field.type)):
        # in Python, a pattern's `$` also matches before a final newline; in Kubernetes it does not
        problems.append(Problem(path, value, _allowed(field) or Message("NoLineBreak")))
    return value


def _allowed(field: FieldInfo) -> Message | None:
    """Return a message that says what is allowed in a field with an enum or a pattern; None for
    other fields. For an enum, msgspec's own message would not list the allowed values; for a
    pattern, it would show only the regular expression.
    """
    for candidate in (field.type, *get_args(field.type)):
        if isinstance(candidate, type) and issubclass(candidate, enum.Enum):
            return Message("UseOneOf", {"words": [str(member.value) for member in candidate]})
    rules = (PATTERN_RULES.get(found) for found in _patterns(field.type))
    return next((rule for rule in rules if rule), None)


PATTERN_RULES: Mapping[str, Message] = {
    MEMORY_PATTERN: MEMORY_RULE,
    IMAGE_PATTERN: Message("WriteImage"),
    OBJECT_NAME_PATTERN: Message("ObjectName"),
    MOUNT_PATTERN: Message("WriteFullPath"),
    MOUNT_OR_NOTHING: Message("WriteFullPath"),
    PROGRAM_PATH_PATTERN: Message("WritePath"),
    PROGRAM_URL_PATTERN: Message("WriteAddress"),
    RUN_NAME_PATTERN: Message("ExactRun"),
    SUB_PATH_PATTERN: Message("WriteSubPath"),
    KEY_PATTERN: Message("KeyOfSecret"),
    ANNOTATION_PATTERN: Message("AnnotationNames"),
}
"""The messages that explain the models' patterns. Patterns of fields that no user writes by hand
are not listed.
"""


def _in_words(text: str) -> Clause:
    """Return msgspec's message in plain words: "Expected `int` >= 0" gives "use a whole number >=
    0".
    """
    match = re.fullmatch(r"Expected `(\w+)(?: \| null)?`( of length)?(.*?)(?:, got `\w+`)?", text)
    if match is None or match[1] not in _KINDS:
        return text
    bound = Message("OfLength", {"bound": match[3]}) if match[2] else match[3]
    return Message("UseKind", {"kind": Message(_KINDS[match[1]]), "bound": bound})


_KINDS = {
    "float": "Number",
    "int": "WholeNumber",
    "str": "Text",
    "bool": "TrueOrFalse",
    "object": "Object",
    "array": "List",
}


def model_type(annotation: Any) -> type[Model] | None:
    """Return the model X if the annotation is `X` or `X | None`; None if it is not."""
    if get_origin(annotation) in (tuple, dict):
        return None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Model):
            return candidate
    return None


def element_type(annotation: Any) -> type[Model] | None:
    """Return the model X if the annotation is `tuple[X, ...]`, also inside `Annotated`; None if it
    is not.
    """
    if get_origin(annotation) is tuple:
        return next((a for a in get_args(annotation)[:1] if model_type(a)), None)
    if get_origin(annotation) is Annotated:
        return element_type(get_args(annotation)[0])
    return None


def _patterns(annotation: Any) -> Iterator[str]:
    """Yield the patterns of a field's value, and of its elements."""
    for part in get_args(annotation):
        if isinstance(part, Meta) and part.pattern is not None:
            yield part.pattern
        yield from _patterns(part)


def _is_seconds(annotation: Any) -> bool:
    """Return whether a field of `Lifecycle` is a duration: a float, also inside `Annotated` or a
    union.
    """
    if annotation is float:
        return True
    return get_origin(annotation) is not None and any(_is_seconds(a) for a in get_args(annotation))
