"""Reports of a run: text after a launch, in `status` and in `list`; JSON, an HTML card and a MIME
bundle for a page.

The JSON form is `IRun` in the Lab extension. It contains no program files, and a list contains only
the newest event of each run: 200 runs take a few hundred kilobytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec
from msgspec.structs import replace

from ..backends.base import Options, SeenTask
from ..errors import is_tensorflow_log, last_overwrite, strip_controls, with_magic_commands
from ..i18n import _, ngettext
from ..lifecycle import messages
from ..lifecycle.messages import exit_message, shown, shown_inferred
from ..progress.run_progress import Progress, note_lines
from ..quota import ledger
from ..spec import Mode, Phase, Reclaimed, TaskFailure, TaskState, TaskStatus, TaskType, TFCluster
from ..spec.message_table import format_duration
from ..spec.names import parse_task, task_name
from ..spec.quantities import format_bytes
from ..usage.summary import TypeUsage, type_lines
from .text import (
    FAILING,
    PLAIN,
    Paint,
    age,
    clock,
    cut,
    is_failing,
    one_line,
    pad,
    table,
)

MOST_TASK_ROWS = 40
MOST_COLUMNS = 24
"""Maximum terminal columns of a run's display name or tags in a list."""
MOST_EVENTS = 10
LEAST_HOURS = 0.01
"""Threshold: fewer CPU- or GPU-hours are not shown."""


def replica_summary(cluster: TFCluster, mode: str = "") -> str:
    """Return the mode and tasks of a run: `between-graph · 2 workers, 1 ps`; `mode` replaces the
    word of the option.
    """
    counts = cluster.spec.replicas.counts
    parts = [task_count(t, n) for t, n in counts.items()]
    return f"{mode or cluster.spec.mode.value} · {', '.join(parts)}"


def mode_words(mode: Mode) -> str:
    """Return the mode of a run in the words of the launch form; `modeWords` in the page does the
    same.
    """
    return _("used from a notebook") if mode is Mode.IN_GRAPH else _("program on every worker")


def task_count(task_type: TaskType, count: int) -> str:
    """Return `2 workers`, `1 ps`."""
    text = {
        TaskType.CHIEF: ngettext("{count} chief", "{count} chiefs", count),
        TaskType.WORKER: ngettext("{count} worker", "{count} workers", count),
        TaskType.PS: ngettext("{count} ps", "{count} ps", count),
        TaskType.EVALUATOR: ngettext("{count} evaluator", "{count} evaluators", count),
    }[task_type]
    return text.format(count=count)


def _entry(label: str, value: str) -> str:
    return _("{label}: {value}").format(label=label, value=one_line(value))


def _label(key: str, columns: int = 0) -> str:
    """Return the label of one of a run's folders: `output`, `logs`."""
    return pad({"output": _("output"), "logs": _("logs")}.get(key, key), columns)


def headline(cluster: TFCluster, paint: Paint = PLAIN) -> str:
    """Return the name of the run, its phase and its message."""
    phase = paint.phase(cluster.status)
    message = one_line(shown(cluster.status))
    text = f"{paint(cluster.metadata.name, 'bold')} {phase}"
    return f"{text}: {message}" if message else text


def launched(
    cluster: TFCluster,
    paint: Paint = PLAIN,
    program: str = "tfcluster",
    beside: Sequence[str] = (),
) -> str:
    """Return the short report of a launch: the tasks, the folder of their output, the next
    commands. `program` is how the user calls the command; `beside` are further lines about the run.
    """
    lines = [headline(cluster, paint), f"  {replica_summary(cluster)}"]
    lines += [f"  {text}" for text in beside]
    lines += [
        f"  {_label(what, 8)}{one_line(where)}" for what, where in cluster.status.paths.items()
    ]
    lines += [f"  {_('inferred')} {one_line(text)}" for text in shown_inferred(cluster.status)]
    lines += [f"  {text}" for text in warnings(cluster, (), paint)]
    return "\n".join(
        [*lines, *(f"  {paint(w, 'bold')}  {why}" for w, why in _next(cluster, program))]
    )


def warnings(cluster: TFCluster, known: Container[str], paint: Paint = PLAIN) -> list[str]:
    """Return the warnings of a run that are not in `known`, one for each line."""
    new = (text for text in cluster.status.warnings if text not in known)
    return [f"{paint(_('warning'), 'yellow')} {one_line(text)}" for text in new]


