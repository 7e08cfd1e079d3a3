"""`-o json|yaml|name`: models as documents for programs, in the one JSON form of the models."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from ..spec import Model, TFCluster

FORMS = ("table", "json", "yaml", "name")


def document(what: Model | Sequence[Model], form: str) -> str:
    """One model or several as `json`, `yaml` or (clusters only) `name`, without a last newline."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(what), indent=2).decode()
    if form == "name":
        clusters = [what] if isinstance(what, Model) else what
        return "\n".join(c.metadata.name for c in clusters if isinstance(c, TFCluster))
    return to_yaml(msgspec.to_builtins(what))


def readable(cluster: TFCluster) -> str:
    """A cluster as YAML for a person: with the sizes of its program's files, not their contents."""
    data = msgspec.to_builtins(cluster)
    files = (data["spec"].get("program") or {}).get("files") or {}
    for path, content in files.items():
        files[path] = f"({len(base64.b64decode(content))} bytes)"
    return to_yaml(data)


def to_yaml(data: object) -> str:
    """JSON-like data as YAML in its own order."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip("\n")
