"""The commands `logs`, which prints the output of all tasks as one stream, and `stack`."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext

import click

from ..backends.base import every_line
from ..errors import TensorFlowLog, TFClusterError, WaitTimeout, are_program_lines
from ..i18n import _, ngettext
from ..output import report
from ..output.documents import document
from ..output.text import PLAIN, Prefixer, printed_at, task_names
from ..spec import TFCluster
from ..usage.stacks import stack_text
from . import grammar
from .group import Command
from .terminal import Terminal

_LOOK_EVERY = 0.5  # seconds between status reads while output is printed


def _complete_tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the run's tasks."""
    terminal = ctx.find_object(Terminal) or Terminal()
    try:
        names = task_names(terminal.manager.status(ctx.params["ref"]))
    except (TFClusterError, KeyError):
        return []
    return [name for name in names if name.startswith(incomplete)]


@click.command("logs", cls=Command)
@grammar.ref_argument()
@click.argument("tasks", metavar="[TASK]...", nargs=-1, shell_complete=_complete_tasks)
@click.option("-f", "--follow", is_flag=True, help="keep printing until the run has ended")
@click.option(
    "--tail", type=grammar.Whole(min=0), help="only this many last lines of each task [all]"
)
@click.option("-t", "--timestamps", is_flag=True, help="start each line with its time")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="also show TensorFlow's own log lines"
)
@click.option("--no-prefix", is_flag=True, help="all lines exactly as the tasks printed them")
@click.option("--no-color", is_flag=True, help="no colours, as with NO_COLOR=1")
@grammar.backend_option
@click.pass_obj
def logs_command(
    terminal: Terminal,
    /,
    ref: str,
    tasks: tuple[str, ...],
    follow: bool,
    tail: int | None,
    everything: bool,
    **look: bool,
) -> None:
    """Show the output of REF's tasks in order of time: all tasks, or the named ones.

    On Kubernetes the whole logs of more than 16 tasks are printed task by task; with --tail or
    --follow they are in order of time.

    Log lines of TensorFlow's C++ code (levels I and W) are hidden, and counted.

    A terminal gets the text with its colours, but no other control sequences. A pipe gets no
    colours, but with --no-prefix every byte.

    \b
    Examples:
      tfcluster logs -f digits
      tfcluster logs --tail 20 digits-2 worker-0 ps-0
    """  # noqa: D301 - click interprets \b
    cluster = terminal.manager.status(ref)
    prefix, colour = not look["no_prefix"], not look["no_color"]
    show = {"tasks": tasks, "tail": tail, "prefix": prefix, "colour": colour}
    show |= {"tensorflow_logs": everything or not prefix, "timestamps": look["timestamps"]}
    if follow:
        with terminal.detaching(cluster.metadata.name):
            follow_output(terminal, cluster, **show)  # type: ignore[arg-type]
        terminal.note(report.last_line(terminal.manager.status(cluster.metadata.name)))
    else:
        follow_output(terminal, cluster, follow=False, **show)  # type: ignore[arg-type]


def follow_output(
    terminal: Terminal,
    cluster: TFCluster,
    *,
    tasks: Sequence[str] = (),
    tail: int | None = None,
    prefix: bool = True,
    colour: bool = True,
    timestamps: bool = False,
    tensorflow_logs: bool = False,
    follow: bool = True,
    deadline: float | None = None,
) -> None:
    """Print the output of a run; with `follow`, continue until the run ends.

    TensorFlow's own log lines are shown only with `tensorflow_logs`.

    Raises:
        WaitTimeout: the run did not end before `deadline` (monotonic seconds).
    """
    name = cluster.metadata.name
    show = Prefixer(tasks or task_names(cluster), terminal.paint if colour else PLAIN, prefix)
    look, hidden, raw = 0.0, 0, not prefix
    logs: defaultdict[str, TensorFlowLog] = defaultdict(TensorFlowLog)
    counts = every_line if tensorflow_logs else are_program_lines
    lines = terminal.manager.logs(name, tasks, follow=follow, tail=tail, counts=counts)
    with terminal.following(cluster, tasks) if follow else nullcontext():
        for line in lines:
            if line is None:
                sys.stdout.flush()
            elif tensorflow_logs or not logs[line.task].hides(line.text):
                at = printed_at(line) if timestamps else ""
                terminal.emit(f"{at}{show(line)}", raw=raw)
            else:
                hidden += 1
            if follow and time.monotonic() >= look:
                terminal.changed(terminal.manager.status(name))
                look = time.monotonic() + _LOOK_EVERY
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeout(
                    _("the wait for {name} timed out; the run continues").format(name=name)
                )
        sys.stdout.flush()
    if hidden:
        told = ngettext(
            "{count} TensorFlow log line hidden: `tfcluster logs --all {name}`",
            "{count} TensorFlow log lines hidden: `tfcluster logs --all {name}`",
            hidden,
        ).format(count=hidden, name=name)
        terminal.note(terminal.words(told))


@click.command("stack", cls=Command)
@grammar.ref_argument()
@click.argument("tasks", metavar="[TASK]...", nargs=-1, shell_complete=_complete_tasks)
@grammar.output_option(("table", "json", "yaml"))
@grammar.backend_option
@click.pass_obj
def stack_command(terminal: Terminal, ref: str, tasks: tuple[str, ...], form: str) -> None:
    """Show the Python stack of every thread of REF's tasks: of all, or of the named ones.

    Use it when a program hangs. TFCluster's hook in each process answers a signal within a few
    seconds. A process is listed without stacks if it is not Python, if it has replaced the signal
    handler, or if it is computing: reading its stacks could crash it then.

    \b
    Example:
      tfcluster stack digits worker-1
    """  # noqa: D301 - click interprets \b
    with terminal.detaching(ref):
        found = terminal.manager.stack(ref, tasks)
    terminal.emit(stack_text(found) if form == "table" else document(found, form))