def _next(cluster: TFCluster, program: str) -> list[tuple[str, str]]:
    """Return the next commands and what they are for, padded to one width."""
    name = cluster.metadata.name
    steps = [(f"status {name}", _("how it is doing")), (f"stop {name}", _("end it"))]
    if not cluster.active:
        steps = [
            (f"logs {name}", _("what its tasks printed")),
            (f"rerun {name}", _("launch it again")),
        ]
    elif cluster.spec.mode is Mode.IN_GRAPH:
        steps.insert(0, (f"connect {name}", _("use it")))
    else:
        steps.insert(0, (f"logs -f {name}", _("what its tasks print")))
    longest = max(len(words) for words, _why in steps)
    return [(f"{program} {words:<{longest}}", why) for words, why in steps]


def status(
    cluster: TFCluster,
    paint: Paint = PLAIN,
    notes: Sequence[str] = (),
    now: float | None = None,
    most: int | None = None,
) -> str:
    """Return all facts about one run; `notes` are lines from outside the record: progress,
    silence.
    """
    now = time.time() if now is None else now
    state = cluster.status
    about = [headline(cluster, paint), *annotation_lines(cluster), _facts(cluster, now)]
    blocks = ["\n".join(about)]
    if rows := _task_rows(cluster):
        head = (_("TASK"), _("STATE"), _("RESTARTS"), _("MESSAGE"))
        painted = [(n, paint.state(s) if s else t, r, m) for n, s, t, r, m in rows]
        blocks.append(table(head, painted, paint, most))
    facts = [*notes]
    if state.reclaimed is not None:
        facts.append(reclaimed(state.reclaimed, now))
    if cluster.spec.after:
        facts.append(_entry(_("after"), ", ".join(each.words for each in cluster.spec.after)))
    facts += [_entry(_label(what), where) for what, where in state.paths.items()]
    facts += [_entry(_("inferred"), text) for text in shown_inferred(state)]
    facts += [_entry(paint(_("warning"), "yellow"), w) for w in state.warnings]
    if facts:
        blocks.append("\n".join(facts))
    if state.events:
        lines = [
            f"  {clock(e.at, now, seconds=True)}  {one_line(e.reason):<14}  {one_line(shown(e))}"
            for e in state.events[-MOST_EVENTS:]
        ]
        blocks.append("\n".join([paint(_("events"), "bold"), *lines]))
    return "\n\n".join(blocks)


def annotation_lines(cluster: TFCluster) -> list[str]:
    """Return the display name, tags and note of a run, one for each line, if they are set."""
    head = cluster.metadata
    lines = {
        _("display name: {name}"): {"name": one_line(head.display_name)},
        _("tags: {tags}"): {"tags": one_line(" ".join(head.tags))},
        _("note: {note}"): {"note": one_line(head.note)},
    }
    return [text.format(**value) for text, value in lines.items() if all(value.values())]


def _facts(cluster: TFCluster, now: float, *, elapsed: bool = True, mode: str = "") -> str:
    state = cluster.status
    parts = [replica_summary(cluster, mode)]
    parts.append(_("launched {at}").format(at=clock(cluster.metadata.created_at, now)))
    if state.started_at is not None and (elapsed or state.finished_at):
        end = state.finished_at or now
        so_far = _("took {time}") if state.finished_at else _("for {time}")
        parts.append(so_far.format(time=format_duration(end - state.started_at)))
    cpu, gpu = ledger.run_hours(state.usage, cluster.spec, state.released_at or now)
    for amount, unit in ((cpu, "CPU"), (gpu, "GPU")):
        if amount >= LEAST_HOURS:
            parts.append(_("reserved {amount:.2f} {unit}-hours").format(amount=amount, unit=unit))
    if cluster.spec.program is not None:
        parts.append(
            one_line(" ".join([cluster.spec.program.source, *cluster.spec.program.arguments]))
        )
    return " · ".join(parts)


def reclaimed(what: Reclaimed, now: float | None = None) -> str:
    """Return `reclaimed at 22:41: ps-0 (1 CPU, 512Mi)`."""
    freed = [f"{what.cpu:g} CPU"] if what.cpu else []
    freed += [format_bytes(what.memory)] if what.memory else []
    freed += [f"{what.gpu} GPU"] if what.gpu else []
    amount = f" ({', '.join(freed)})" if freed else ""
    return _("reclaimed at {at}: {tasks}{amount}").format(
        at=clock(what.at, now, seconds=True), tasks=messages.shorten(what.tasks), amount=amount
    )


