"""`list` and `status`: which runs there are, and how one is doing."""

from __future__ import annotations

import click

from ..i18n import _
from ..output import report
from ..output.documents import document
from ..runs.manager import newest
from ..spec import Mode, Phase, TFCluster
from . import grammar
from .terminal import Terminal
from .wording import Command


@click.command("list", cls=Command)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("-a", "--all", "all_runs", is_flag=True, help="earlier runs of each name, too")
@click.option("--active", is_flag=True, help="only runs that have not ended")
@click.option(
    "--phase",
    type=click.Choice([p.value for p in Phase]),
    multiple=True,
    help="only runs in this phase; repeatable",
)
@click.option("--mode", type=click.Choice([m.value for m in Mode]), help="only runs of this mode")
@grammar.output_option()
@grammar.backend_option
@click.pass_obj
def list_command(
    terminal: Terminal,
    names: tuple[str, ...],
    all_runs: bool,
    active: bool,
    phase: tuple[str, ...],
    mode: str | None,
    form: str,
) -> None:
    """List the active runs and the newest run of each name, newest first."""
    everything = terminal.manager.list(names, all_runs=True)
    clusters = [
        c
        for c in (everything if all_runs else newest(everything))
        if (not active or c.active)
        and (not phase or c.status.phase.value in phase)
        and (mode is None or c.spec.mode.value == mode)
    ]
    if form != "table":
        if clusters or form != "name":
            terminal.emit(document(clusters, form))
        return
    if clusters:
        terminal.say(report.listing(clusters, terminal.paint, most=terminal.columns))
    elif everything:
        terminal.say(_("No run fits. `tfcluster list --all` shows every run."))
    else:
        terminal.say(
            _(
                "No runs yet. `tfcluster launch train.py` starts one; "
                "`tfcluster launch --help` says more."
            )
        )
    hidden = len(everything) - len(clusters)
    if clusters and hidden:
        terminal.note(_("{count} more with `tfcluster list --all`").format(count=hidden))
    terminal.note_outage(clusters)


@click.command("status", cls=Command)
@grammar.ref_argument()
@click.option("-f", "--follow", is_flag=True, help="go on until the run has ended")
@grammar.output_option()
@grammar.backend_option
@click.pass_obj
def status_command(terminal: Terminal, ref: str, follow: bool, form: str) -> None:
    """Say how REF is doing: in one sentence, then task by task."""
    cluster = terminal.manager.status(ref)
    if not follow:
        _show(terminal, cluster, form)
        for text in terminal.manager.left() if form == "table" and cluster.active else ():
            terminal.note(text)
        return
    with terminal.detaching(cluster.metadata.name):
        for change in terminal.manager.follow(cluster.metadata.name):
            cluster = change or cluster
            if form == "table":
                terminal.live(cluster, _text(terminal, cluster))
            elif change is not None:
                terminal.emit(document(cluster, form))
            if cluster.status.released_at is not None:
                break
    if form == "table":
        terminal.finished(cluster)


def _show(terminal: Terminal, cluster: TFCluster, form: str) -> None:
    terminal.emit(document(cluster, form) if form != "table" else _text(terminal, cluster))


def _text(terminal: Terminal, cluster: TFCluster) -> str:
    notes = terminal.manager.notes(cluster)
    return report.status(cluster, terminal.paint, notes, most=terminal.columns)
