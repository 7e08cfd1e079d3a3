"""Specs with a text in each field of unlimited length, and of an exact size in bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from tfcluster_magic.spec import Spec
from tfcluster_magic.spec.record_size import payload_sizes
from tfcluster_magic.spec.spec import PAYLOAD_BYTES

from .invalid_specs import running, using

TEXT = 'a<b>&"c"\\\n\t\x01\x0c\x7f字😀\u2028'
"""Characters that take one, two, three, four and six bytes in JSON."""
_ON_A_LINE = 'a<b>&"c"\\字😀'
_CLAIM = {"claim": "images", "path": "/images<&", "subPath": 'a"<b>'}
_SECRETS = [
    {"name": "keys", "path": "/keys&<"},
    {"name": "more", "variables": {"A": "a.b", "B": "c"}},
    {"name": "all"},
]
SPECS: dict[str, dict[str, Any]] = {
    "env": running(env={"A": TEXT, "B": "x"}),
    "interpreter": running(interpreter=f"/{TEXT}"),
    "program.inline": {"program": {"inline": TEXT}},
    "program.path": {"program": {"path": _ON_A_LINE}},
    "program.url": {"program": {"url": 'https://example.com/<&>"\\'}},
    "program.command": {"program": {"command": ["sh", TEXT]}},
    **{
        f"program.{name}": {"program": {**running()["program"], name: said}}
        for name, said in {
            "source": TEXT,
            "entrypoint": TEXT,
            "workingDir": TEXT,
            "arguments": ["-a", TEXT],
            "executables": ["a", TEXT],
            "flags": ["ps_hosts", TEXT],
            "files": {"cell.py": "eA==", TEXT: "eHg=", "<": "eHh4"},
        }.items()
    },
    "pods.annotations": using(annotations={"example.com/a": TEXT, "b": ""}),
    "pods.imagePullSecrets": using(imagePullSecrets=["registry", "other"]),
    "pods.volumes": using(volumes=[_CLAIM, {"claim": "other", "path": "/other"}]),
    "pods.secrets": using(secrets=_SECRETS),
}
"""Valid specs by the path of a field; each spec has a text in this field."""


def size(spec: dict[str, Any]) -> int:
    """Return the bytes of a spec's texts that count towards the limit PAYLOAD_BYTES."""
    return sum(payload_sizes(msgspec.convert(spec, Spec)).values())


def filled(spec: dict[str, Any], bytes_left: int = 0) -> dict[str, Any]:
    """Return the spec with a longer environment, so that its texts take all bytes of the limit
    except `bytes_left`.
    """
    env = spec.get("env", {})
    begun = {**spec, "env": {**env, "FILL": ""}}
    more = PAYLOAD_BYTES - bytes_left - size(begun)
    return {**spec, "env": {**env, "FILL": "x" * more}}
