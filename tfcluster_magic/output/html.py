"""HTML of a run in a notebook. Everything that is not ours is escaped. Pure."""

from __future__ import annotations

import time
from html import escape

from ..errors import in_cells
from ..i18n import _
from ..spec import Phase, TFCluster
from .report import ready, shape

_COLOURS = {
    Phase.QUEUED: "#b26a00",
    Phase.STARTING: "#b26a00",
    Phase.RUNNING: "#1565c0",
    Phase.STOPPING: "#b26a00",
    Phase.SUCCEEDED: "#2e7d32",
    Phase.FAILED: "#c62828",
    Phase.STOPPED: "#616161",
}


def card(cluster: TFCluster, notes: tuple[str, ...] = (), now: float | None = None) -> str:
    """A small card that is right at the time it names."""
    state = cluster.status
    now = time.time() if now is None else now
    colour = _COLOURS[state.phase]
    at = time.strftime("%H:%M", time.localtime(now))
    how = _("{ready} ready · as of {at}").format(ready=ready(cluster), at=at)
    lines = [
        f'<div style="border-left:4px solid {colour};padding:2px 12px;line-height:1.5">',
        f"<div><strong>{escape(cluster.metadata.name)}</strong>",
        f'<span style="{_readable(colour)};font-weight:600">{state.phase.value}</span>',
        f'<span style="opacity:.7">{escape(shape(cluster))} · {escape(how)}</span></div>',
        f"<div>{escape(in_cells(state.message))}</div>",
    ]
    lines += [f"<div>{escape(note)}</div>" for note in notes]
    lines += [f"<div>⚠ {escape(warning)}</div>" for warning in state.warnings]
    if output := state.paths.get("output"):
        what = escape(_("output"))
        lines.append(f'<div style="opacity:.7">{what}: <code>{escape(output)}</code></div>')
    return "\n".join([*lines, "</div>"])


def _readable(colour: str) -> str:
    """The colour of a text: nearer to that of the text around it, which is white in dark themes."""
    return f"color:{colour};color:color-mix(in srgb, {colour} 60%, currentColor)"


def link(url: str, text: str) -> str:
    """A link that opens a tab of its own."""
    return f'<a href="{escape(url)}" target="_blank" rel="noopener">{escape(text)}</a>'
