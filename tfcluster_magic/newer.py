"""Reads what a newer version wrote: without the fields that this one does not know.

Promises that an older version shows, stops and names such a run rightly, and never takes it for one
that cannot be read. It never writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import fields

StructT = TypeVar("StructT", bound=msgspec.Struct)


def known_part(content: Mapping[str, object], kind: type[StructT]) -> StructT:
    """What `kind` knows of `content`; a field with an unknown value counts as not given.

    Raises:
        msgspec.ValidationError: a required field is missing or unknown.
    """
    kept: dict[str, object] = {}
    for field in fields(kind):
        if field.encode_name in content:
            with contextlib.suppress(msgspec.ValidationError):
                kept[field.name] = _value(content[field.encode_name], field.type)
        if field.required and field.name not in kept:
            raise msgspec.ValidationError(f"{field.encode_name} is missing or not known")
    return kind(**kept)


def _value(value: object, annotation: Any) -> object:
    for candidate in (annotation, *get_args(annotation)):
        if hasattr(candidate, "__struct_fields__") and isinstance(value, dict):
            return known_part(value, candidate)
    return msgspec.convert(value, annotation)