Row = tuple[str, "TaskState | None", str, str, str]


def _task_rows(cluster: TFCluster) -> list[Row]:
    """Return a row for each task in the record's `attention`, and rows with counts for the
    others.
    """
    told = {t.name: t for t in cluster.status.attention}
    rows: list[Row] = []
    for task_type, count in cluster.spec.replicas.counts.items():
        names = [task_name(task_type, i) for i in range(count)]
        rows += [_told(told[n], cluster) for n in names if n in told]
        others = [n for n in names if n not in told]
        rows += _others(others, _left(cluster, task_type.value, told), cluster.status.restarts)
    return sorted(rows, key=lambda row: _rank(row[0]))


def _rank(name: str) -> tuple[int, int]:
    """Return the sort key of a row. If `name` lists several tasks, the first one counts."""
    task_type, index = parse_task(name.partition(" ")[0].rstrip(","))
    return list(TaskType).index(task_type), index


def _told(task: TaskStatus, cluster: TFCluster) -> Row:
    message = shown(task)
    if not message and task.exit is not None and task.state is TaskState.FAILED:
        failure = TaskFailure(task=task.name, attempt=1, exit=task.exit)
        message = exit_message(failure, cluster.spec).removeprefix(f"{task.name} ")
    return task.name, task.state, task.state.value, str(task.restarts), one_line(message)


def _left(cluster: TFCluster, kind: str, told: Mapping[str, TaskStatus]) -> dict[TaskState, int]:
    """Return how many tasks of a type are in each state, without those that have their own row."""
    counts = cluster.status.counts.get(kind)
    if counts is None:
        return {TaskState.PENDING: cluster.spec.replicas.of(parse_task(f"{kind}-0")[0]).count}
    left = {
        TaskState.STARTING: counts.starting,
        TaskState.RUNNING: counts.running,
        TaskState.SUCCEEDED: counts.succeeded,
        TaskState.FAILED: counts.failed,
        TaskState.STOPPED: counts.stopped,
    }
    left[TaskState.PENDING] = counts.desired - sum(left.values())
    for task in told.values():
        if task.name.startswith(f"{kind}-"):
            left[task.state] -= 1
    return {state: count for state, count in left.items() if count > 0}


def _others(
    names: Sequence[str], states: Mapping[TaskState, int], restarts: Mapping[str, int]
) -> list[Row]:
    if not names:
        return []
    if len(states) == 1 and len(names) <= MOST_TASK_ROWS:
        (state,) = states
        return [(n, state, state.value, str(restarts.get(n, 0)), "") for n in names]
    words = ", ".join(f"{count} {state.value}" for state, count in states.items())
    total = str(sum(restarts.get(n, 0) for n in names))
    return [(messages.shorten(names, 3), None, words, total, "")]


def readiness(cluster: TFCluster) -> tuple[int, int]:
    """Return how many tasks run or have succeeded, and the total. Reclaimed tasks do not count."""
    counts = cluster.status.counts.values()
    total = cluster.spec.replicas.total
    if cluster.status.phase is Phase.SUCCEEDED:
        total -= sum(c.stopped for c in counts)
    return sum(c.running + c.succeeded for c in counts), total


def ready_count(cluster: TFCluster) -> str:
    """Return `2/3`; see `readiness`."""
    up, total = readiness(cluster)
    return f"{up}/{total}"


def task_words(cluster: TFCluster) -> str:
    """Return `2 of 3 running`; for an ended run `3 tasks finished`, or the number of its tasks.
    `taskWords` in the page does the same. Parameter servers may run on for a while.
    """
    up, total = readiness(cluster)
    if cluster.status.phase is Phase.SUCCEEDED:
        left = sum(counts.running for counts in cluster.status.counts.values())
        finished = ngettext("{count} task finished", "{count} tasks finished", total - left)
        finished = finished.format(count=total - left)
        if not left:
            return finished
        return _("{finished}, {count} running").format(finished=finished, count=left)
    if not cluster.active:
        return ngettext("{count} task", "{count} tasks", total).format(count=total)
    return _("{up} of {total} running").format(up=up, total=total)


