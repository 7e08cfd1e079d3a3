"""Converts JSON and plain values into models, in any thread.

msgspec inspects a type when the type is first used. If another thread uses this type meanwhile, or
a type that contains it, msgspec 0.22 crashes the process. So all modules convert with these
functions, which let only one thread at a time inspect a type.

Ref: https://jcristharif.com/msgspec/api.html
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_inspected: set[Any] = set()


def _inspect(kind: Any) -> None:
    """Let msgspec inspect a type, unless it has done so."""
    try:
        if kind in _inspected:
            return
    except TypeError:  # an annotation with a map, such as extra_json_schema, has no hash
        with _lock:
            msgspec.json.Decoder(kind)
        return
    with _lock:
        msgspec.json.Decoder(kind)
        _inspected.add(kind)


@overload
def convert(value: object, kind: type[T]) -> T: ...
@overload
def convert(value: object, kind: Any) -> Any: ...
def convert(value: object, kind: Any) -> Any:
    """Convert plain values (maps, lists, text, numbers) to the type `kind`.

    Raises:
        msgspec.ValidationError: the value does not have this type.
    """
    _inspect(kind)
    return msgspec.convert(value, kind)


@overload
def decode(text: bytes | str, kind: type[T]) -> T: ...
@overload
def decode(text: bytes | str, kind: Any) -> Any: ...
def decode(text: bytes | str, kind: Any) -> Any:
    """Decode JSON as the type `kind`.

    Raises:
        msgspec.DecodeError: the text is not JSON.
        msgspec.ValidationError: the value does not have this type.
    """
    _inspect(kind)
    return msgspec.json.decode(text, type=kind)


@overload
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON for the type `kind`; faster than `decode` for many values."""
    _inspect(kind)
    return msgspec.json.Decoder(kind)
