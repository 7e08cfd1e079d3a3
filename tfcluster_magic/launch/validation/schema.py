"""Types, bounds and patterns of untrusted data: one problem for each leaf, where msgspec alone
would stop at the first. Knows no rule between fields.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

from ...errors import Problem
from ...i18n import _, mark
from ...spec import MEMORY_PATTERN, Model
from ...spec.quantities import memory_rule, non_finite_numbers, number_rule, parse_duration
from ...spec.spec import (
    ANNOTATION_PATTERN,
    IMAGE_PATTERN,
    KEY_PATTERN,
    MOUNT_OR_NOTHING,
    MOUNT_PATTERN,
    OBJECT_NAME_PATTERN,
    PROGRAM_PATH_PATTERN,
    PROGRAM_URL_PATTERN,
    SUB_PATH_PATTERN,
    fields_of,
)


def check_schema(data: object, kind: type[Model], path: str, problems: list[Problem]) -> object:
    """Check an object field by field; returns it with durations turned into seconds."""
    if not isinstance(data, Mapping):
        problems.append(Problem(path, data, _("expected an object")))
        return data
    odd = list(non_finite_numbers(data, path))
    if odd:
        problems += [Problem(at, text, number_rule()) for at, text in odd]
        return data
    known = {field.encode_name: field for field in fields_of(kind)}
    clean: dict[str, object] = {}
    for key, value in data.items():
        if key not in known:
            close = difflib.get_close_matches(str(key), known, 1)
            if close:
                rule = _("no such field; did you mean {close!r}? Allowed: {known}")
            else:
                rule = _("no such field. Allowed: {known}")
            allowed = rule.format(close="".join(close), known=", ".join(known))
            problems.append(Problem(_at(path, key), value, allowed))
            continue
        clean[key] = _check_field(known[key], value, _at(path, key), problems)
    for name, field in known.items():
        if field.required and name not in data:
            problems.append(Problem(_at(path, name), None, _("it is required")))
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
            problems.append(Problem(path, value, str(error)))
            return value
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        text = str(error).split(" - at `$")[0]
        problems.append(Problem(path, value, _allowed(field) or _in_words(text)))
        return value
    if isinstance(value, str) and value.endswith("\n") and any(_patterns(field.type)):
        # the `$` of a pattern lets a last newline pass, here and not in Kubernetes
        problems.append(Problem(path, value, _allowed(field) or _("leave out the line break")))
    return value


def _allowed(field: FieldInfo) -> str:
    """What is allowed, where msgspec's own words would be a regular expression or less."""
    for candidate in (field.type, *get_args(field.type)):
        if isinstance(candidate, type) and issubclass(candidate, enum.Enum):
            words = _(" or ").join(str(member.value) for member in candidate)
            return _("use {words}").format(words=words)
    return next((words for found in _patterns(field.type) if (words := pattern_rule(found))), "")


def pattern_rule(pattern: str) -> str:
    """What a pattern of the models allows, for people; empty where nobody writes it by hand."""
    return _WORDS[pattern]() if pattern in _WORDS else ""


def _object_name_rule() -> str:
    return _("the name of an object in Kubernetes has lower-case letters, digits, '-' and '.'")


def _path_rule() -> str:
    return _("write a full path, such as /mnt/images, without ':' and line breaks")


_WORDS: Mapping[str, Callable[[], str]] = {
    MEMORY_PATTERN: memory_rule,
    IMAGE_PATTERN: lambda: _(
        "write an image as in registry:5000/team/image:tag, without spaces or 'https://'"
    ),
    OBJECT_NAME_PATTERN: _object_name_rule,
    MOUNT_PATTERN: _path_rule,
    MOUNT_OR_NOTHING: _path_rule,
    PROGRAM_PATH_PATTERN: lambda: _("write a path without line breaks"),
    PROGRAM_URL_PATTERN: lambda: _("write an address such as https://example.com/train.py"),
    SUB_PATH_PATTERN: lambda: _("write a path inside of the claim, without a '/' first or ':'"),
    KEY_PATTERN: lambda: _(
        "a key of a secret has letters, digits, '-', '_' and '.', such as accesskey"
    ),
    ANNOTATION_PATTERN: lambda: _(
        "write names such as prometheus.io/scrape, at most 63 characters after the '/', "
        "and at most 32 annotations"
    ),
}


def _in_words(text: str) -> str:
    """Msgspec's message for people: "expected `int` >= 0" gives "use a whole number >= 0"."""
    for kind, words in _KINDS:
        text = text.replace(f"`{kind}`", _(words))
    text = re.sub(r", got `\w+`$", "", text)
    if not text.startswith("Expected "):
        return text
    return _("use {words}").format(words=text.removeprefix("Expected "))


_KINDS = (
    ("float | null", mark("a number")),
    ("int | null", mark("a whole number")),
    ("str | null", mark("text")),
    ("float", mark("a number")),
    ("int", mark("a whole number")),
    ("str", mark("text")),
    ("bool", mark("true or false")),
    ("object | null", mark("an object")),
    ("object", mark("an object")),
    ("array", mark("a list")),
)


def model_type(annotation: Any) -> type[Model] | None:
    """The model behind `X` or `X | None`."""
    if get_origin(annotation) in (tuple, dict):
        return None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Model):
            return candidate
    return None


def element_type(annotation: Any) -> type[Model] | None:
    """The model behind `tuple[X, ...]`, however annotated."""
    if get_origin(annotation) is tuple:
        return next((a for a in get_args(annotation)[:1] if model_type(a)), None)
    if get_origin(annotation) is Annotated:
        return element_type(get_args(annotation)[0])
    return None


def _patterns(annotation: Any) -> Iterator[str]:
    """The patterns of a field's value, and of what it holds."""
    for part in get_args(annotation):
        if isinstance(part, Meta) and part.pattern is not None:
            yield part.pattern
        yield from _patterns(part)


def _is_seconds(annotation: Any) -> bool:
    """Whether a field of `Lifecycle` is a duration: a float, however annotated."""
    if annotation is float:
        return True
    return get_origin(annotation) is not None and any(_is_seconds(a) for a in get_args(annotation))
