"""A run as a page shows it: JSON data, an HTML card, and the MIME bundle of a cell's output.

The JSON form is `IRun` in the Lab extension. It contains no program files, and in a list, a run has
only its newest event. So 200 runs take a few hundred kilobytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec
from msgspec.structs import replace

from ..backends.base import SeenTask
from ..errors import last_overwrite, program_lines, strip_controls, with_magic_commands
from ..i18n import _
from ..lifecycle.messages import shown, shown_inferred
from ..progress.run_progress import Progress, note_lines
from ..spec import Phase, TaskState, TFCluster
from ..spec.names import parse_task
from ..usage.summary import TypeUsage, type_lines
from .report import (
    annotation_lines,
    facts_line,
    launched,
    mode_words,
    readiness,
    row_order,
    task_row,
    task_words,
    unlisted_states,
)
from .text import (
    FAILING,
    is_failing,
    one_line,
    zoned,
)


def run_view(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    *,
    away: str = "",
    used: Sequence[TypeUsage] = (),
    whole: bool = False,
) -> dict[str, Any]:
    """Return a run as JSON-like data. With `whole`, the data has all events and addresses of the
    run. `used` is the usage of the tasks of an ended run.
    """
    ready, total = readiness(cluster)
    return {
        "cluster": msgspec.to_builtins(_without_files(cluster, whole)),
        "ready": {"ready": ready, "total": total},
        "progress": None if progress is None else progress_view(progress),
        "notes": list(notes),
        "away": away,
        "used": msgspec.to_builtins(tuple(used)),
    }


def task_rows(cluster: TFCluster, seen: Sequence[SeenTask]) -> list[dict[str, Any]]:
    """Return the tasks of a run as JSON-like data (`ITaskRow`), in reading order.

    States come from the record, which lists at most 20 tasks. The state of any other task is the
    observed state if it agrees with the record's counts, else None.
    """
    told = {task.name: task for task in cluster.status.attention}
    left = {t.value: unlisted_states(cluster, t.value, told) for t in cluster.spec.replicas.counts}
    rows = []
    for task in sorted(seen, key=lambda each: row_order(each.name)):
        known = told.get(task.name)
        state, message, since = _seen_state(task, left), "", task.since
        if known is not None:
            state, message = known.state, task_row(known, cluster)[-1]
            since = known.exit.finished_at if known.exit is not None else since
        rows.append(
            {
                "name": task.name,
                "state": None if state is None else state.value,
                "message": message,
                "messages": [] if known is None else msgspec.to_builtins(known.messages),
                "restarts": cluster.status.restarts.get(task.name, 0),
                "node": task.node,
                "since": since,
                "line": "" if task.line is None else one_line(last_overwrite(task.line.text)),
                "printedAt": None if task.line is None else task.line.at,
            }
        )
    return rows


def _seen_state(task: SeenTask, left: Mapping[str, Mapping[TaskState, int]]) -> TaskState | None:
    """Return the state of a task that the record does not list; None if it is unknown. `left` has
    the record's counts of each type without the listed tasks. If only one state is left for the
    type, it is the task's state.
    """
    states = left[parse_task(task.name)[0].value]
    if len(states) == 1:
        return next(iter(states))
    if task.state is TaskState.FAILED and task.state not in states and TaskState.STOPPED in states:
        return TaskState.STOPPED  # the task failed because the run stopped it
    return task.state if task.state in states else None


def progress_view(progress: Progress) -> dict[str, Any]:
    """Return progress in the JSON form of the models: camelCase, and no NaN, which JSON lacks."""
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
        "metrics": dict(progress.metrics),
        "source": progress.source,
    }
    # msgspec writes NaN and infinity as null: a training that diverged has no value to draw
    return dict(msgspec.json.decode(msgspec.json.encode(data)))


def _without_files(cluster: TFCluster, whole: bool) -> TFCluster:
    spec, status = cluster.spec, cluster.status
    if spec.program is not None and spec.program.files is not None:
        spec = replace(spec, program=replace(spec.program, files=None))
    if not whole:
        status = replace(status, events=status.events[-1:], addresses={})
    return replace(cluster, spec=spec, status=status)


# HTML of a run in a notebook. All strings are escaped, except constants of this module.

# The colours of the card in JupyterLab follow the theme, with fallbacks for a white page.
_WAITING = "var(--jp-warn-color1, #b26a00)"
_COLOURS = {
    Phase.QUEUED: _WAITING,
    Phase.STARTING: _WAITING,
    Phase.RUNNING: "var(--jp-brand-color1, #1565c0)",
    Phase.STOPPING: _WAITING,
    Phase.SUCCEEDED: "var(--jp-success-color1, #2e7d32)",
    Phase.FAILED: "var(--jp-error-color1, #c62828)",
    Phase.STOPPED: "var(--jp-border-color1, #616161)",
}


def run_card(cluster: TFCluster, notes: Sequence[str] = (), as_of: float | None = None) -> str:
    """Return a small card of a run. It can be read without styles, which some viewers remove.

    Args:
        cluster: the run.
        notes: further facts about the run, one for each line.
        as_of: for a stored card, the time of these facts in seconds since 1970; the card then says
            that an active run may have changed since.
    """
    state = cluster.status
    failing = is_failing(state)
    phase = Phase.FAILED if failing else state.phase
    colour = _COLOURS[phase]
    word = FAILING if failing else state.phase.value
    tasks = task_words(cluster)
    how = [tasks] if as_of is None else [tasks, _as_of(as_of)]
    lines = [
        f'<div style="border-left:4px solid {colour};padding:2px 12px;line-height:1.5">',
        f"<div><strong>{escape(cluster.metadata.name)}</strong>",
        f'<span style="{_readable_colour(phase)};font-weight:600">{word}</span>',
        f'<span style="opacity:.7">{escape(" · ".join(how))}</span></div>',
        f"<div>{_sentence(shown(state))}</div>",
    ]
    told = [*annotation_lines(cluster), *notes]
    lines += [f"<div>{_sentence(text)}</div>" for text in told]
    lines += [f'<div style="opacity:.7">{escape(text)}</div>' for text in shown_inferred(state)]
    lines += [f"<div>⚠ {_sentence(warning)}</div>" for warning in state.warnings]
    if printed := last_lines(cluster):
        lines.append(f"<div>{escape(_of_task(printed.task))}</div>")
        text = escape("\n".join(printed.lines))
        lines.append(f'<pre style="margin:0;padding-left:12px;overflow:auto">{text}</pre>')
    # a card that is updated live omits the elapsed time, which would soon be wrong
    elapsed, mode = as_of is not None, mode_words(cluster.spec.mode)
    facts = facts_line(cluster, as_of or time.time(), elapsed=elapsed, mode=mode)
    lines.append(f'<div style="opacity:.7">{escape(facts)}</div>')
    if output := state.paths.get("output"):
        what = escape(_("output"))
        lines.append(f'<div style="opacity:.7">{what}: <code>{escape(output)}</code></div>')
    if as_of is not None and cluster.active:
        lines.append(f'<div style="opacity:.7">{_sentence(_since(cluster))}</div>')
    return "\n".join([*lines, "</div>"])


def _sentence(text: str) -> str:
    """Return a message as HTML: text in backticks as code, commands as magic commands."""
    parts = with_magic_commands(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner
        return escape("`".join(parts))
    return "".join(
        f"<code>{escape(part)}</code>" if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def _as_of(at: float) -> str:
    return _("as of {at}").format(at=zoned(at))


def _since(cluster: TFCluster) -> str:
    return _("It may have changed since: `tfcluster status {name}` shows it now.").format(
        name=cluster.metadata.name
    )


@dataclass(frozen=True)
class PrintedEnd:
    """The last lines that a failed task printed."""

    task: str
    lines: tuple[str, ...]


MOST_LAST_LINES = 10


def last_lines(cluster: TFCluster) -> PrintedEnd | None:
    """Return the last lines of the task whose failure ended the run, without TensorFlow's own log
    lines; None if no task failed or the task printed nothing. `RunCard.tsx` does the same.
    """
    state = cluster.status
    failures = sorted(state.failures, key=lambda failure: failure.task != state.culprit)
    if not failures or not (state.phase is Phase.FAILED or is_failing(state)):
        return None
    printed = program_lines(failures[0].exit.last_lines)
    kept = tuple(strip_controls(line) for line in printed[-MOST_LAST_LINES:])
    return PrintedEnd(failures[0].task, kept) if kept else None


def _of_task(task: str) -> str:
    return _("last lines of {task}:").format(task=task)


def _readable_colour(phase: Phase) -> str:
    """Return the CSS of text in a phase's colour. The colour is mixed with that of the text around
    it, for contrast.
    """
    if phase is Phase.STOPPED:
        return "opacity:.8"  # text in the colour of the card's border would not be readable
    return f"color:color-mix(in srgb, {_COLOURS[phase]} 60%, currentColor)"


def tab_link(url: str, text: str) -> str:
    """Return a link that opens in a new tab."""
    return f'<a href="{escape(url)}" target="_blank" rel="noopener">{escape(text)}</a>'


# The MIME bundle has the run as text, HTML and JSON. Text and HTML are for people who read a stored
# notebook where the Lab extension and the server are missing, for example on nbviewer; they say
# when their facts were read. From the JSON, the extension draws a live view. The field `kind` is
# the type of the data, and `at` is the time at which it was read. The JSON omits the program's
# files.

MIME_TYPE = "application/vnd.tfcluster.v1+json"


def run_bundle(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    text: str | None = None,
    *,
    away: str = "",
    used: Sequence[TypeUsage] = (),
) -> dict[str, Any]:
    """Return the MIME bundle of a run. `text` replaces its plain text; `notes` are lines with
    further facts, and `used` is the usage of the tasks of an ended run.
    """
    now = time.time()
    beside = note_lines(progress, notes, succeeded=cluster.status.phase is Phase.SUCCEEDED)
    beside = (*beside, *type_lines(used, cluster.spec.replicas.counts))
    return {
        "text/plain": _kept_text(cluster, beside, now) if text is None else text,
        "text/html": run_card(cluster, beside, now),
        MIME_TYPE: {
            "kind": "Run",
            "at": now,
            **run_view(cluster, progress, notes, away=away, used=used),
        },
    }


def _kept_text(cluster: TFCluster, notes: Sequence[str], at: float) -> str:
    """Return the text of a run for a stored notebook. It says at what time its facts were read, and
    has the last lines of a failed task.
    """
    beside = [f"{task_words(cluster)} · {_as_of(at)}", *map(one_line, notes)]
    if printed := last_lines(cluster):
        beside += [_of_task(printed.task), *(f"  {line}" for line in printed.lines)]
    text = launched(cluster, program="%tfcluster", beside=beside)
    return with_magic_commands(f"{text}\n{_since(cluster)}" if cluster.active else text)


def followed_bundle(cluster: TFCluster, tasks: Sequence[str], *, ended: bool) -> dict[str, Any]:
    """Return the MIME bundle of a heading. A cell that follows a run shows it above the run's log
    lines. `ended` says whether all lines have arrived.

    When a page is opened again, the extension shows further lines unless `ended` is true.
    """
    head = cluster.metadata
    text = (
        _("Output of {name}:")
        if ended
        else _(
            "Output of {name}; if it stops before the run does, the page was closed: "
            "`tfcluster logs {name}` shows all of it."
        )
    )
    return {
        "text/plain": with_magic_commands(text.format(name=head.name)),
        MIME_TYPE: {
            "kind": "Follow",
            "at": time.time(),
            "name": head.name,
            "uid": head.uid,
            "tasks": list(tasks),
            "ended": ended,
        },
    }


def board_bundle(url: str, what: str, runs: Sequence[str]) -> dict[str, Any]:
    """Return the MIME bundle of a TensorBoard at `url` for these runs (all if empty). The
    extension opens a tab through the server, because `url` works only on this machine.
    """
    return {
        "text/plain": f"{what}: {url}",
        "text/html": tab_link(url, what),
        MIME_TYPE: {"kind": "TensorBoard", "at": time.time(), "refs": list(runs), "folder": None},
    }
