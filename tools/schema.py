"""Write docs/reference/tfcluster.schema.json, the JSON Schema of a TFCluster, and
tfcluster-project.schema.json, the JSON Schema of a project's tfcluster.yaml: `python
tools/schema.py`.

Editors use the two schemas to check cluster files and projects. Programs can use the first schema
to read the output of `-o json`. The TypeScript of the Lab extension is generated from the first
schema, so this schema also defines the request bodies of verbs (`VerbBodies`). Tests check that
both are current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tfcluster_magic.launch.project import schema_text
from tfcluster_magic.server.runs import VERB_BODIES
from tfcluster_magic.spec import schema

FILE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "tfcluster.schema.json"
PROJECT_FILE = FILE.with_name("tfcluster-project.schema.json")


def text() -> str:
    """Return the text of tfcluster.schema.json."""
    made: dict[str, Any] = schema()
    refs, bodies = msgspec.json.schema_components(
        VERB_BODIES.values(), ref_template="#/$defs/{name}"
    )
    verbs = dict(zip(VERB_BODIES, refs, strict=True))
    every = {"type": "object", "properties": verbs, "required": [*verbs]}
    made["$defs"] |= {**bodies, "VerbBodies": every}
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    PROJECT_FILE.write_text(schema_text(), "utf-8")