def listing(
    clusters: Sequence[TFCluster],
    paint: Paint = PLAIN,
    now: float | None = None,
    most: int | None = None,
) -> str:
    """Return the table of runs."""
    now = time.time() if now is None else now
    columns: list[tuple[str, Callable[[TFCluster], str]]] = [
        (_("NAME"), lambda c: c.metadata.name),
        (_("DISPLAY NAME"), lambda c: cut(one_line(c.metadata.display_name), MOST_COLUMNS)),
        (_("TAGS"), lambda c: cut(one_line(" ".join(c.metadata.tags)), MOST_COLUMNS)),
        (_("MODE"), lambda c: c.spec.mode.value),
        (_("PHASE"), lambda c: paint.phase(c.status)),
        (_("READY"), ready_count),
        (_("AGE"), lambda c: age(now - c.metadata.created_at)),
        (_("REASON"), lambda c: one_line(shown(c.status))),
    ]
    used = [(head, [cell(c) for c in clusters]) for head, cell in columns]
    used = [(head, cells) for head, cells in used if any(cells) or head == _("REASON")]
    rows = list(zip(*(cells for _head, cells in used), strict=True))
    return table([head for head, _cells in used], rows, paint, most)


def options(what: Options, paint: Paint = PLAIN) -> str:
    """Return the free resources, limits and defaults of a backend."""
    rows = [
        (_("CPU cores"), f"{what.cpu.free:g}", f"{what.cpu.total:g}"),
        (_("memory"), format_bytes(what.memory.free), format_bytes(what.memory.total)),
        (_("GPUs"), f"{what.gpu.free:g}", f"{what.gpu.total:g}"),
    ]
    lines = [table(("", _("FREE"), _("OF")), rows, paint), ""]
    limit = _("backend: {name}; at most {count} tasks for each cluster")
    lines.append(limit.format(name=what.backend, count=what.max_tasks))
    for label, value in (
        (_("images"), ", ".join(what.images)),
        (_("interpreter"), what.interpreter or ""),
        (_("data"), what.data_dir),
        (_("logs"), what.log_dir),
    ):
        if value:
            lines.append(_entry(label, value))
    return "\n".join([*lines, *(_("note: {note}").format(note=one_line(n)) for n in what.notes)])


def connect_help(cluster: TFCluster, paint: Paint = PLAIN) -> str:
    """Return the addresses of an In-Graph cluster, and the lines of Python that use them."""
    lines = [headline(cluster, paint)]
    for task_type, hosts in cluster.status.addresses.items():
        lines.append(f"  {task_type:<7} {', '.join(hosts)}")
    target = f"grpc://{cluster.status.addresses['worker'][0]}"
    name = cluster.metadata.name
    return "\n".join(
        [
            *lines,
            "",
            paint(_("in Python"), "bold"),
            "  from tfcluster_magic import Cluster",
            f'  cluster = Cluster("{name}")',
            "  cluster.strategy()                   # tf.distribute.ParameterServerStrategy",
            f"  cluster.session()                    # tf.compat.v1.Session on {target}",
        ]
    )


def last_line(cluster: TFCluster, paint: Paint = PLAIN) -> str:
    """Return the last line of a followed run."""
    state = cluster.status
    if state.phase is Phase.SUCCEEDED and state.started_at and state.finished_at:
        took = format_duration(state.finished_at - state.started_at)
        return f"{headline(cluster, paint)} {_('It took {time}.').format(time=took)}"
    return headline(cluster, paint)


# ---- for a page ----


def run_view(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    *,
    away: str = "",
    used: Sequence[TypeUsage] = (),
    whole: bool = False,
) -> dict[str, Any]:
    """Return a run as JSON-like data; with `whole`, it has all its events and addresses. `used` is
    what the tasks of an ended run used.
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

    The record takes precedence, but lists at most 20 tasks. Any other task has its observed state
    if the record's counts allow that, else None.
    """
    told = {task.name: task for task in cluster.status.attention}
    left = {t.value: _left(cluster, t.value, told) for t in cluster.spec.replicas.counts}
    rows = []
    for task in sorted(seen, key=lambda each: _rank(each.name)):
        known = told.get(task.name)
        state, message, since = _seen_state(task, left), "", task.since
        if known is not None:
            state, message = known.state, _told(known, cluster)[-1]
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
                "line": _telling_line(task),
                "printedAt": None if task.line is None else task.line.at,
            }
        )
    return rows


