"""Write docs/reference/tfcluster.schema.json, the JSON Schema of a TFCluster:
`python tools/schema.py`.

Editors use it for cluster files, programs for what `-o json` prints, and the page's TypeScript is
made from it: for that it also defines what verbs of a run take (`VerbBodies`). A test keeps it
current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tfcluster_magic.server.runs import VERB_BODIES
from tfcluster_magic.spec import schema

FILE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "tfcluster.schema.json"


def text() -> str:
    """The schema as it is in the repository."""
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
