"""A run for a page: the JSON of REST and events, its HTML card and its MIME bundle. Pure.

The JSON form is `IRun` in the Lab extension. A program's files never leave the server this way, and
a list carries only the newest event of each run: 200 runs are a few hundred kilobytes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec
from msgspec.structs import replace

from ..errors import with_magic_commands
from ..i18n import _
from ..lifecycle.messages import shown
from ..progress.run_progress import Progress, note_lines
from ..spec import Phase, TFCluster
from .report import launched, note_line, readiness, ready_count, replica_summary


def run_view(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    *,
    away: str = "",
    whole: bool = False,
) -> dict[str, Any]:
    """A run as JSON-like data; `whole` keeps its events and addresses."""
    ready, total = readiness(cluster)
    return {
        "cluster": msgspec.to_builtins(_without_files(cluster, whole)),
        "ready": {"ready": ready, "total": total},
        "progress": None if progress is None else progress_view(progress),
        "notes": list(notes),
        "away": away,
    }


def progress_view(progress: Progress) -> dict[str, Any]:
    """Progress in the JSON form of the models: camelCase, and no NaN, which JSON does not know."""
    data = {
        "step": progress.step,
        "total": progress.total,
        "stepsPerSecond": progress.steps_per_second,
        "loss": progress.loss,
        "etaSeconds": progress.eta_seconds,
        "at": progress.at,
        "unit": progress.unit,
        "epoch": progress.epoch,
        "history": progress.history,
    }
    # msgspec writes NaN and infinity as null: a training that has diverged has no number to draw
    return dict(msgspec.json.decode(msgspec.json.encode(data)))


def _without_files(cluster: TFCluster, whole: bool) -> TFCluster:
    spec, status = cluster.spec, cluster.status
    if spec.program is not None and spec.program.files is not None:
        spec = replace(spec, program=replace(spec.program, files=None))
    if not whole:
        status = replace(status, events=status.events[-1:], addresses={})
    return replace(cluster, spec=spec, status=status)


# HTML of a run in a notebook. Everything that is not ours is escaped.

_COLOURS = {
    Phase.QUEUED: "#b26a00",
    Phase.STARTING: "#b26a00",
    Phase.RUNNING: "#1565c0",
    Phase.STOPPING: "#b26a00",
    Phase.SUCCEEDED: "#2e7d32",
    Phase.FAILED: "#c62828",
    Phase.STOPPED: "#616161",
}


def run_card(cluster: TFCluster, notes: tuple[str, ...] = (), now: float | None = None) -> str:
    """A small card that is right at the time it names."""
    state = cluster.status
    now = time.time() if now is None else now
    colour = _COLOURS[state.phase]
    at = time.strftime("%H:%M", time.localtime(now))
    how = _("{ready} ready · as of {at}").format(ready=ready_count(cluster), at=at)
    lines = [
        f'<div style="border-left:4px solid {colour};padding:2px 12px;line-height:1.5">',
        f"<div><strong>{escape(cluster.metadata.name)}</strong>",
        f'<span style="{_readable_colour(colour)};font-weight:600">{state.phase.value}</span>',
        f'<span style="opacity:.7">{escape(replica_summary(cluster))} · {escape(how)}</span></div>',
        f"<div>{escape(with_magic_commands(shown(state)))}</div>",
    ]
    told = [*note_line(cluster), *notes]
    lines += [f"<div>{escape(text)}</div>" for text in told]
    lines += [f"<div>⚠ {escape(warning)}</div>" for warning in state.warnings]
    if output := state.paths.get("output"):
        what = escape(_("output"))
        lines.append(f'<div style="opacity:.7">{what}: <code>{escape(output)}</code></div>')
    return "\n".join([*lines, "</div>"])


def _readable_colour(colour: str) -> str:
    """The colour of a text: nearer to that of the text around it, which is white in dark themes."""
    return f"color:{colour};color:color-mix(in srgb, {colour} 60%, currentColor)"


def tab_link(url: str, text: str) -> str:
    """A link that opens a tab of its own."""
    return f'<a href="{escape(url)}" target="_blank" rel="noopener">{escape(text)}</a>'


# The MIME bundle: text, HTML that says "as of 22:41", and light JSON without the program's files,
# which the Lab extension draws live: `kind` says what it is, `at` when it was so.

MIME_TYPE = "application/vnd.tfcluster.v1+json"


def run_bundle(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    text: str | None = None,
) -> dict[str, Any]:
    """The bundle of `cluster`; `text` replaces its plain text, `notes` are what else is known."""
    now = time.time()
    return {
        "text/plain": launched(cluster, program="%tfcluster") if text is None else text,
        "text/html": run_card(cluster, note_lines(progress, notes), now),
        MIME_TYPE: {"kind": "Run", "at": now, **run_view(cluster, progress, notes)},
    }


def board_bundle(url: str, what: str, runs: Sequence[str]) -> dict[str, Any]:
    """The bundle of a TensorBoard at `url` on these runs, or on all when there are none.

    The extension opens it as a tab by what it shows, through the server: `url` is for this machine.
    """
    return {
        "text/plain": f"{what}: {url}",
        "text/html": tab_link(url, what),
        MIME_TYPE: {"kind": "TensorBoard", "at": time.time(), "refs": list(runs), "folder": None},
    }