def _telling_line(task: SeenTask) -> str:
    """Return the last line of a task; an empty text if TensorFlow itself logged it, as on a
    parameter server that only waits.
    """
    text = "" if task.line is None else last_overwrite(task.line.text)
    return "" if is_tensorflow_log(text) else one_line(text)


def _seen_state(task: SeenTask, left: Mapping[str, Mapping[TaskState, int]]) -> TaskState | None:
    """Return the state of a task that the record does not list, if only one state is left over in
    the counts of its type; else None.
    """
    states = left[parse_task(task.name)[0].value]
    if len(states) == 1:
        return next(iter(states))
    if task.state is TaskState.FAILED and task.state not in states and TaskState.STOPPED in states:
        return TaskState.STOPPED  # the run ended it from outside
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
    # msgspec writes NaN and infinity as null: a diverged training has no value to draw
    return dict(msgspec.json.decode(msgspec.json.encode(data)))


def _without_files(cluster: TFCluster, whole: bool) -> TFCluster:
    spec, status = cluster.spec, cluster.status
    if spec.program is not None and spec.program.files is not None:
        spec = replace(spec, program=replace(spec.program, files=None))
    if not whole:
        status = replace(status, events=status.events[-1:], addresses={})
    return replace(cluster, spec=spec, status=status)


# HTML of a run in a notebook. All strings are escaped except the fixed ones.

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
    # not in a card that is updated live: the elapsed time would soon be wrong
    elapsed, mode = as_of is not None, mode_words(cluster.spec.mode)
    facts = _facts(cluster, as_of or time.time(), elapsed=elapsed, mode=mode)
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
    """Return `as of 2026-11-26 22:41 +0800`; the zone is for readers elsewhere."""
    when = time.strftime("%Y-%m-%d %H:%M %z", time.localtime(at))
    return _("as of {at}").format(at=when)


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
    printed = [line for line in failures[0].exit.last_lines if not is_tensorflow_log(line)]
    kept = tuple(strip_controls(line) for line in printed[-MOST_LAST_LINES:])
    return PrintedEnd(failures[0].task, kept) if kept else None


def _of_task(task: str) -> str:
    return _("last lines of {task}:").format(task=task)


def _readable_colour(phase: Phase) -> str:
    """Return the style of coloured text, which mixes the colour with the surrounding one for
    contrast.
    """
    if phase is Phase.STOPPED:
        return "opacity:.8"  # text in the border's colour would not be readable
    return f"color:color-mix(in srgb, {_COLOURS[phase]} 60%, currentColor)"


def tab_link(url: str, text: str) -> str:
    """Return a link that opens in a new tab."""
    return f'<a href="{escape(url)}" target="_blank" rel="noopener">{escape(text)}</a>'


# The MIME bundle has text and HTML, which state when their facts were read, and JSON, from which
# the Lab extension draws a live view (`kind` is its type, `at` its time). The JSON omits the
# program's files. Text and HTML are for readers of a stored notebook without extension and server,
# for example on nbviewer.

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
    """Return the bundle of `cluster`. `text` replaces its plain text; `notes` are further facts,
    and `used` is what the tasks of an ended run used.
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
    """Return the text of a run for a stored notebook: its time, and the last lines of a failed
    task.
    """
    beside = [f"{task_words(cluster)} · {_as_of(at)}", *map(one_line, notes)]
    if printed := last_lines(cluster):
        beside += [_of_task(printed.task), *(f"  {line}" for line in printed.lines)]
    text = launched(cluster, program="%tfcluster", beside=beside)
    return with_magic_commands(f"{text}\n{_since(cluster)}" if cluster.active else text)


def followed_bundle(cluster: TFCluster, tasks: Sequence[str], *, ended: bool) -> dict[str, Any]:
    """Return the bundle above the lines of a run that a cell follows. `ended`: all lines have come.

    When a page is opened again, the extension goes on with the lines unless `ended` is true.
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
    """Return the bundle of a TensorBoard at `url` for these runs; an empty list means all runs. The
    extension opens a tab through the server, because `url` works only on this machine.
    """
    return {
        "text/plain": f"{what}: {url}",
        "text/html": tab_link(url, what),
        MIME_TYPE: {"kind": "TensorBoard", "at": time.time(), "refs": list(runs), "folder": None},
    }
