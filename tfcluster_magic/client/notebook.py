"""In IPython: the explanation of a known TensorFlow error, below the cell that failed.

Uses IPython's `post_run_cell` event, so exceptions keep their type and their traceback; imports
IPython never, and only acts where it runs already.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connection import Client

_newest_client: weakref.ref[Client] | None = None


def explain_failures_of(client: Client) -> None:
    """From now on, explain what fails in a cell as work on this client's cluster."""
    global _newest_client
    _newest_client = weakref.ref(client)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and _after_cell not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _after_cell)


def _after_cell(result: Any) -> None:
    client = _newest_client() if _newest_client is not None else None
    error = result.error_in_exec
    if client is None or error is None:
        return
    text = client.explain(error)
    if text is not None:
        print(f"\nTFCluster: {text}", file=sys.stderr)
