"""The MIME bundle of a run in a notebook. Pure.

Text, HTML that says "as of 22:41", and light JSON without the program's files, which the Lab
extension draws live: `kind` says what it is, `at` when it was so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..progress.run_progress import Progress, told
from ..spec import TFCluster
from .html import card, link
from .report import launched
from .view import run_view

MIME_TYPE = "application/vnd.tfcluster.v1+json"


def bundle(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    text: str | None = None,
) -> dict[str, Any]:
    """The bundle of `cluster`; `text` replaces its plain text, `notes` are what else is known."""
    now = time.time()
    return {
        "text/plain": launched(cluster, program="%tfcluster") if text is None else text,
        "text/html": card(cluster, told(progress, notes), now),
        MIME_TYPE: {"kind": "Run", "at": now, **run_view(cluster, progress, notes)},
    }


def board_bundle(url: str, what: str, runs: Sequence[str]) -> dict[str, Any]:
    """The bundle of a TensorBoard at `url` on these runs, or on all when there are none.

    The extension opens it as a tab by what it shows, through the server: `url` is for this machine.
    """
    return {
        "text/plain": f"{what}: {url}",
        "text/html": link(url, what),
        MIME_TYPE: {"kind": "TensorBoard", "at": time.time(), "refs": list(runs), "folder": None},
    }
