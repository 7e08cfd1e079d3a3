"""Reports of a run as text: after a launch, in `status` and in `list`.

The module `run_card` formats a run as JSON and HTML for pages.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Container, Mapping, Sequence

from ..backends.base import Options
from ..i18n import _, ngettext
from ..lifecycle import messages
from ..lifecycle.messages import exit_message, shown, shown_inferred
from ..quota import ledger
from ..spec import (
    AdvisedOption,
    Mode,
    Phase,
    Reclaimed,
    TaskFailure,
    TaskState,
    TaskStatus,
    TaskType,
    TFCluster,
)
from ..spec.message_table import format_duration
from ..spec.names import parse_task, task_name
from ..spec.quantities import format_bytes
from .text import (
    PLAIN,
    Paint,
    age,
    clock,
    cut,
    one_line,
    pad,
    table,
)

MOST_TASK_ROWS = 40
MOST_COLUMNS = 24
"""Maximum terminal columns of a run's display name or tags in a list."""
MOST_EVENTS = 10
LEAST_HOURS = 0.01
"""Threshold: CPU- or GPU-hours below this number are not shown."""


def replica_summary(cluster: TFCluster, mode: str = "") -> str:
    """Return the mode and tasks of a run: `between-graph · 2 workers, 1 ps`. If `mode` is not
    empty, it is shown in place of `between-graph` or `in-graph`.
    """
    counts = cluster.spec.replicas.counts
    parts = [task_count(t, n) for t, n in counts.items()]
    return f"{mode or cluster.spec.mode.value} · {', '.join(parts)}"


def mode_words(mode: Mode) -> str:
    """Return the mode of a run as the launch form names it. `modeWords` of the Lab extension does
    the same.
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
    """Return the translated label of the run's folder `key` (`output` or `logs`), padded to
    `columns`.
    """
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
    """Return the commands to type next, padded to the same width, each with its purpose."""
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
    """Return a text with all facts about one run. `notes` are lines about facts that are not in the
    record, such as the progress, or tasks that print nothing.
    """
    now = time.time() if now is None else now
    state = cluster.status
    about = [headline(cluster, paint), *annotation_lines(cluster), facts_line(cluster, now)]
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
    facts += [_entry(_("advised"), advised_words(each)) for each in _advised(cluster)]
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


def _advised(cluster: TFCluster) -> Sequence[AdvisedOption]:
    """Return the options of a run that were changed by advice on earlier runs of its schedule."""
    scheduled = cluster.metadata.scheduled
    return (scheduled.advised or ()) if scheduled is not None else ()


def advised_words(each: AdvisedOption) -> str:
    """Return the text about an option that advice changed: `--ps-cpu 1 → 1.5, because of nightly-2:
    ps-0 was throttled …`.
    """
    try:
        why = str(each.why)
    except LookupError:
        # a newer version of TFCluster wrote a message that this version does not know
        why = each.why.code
    text = _("{change}, because of {run}: {why}")
    return one_line(text.format(change=each.change, run=each.run, why=why))


def annotation_lines(cluster: TFCluster) -> list[str]:
    """Return the display name, tags and note of a run, one for each line, if they are set."""
    head = cluster.metadata
    lines = {
        _("display name: {name}"): {"name": one_line(head.display_name)},
        _("tags: {tags}"): {"tags": one_line(" ".join(head.tags))},
        _("note: {note}"): {"note": one_line(head.note)},
    }
    return [text.format(**value) for text, value in lines.items() if all(value.values())]


def facts_line(cluster: TFCluster, now: float, *, elapsed: bool = True, mode: str = "") -> str:
    """Return mode, tasks, times, hours and program of a run in one line."""
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
        program = cluster.spec.program
        parts.append(one_line(" ".join([program.source, shlex.join(program.arguments)]).strip()))
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
        rows += [task_row(told[n], cluster) for n in names if n in told]
        others = [n for n in names if n not in told]
        rows += _others(
            others, unlisted_states(cluster, task_type.value, told), cluster.status.restarts
        )
    return sorted(rows, key=lambda row: row_order(row[0]))


def row_order(name: str) -> tuple[int, int]:
    """Return the sort key of a row. If `name` lists several tasks, the first one counts."""
    task_type, index = parse_task(name.partition(" ")[0].rstrip(","))
    return list(TaskType).index(task_type), index


def task_row(task: TaskStatus, cluster: TFCluster) -> Row:
    """Return the row of a task: name, state, the state as text, restarts, message."""
    message = shown(task)
    if not message and task.exit is not None and task.state is TaskState.FAILED:
        failure = TaskFailure(task=task.name, attempt=1, exit=task.exit)
        message = exit_message(failure, cluster.spec).removeprefix(f"{task.name} ")
    return task.name, task.state, task.state.value, str(task.restarts), one_line(message)


def unlisted_states(
    cluster: TFCluster, kind: str, told: Mapping[str, TaskStatus]
) -> dict[TaskState, int]:
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
    """Return how many tasks run or have succeeded, and the total number of tasks. Reclaimed tasks
    do not count.
    """
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
    """Return `2 of 3 running`. For a run that succeeded, return `3 tasks finished`, and how many
    tasks still run, if any; for any other ended run, the number of tasks. `taskWords` of the Lab
    extension does the same.
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
