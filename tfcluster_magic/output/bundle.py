"""The MIME bundle of a run in a notebook. Pure.

Text, HTML that says "as of 22:41", and the model's JSON, which the Lab extension draws live.
"""

from __future__ import annotations

import time
from html import escape
from typing import Any

import msgspec

from ..models import Phase, TFCluster
from .report import launched, ready, shape

MIME_TYPE = "application/vnd.tfcluster.v1+json"
_COLOURS = {
    Phase.QUEUED: "#b26a00",
    Phase.STARTING: "#b26a00",
    Phase.RUNNING: "#1565c0",
    Phase.STOPPING: "#b26a00",
    Phase.SUCCEEDED: "#2e7d32",
    Phase.FAILED: "#c62828",
    Phase.STOPPED: "#616161",
}


def bundle(
    cluster: TFCluster, text: str | None = None, notes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The bundle of `cluster`; `text` replaces its plain text, `notes` are added lines."""
    return {
        "text/plain": launched(cluster) if text is None else text,
        "text/html": html(cluster, notes),
        MIME_TYPE: msgspec.to_builtins(cluster),
    }


def html(cluster: TFCluster, notes: tuple[str, ...] = (), now: float | None = None) -> str:
    """A small card that is right at the time it names."""
    state = cluster.status
    now = time.time() if now is None else now
    colour = _COLOURS[state.phase]
    lines = [
        f'<div style="border-left:4px solid {colour};padding:2px 12px;line-height:1.5">',
        f"<div><strong>{escape(cluster.metadata.name)}</strong>",
        f'<span style="color:{colour};font-weight:600">{state.phase.value}</span>',
        f'<span style="opacity:.7">{escape(shape(cluster))} · {ready(cluster)} ready',
        f"· as of {time.strftime('%H:%M', time.localtime(now))}</span></div>",
        f"<div>{escape(state.message)}</div>",
    ]
    lines += [f"<div>{escape(note)}</div>" for note in notes]
    lines += [f"<div>⚠ {escape(warning)}</div>" for warning in state.warnings]
    if output := state.paths.get("output"):
        lines.append(f'<div style="opacity:.7">output: <code>{escape(output)}</code></div>')
    return "\n".join([*lines, "</div>"])
