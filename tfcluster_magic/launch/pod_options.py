"""How what only pods have is written on a command line, and read from it. Pure.

Promises that what is written is read as the same. Owns the short forms, `images:/mnt/images:ro`;
what a name or a path may be is checked with everything else (`validation/`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..i18n import _
from .options import Kind

_VOLUME = re.compile(
    r"(?P<claim>[^/:]+)(?:/(?P<subPath>[^:]+))?:(?P<path>[^:]+)(?::(?P<how>r[ow]))?"
)
_SECRET = re.compile(r"(?P<name>[^:]+)(?::(?P<path>.+))?", re.DOTALL)
_CLAIM = re.compile(r"(?P<size>[^:]+)(?::(?P<storageClass>.+))?", re.DOTALL)


def read(kind: Kind, value: object) -> object:
    """The JSON form of what a person said: texts, one text with several of them, or JSON already.

    Raises ValueError with how it is written.
    """
    if kind is Kind.ANNOTATIONS and isinstance(value, Mapping):
        return {str(key): str(content) for key, content in value.items()}
    if kind is Kind.CLAIM:
        return _claim(value)
    items = value.split() if isinstance(value, str) else value
    found = [_ONE[kind](item) for item in (items if isinstance(items, (list, tuple)) else [items])]
    return dict(found) if kind is Kind.ANNOTATIONS else found


def written(kind: Kind, value: object) -> list[str]:
    """The words, one for each time that the option is given; texts are taken as they are."""
    value = msgspec.to_builtins(value)
    if kind is Kind.ANNOTATIONS and isinstance(value, Mapping):
        return [f"{key}={content}" for key, content in value.items()]
    if kind is not Kind.CLAIM and isinstance(value, str):
        value = value.split()
    items = value if isinstance(value, (list, tuple)) else [value]
    return [_TEXT[kind](item) if isinstance(item, Mapping) else str(item) for item in items]


def _volume(item: object) -> object:
    if isinstance(item, Mapping):
        return item
    if not (said := _VOLUME.fullmatch(str(item))):
        raise ValueError(
            _(
                "write CLAIM:PATH, with :ro after it to read only, such as images:/mnt/images:ro; "
                "CLAIM/FOLDER:PATH mounts a folder of the claim"
            )
        )
    given = {key: text for key in ("claim", "path", "subPath") if (text := said[key])}
    return {**given, "readOnly": True} if said["how"] == "ro" else given


def _secret(item: object) -> object:
    if isinstance(item, Mapping):
        return item
    if not (said := _SECRET.fullmatch(str(item))):
        raise ValueError(_("write NAME, or NAME:PATH for files, such as s3 or s3:/mnt/s3"))
    return {key: text for key, text in said.groupdict().items() if text}


def _annotation(item: object) -> tuple[str, str]:
    name, equals, content = str(item).partition("=")
    if not equals or not name:
        raise ValueError(_("write KEY=VALUE, such as prometheus.io/scrape=true"))
    return name, content


def _claim(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    if not (said := _CLAIM.fullmatch(str(value))):
        raise ValueError(_("write SIZE or SIZE:CLASS, such as 10Gi or 10Gi:shared"))
    return {key: text for key, text in said.groupdict().items() if text}


_ONE: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.NAMES: str,
    Kind.VOLUMES: _volume,
    Kind.SECRETS: _secret,
    Kind.ANNOTATIONS: _annotation,
}
_TEXT: Mapping[Kind, Callable[[Mapping[str, Any]], str]] = {
    Kind.VOLUMES: lambda v: "".join(
        [
            str(v.get("claim", "")),
            f"/{v['subPath']}" if v.get("subPath") else "",
            f":{v.get('path', '')}",
            ":ro" if v.get("readOnly") else "",
        ]
    ),
    Kind.SECRETS: lambda s: ":".join(filter(None, (str(s.get("name", "")), s.get("path")))),
    Kind.CLAIM: lambda c: ":".join(filter(None, (str(c.get("size", "")), c.get("storageClass")))),
}
