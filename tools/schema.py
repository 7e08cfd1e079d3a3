"""Write docs/tfcluster.schema.json: the JSON Schema of a TFCluster. `python tools/schema.py`.

Editors use it for cluster files, programs for what `-o json` prints. A test keeps it current.
"""

from __future__ import annotations

import json
from pathlib import Path

from tfcluster_magic.spec import schema

FILE = Path(__file__).resolve().parent.parent / "docs" / "tfcluster.schema.json"


def text() -> str:
    """The schema as it is in the repository."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
