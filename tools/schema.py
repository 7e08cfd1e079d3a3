"""Write docs/reference/tfcluster.schema.json, the JSON Schema of a TFCluster: `python
tools/schema.py`.

Editors use it for cluster files, programs for the output of `-o json`. The page's TypeScript is
generated from it, so it also defines the request bodies of verbs (`VerbBodies`). A test checks that
it is current.
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
    """Return the generated schema."""
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
