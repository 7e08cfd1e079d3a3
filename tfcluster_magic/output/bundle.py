"""The MIME bundle of a run in a notebook. Pure.

Text, HTML that says "as of 22:41", and the model's JSON, which the Lab extension draws live.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..models import TFCluster
from .html import card
from .report import launched

MIME_TYPE = "application/vnd.tfcluster.v1+json"


def bundle(
    cluster: TFCluster, text: str | None = None, notes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The bundle of `cluster`; `text` replaces its plain text, `notes` are added lines."""
    return {
        "text/plain": launched(cluster, program="%tfcluster") if text is None else text,
        "text/html": card(cluster, notes),
        MIME_TYPE: msgspec.to_builtins(cluster),
    }
