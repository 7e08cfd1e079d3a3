"""The size of a record in etcd: which texts count, how their bytes are counted, and the limits.

All functions are pure. The table in this module lists the texts that have no limit of their own.
Launches, the custom resource, its admission policy and the operator's caches use this table.
Kubernetes stores a record as JSON, in which some characters take two bytes and others six; bytes
are counted as they are stored.

Ref: https://pkg.go.dev/encoding/json#Marshal
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import fields

from . import resource_form
from .spec import Model, Pods, Program, SecretUse, Spec, Volume

MARK_BYTES = 32 * 1024
"""Maximum bytes of all labels and annotations of a record."""
TEXT_BYTES = 96 * 1024
"""Maximum bytes of all texts, labels and annotations as stored. A file counts with its content in
base64; PAYLOAD_BYTES counts the decoded content, which is a quarter smaller.
"""
OWNER_BYTES = 16 * 1024
"""Maximum bytes of managedFields."""
STATUS_BYTES = 32 * 1024
"""Maximum bytes of a status; a larger one is shortened."""
OTHER_BYTES = 16 * 1024
"""Maximum bytes of all other fields, which have bounds of their own: counts, durations, names and a
stop request.
"""
RECORD_BYTES = TEXT_BYTES + OWNER_BYTES + STATUS_BYTES + OTHER_BYTES
"""Maximum bytes of a record."""

AROUND = 3
"""Bytes around a text: its quotation marks and the separator."""


def json_bytes(content: object) -> int:
    """Return how many bytes a value takes in JSON as Kubernetes writes it. Each `<`, `>` and `&`
    takes six bytes. Raises UnicodeEncodeError.
    """
    text = msgspec.json.encode(content)
    return len(text) + sum(more * text.count(each) for each, more in _LONGER.items())


_LONGER = {b"<": 5, b">": 5, b"&": 5, "\u2028".encode(): 4, "\u2029".encode(): 4}
"""Maximum additional bytes of these characters in the JSON of Kubernetes, compared with msgspec's.
"""


def stored_bytes(text: str) -> int:
    """Return how many bytes a text takes in Kubernetes' JSON, without quotation marks."""
    try:
        return json_bytes(text) - 2
    except UnicodeEncodeError:  # invalid text, which is refused anyway
        return stored_bytes(text.encode(errors="replace").decode())


def text_bytes(text: str) -> int:
    """Return the number of bytes that count for a text in a field of the table, including its
    quotation marks and separator.
    """
    return stored_bytes(text) + AROUND


def file_bytes(path: str, size: int) -> int:
    """Return the number of bytes that count for a file: its path and its size. The size is rounded
    up to a multiple of three, because the length of base64 does not show the exact size.
    """
    return text_bytes(path) + -(-size // 3) * 3 + AROUND


_ESCAPED = r'["\\<>&\x00-\x1f]'
_LONG = r"[<>&\x00-\x07\x0b\x0e-\x1f\x{2028}\x{2029}]"


def stored_bytes_in_cel(text: str) -> str:
    """Return a CEL expression that counts bytes as `stored_bytes` does. `text` is itself a CEL
    expression.
    """
    escaped, long = (f"size({text}.findAll(r'{each}'))" for each in (_ESCAPED, _LONG))
    return f"size(bytes({text})) + {escaped} + 4 * {long}"


# The table: which texts count towards PAYLOAD_BYTES.


class Texts(enum.Enum):
    """The content of a field of the table: one text, a list or map of texts, files, or objects."""

    ONE = enum.auto()
    LIST = enum.auto()
    MAP = enum.auto()
    """A map of texts. Its keys and values count."""
    FILES = enum.auto()
    """Files, each with a path and a content in base64. The path and three quarters of the content,
    its size before encoding, count.
    """
    OBJECTS = enum.auto()
    """A list of objects, of which some fields count."""


@dataclass(frozen=True)
class PayloadField:
    """A field of `spec` whose texts count. `path` is its path in the custom resource; if it holds
    objects, `parts` are the fields of each object that count.
    """

    path: str
    kind: Texts
    parts: tuple[PayloadField, ...] = ()
    is_optional: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names on the path to the field."""
        return tuple(self.path.split("."))


def _field(path: str, kind: Texts = Texts.ONE, *parts: PayloadField) -> PayloadField:
    return PayloadField(path, kind, parts)


def _needed(path: str) -> PayloadField:
    return PayloadField(path, Texts.ONE, is_optional=False)


PAYLOAD = (
    _field("env", Texts.MAP),
    _field("interpreter"),
    *(
        _field(f"program.{each}")
        for each in ("inline", "path", "url", "source", "entrypoint", "workingDir")
    ),
    *(
        _field(f"program.{each}", Texts.LIST)
        for each in ("command", "arguments", "executables", "flags")
    ),
    _field("program.files", Texts.FILES),
    _field("pods.annotations", Texts.MAP),
    _field("pods.imagePullSecrets", Texts.OBJECTS, _needed("name")),
    _field("pods.volumes", Texts.OBJECTS, _needed("claimName"), _needed("path"), _field("subPath")),
    _field(
        "pods.secrets",
        Texts.OBJECTS,
        _needed("name"),
        _field("path"),
        _field("variables", Texts.MAP),
    ),
)
"""The fields with texts of any length. All these texts together are limited to PAYLOAD_BYTES."""


def payload_sizes(spec: Spec) -> dict[str, int]:
    """Return the bytes of each field of the table, by its path; empty fields are left out."""
    found = ((each.path, _size(each, _value(spec, each.names))) for each in PAYLOAD)
    return {path: size for path, size in found if size}


def _value(thing: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if thing is None:
            return None
        thing = getattr(thing, _ATTRIBUTES[type(thing)][name])
    return thing


def _size(row: PayloadField, value: Any) -> int:
    if not value:
        return 0
    if row.kind is Texts.ONE:
        return text_bytes(value)
    if row.kind is Texts.FILES:
        return sum(
            text_bytes(path) + stored_bytes(content) * 3 // 4 + AROUND
            for path, content in value.items()
        )
    if row.kind is Texts.OBJECTS:
        return sum(
            text_bytes(each)
            if isinstance(each, str)  # an object that is given by its name only
            else sum(_size(part, _value(each, part.names)) for part in row.parts)
            for each in value
        )
    texts = (*value, *value.values()) if row.kind is Texts.MAP else value
    return sum(map(text_bytes, texts))


def _attributes(model: type[Model]) -> Mapping[str, str]:
    """Return a map from the names of fields in the Kubernetes resource to the attributes of the
    model.
    """
    other = resource_form.other_names(model)
    return {other.get(each.encode_name, each.encode_name): each.name for each in fields(model)}


_ATTRIBUTES = {each: _attributes(each) for each in (Spec, Program, Pods, Volume, SecretUse)}
