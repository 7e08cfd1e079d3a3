"""The table of the tasks' usage and requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..i18n import _
from ..usage.summary import Rates, RunUsage, TaskUsage, advice_lines, memory_words, usage_lines
from .text import PLAIN, Paint, table

Order = Literal["cpu", "memory", "network", "disk", "gpu", "task"]
ORDERS: tuple[Order, ...] = ("cpu", "memory", "network", "disk", "gpu", "task")
_KEYS: dict[Order, Callable[[Rates], float]] = {
    "cpu": lambda each: each.cpu,
    "memory": lambda each: each.memory,
    "network": lambda each: each.received + each.sent,
    "disk": lambda each: each.read + each.written,
    "gpu": lambda each: each.gpu,
}


def graphs_link(
    dashboard: str, name: str, created_at: float, finished_at: float | None
) -> str | None:
    """Return the link to the graphs of a run from launch to end; None if there is no dashboard."""
    if not dashboard:
        return None
    # Show a minute more on both sides, because Prometheus's samples may be 30 s or more apart.
    margin = 60.0
    until = "now" if finished_at is None else f"{(finished_at + margin) * 1000:.0f}"
    return f"{dashboard}&var-run={name}&from={(created_at - margin) * 1000:.0f}&to={until}"


def _shown(task: TaskUsage, ended: bool) -> Rates | None:
    """Return the rates of a task to show: the current rates, or averages if the run has ended."""
    return task.average if ended else task.current


def in_order(usage: RunUsage, order: Order) -> list[TaskUsage]:
    """Return the tasks, with the largest usage of the resource `order` first and tasks of unknown
    usage last; for "task", in the order of their names.
    """
    if order == "task":
        return list(usage.tasks)
    key = _KEYS[order]

    def place(task: TaskUsage) -> float:
        rates = _shown(task, usage.ended)
        return 1.0 if rates is None else -key(rates)

    return sorted(usage.tasks, key=place)


def usage_table(
    usage: RunUsage, order: Order = "cpu", paint: Paint = PLAIN, most: int | None = None
) -> str:
    """Return a row for each task and a sentence for each type. Empty columns are left out."""
    told = [(task, _shown(task, usage.ended)) for task in in_order(usage, order)]
    if not any(rates for _task, rates in told) and not usage.types:
        return _("No task has been sampled yet.")
    columns: list[tuple[str, list[str]]] = [
        (_("TASK"), [task.name for task, _rates in told]),
        (_("CPU"), [_cpu(task, rates) for task, rates in told]),
        (_("THROTTLED"), [_percent(rates) for _task, rates in told]),
        (_("MEMORY"), [_memory(task, rates) for task, rates in told]),
        (_("PEAK"), [memory_words(t.memory_peak, None) if t.memory_peak else "" for t, _r in told]),
        (_("RECEIVED"), [_speed(rates.received if rates else None) for _task, rates in told]),
        (_("SENT"), [_speed(rates.sent if rates else None) for _task, rates in told]),
        (_("READ"), [_speed(rates.read if rates else None) for _task, rates in told]),
        (_("WRITTEN"), [_speed(rates.written if rates else None) for _task, rates in told]),
        (_("GPU"), [_gpu(task, rates) for task, rates in told]),
        (
            _("STEPS/S"),
            [f"{t.steps_per_second:.3g}" if t.steps_per_second else "" for t, _r in told],
        ),
    ]
    used = [(head, cells) for head, cells in columns if any(cells)]
    rows = [
        tuple(cell or "-" for cell in row)
        for row in zip(*(cells for _head, cells in used), strict=True)
    ]
    lines = [table([head for head, _cells in used], rows, paint, most)]
    if usage.ended:
        lines.append(_("The run has ended: these are averages."))
    lines += ["\n".join(usage_lines(usage)), "\n".join(advice_lines(usage))]
    return "\n\n".join(part for part in lines if part)


def _cpu(task: TaskUsage, rates: Rates | None) -> str:
    if rates is None:
        return ""
    if not task.cpu_requested:
        return f"{rates.cpu:.2f}"
    return _("{used} of {asked}").format(used=f"{rates.cpu:.2f}", asked=f"{task.cpu_requested:g}")


def _percent(rates: Rates | None) -> str:
    return f"{rates.throttled:.0%}" if rates and rates.throttled >= 0.005 else ""


def _memory(task: TaskUsage, rates: Rates | None) -> str:
    return "" if rates is None else memory_words(rates.memory, task.memory_requested)


def _speed(amount: float | None) -> str:
    """Return `1.2 MiB/s`; an empty text below 1 KiB a second."""
    if amount is None or amount < 1 << 10:
        return ""
    return f"{memory_words(amount, None)}/s" if amount >= 1 << 20 else f"{amount / 1024:.0f} KiB/s"


def _gpu(task: TaskUsage, rates: Rates | None) -> str:
    if rates is None or not (task.gpus_requested or rates.gpu or rates.gpu_memory):
        return ""
    used = f"{rates.gpu:.2f}"
    if task.gpus_requested:
        used = _("{used} of {asked}").format(used=used, asked=str(task.gpus_requested))
    return f"{used}, {memory_words(rates.gpu_memory, None)}"
