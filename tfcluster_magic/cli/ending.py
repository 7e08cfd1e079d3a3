"""`stop` and `delete`: end a run, and remove what it left."""

from __future__ import annotations

import click

from ..errors import UsageError
from ..i18n import _
from ..output import report
from ..runs.waiting import Until
from ..spec import TFCluster
from . import grammar
from .terminal import Terminal
from .wording import Command

YES = click.option("-y", "--yes", is_flag=True, help="do not ask")


@click.command("stop", cls=Command)
@grammar.ref_argument(required=False, nargs=-1)
@click.option("--all", "every", is_flag=True, help="every run that still holds tasks")
@click.option("--reason", help="why, for the record")
@click.option("--no-wait", is_flag=True, help="return at once")
@YES
@grammar.backend_option
@click.pass_obj
def stop_command(
    terminal: Terminal,
    refs: tuple[str, ...],
    every: bool,
    reason: str | None,
    no_wait: bool,
    yes: bool,
) -> None:
    """End the runs REF…; their records, output and checkpoints stay."""
    manager = terminal.manager
    clusters = _chosen(terminal, refs, every)
    names = [c.metadata.name for c in clusters]
    action = _("stop {names}").format(names=", ".join(names))
    if every and names and not terminal.confirm(action, yes, "stop --all"):
        terminal.note(_("nothing was stopped"))
        return
    for name in names:
        manager.stop(name, reason)
    for before in clusters:
        name = before.metadata.name
        if no_wait:
            terminal.say(report.headline(manager.status(name), terminal.paint))
            continue
        with terminal.detaching(name, _("{name} is being stopped all the same").format(name=name)):
            after = manager.wait(name, until=Until.RELEASED, on_change=terminal.changed)
        ended = "" if before.active else _("it had already ended")
        if before.status.released_at is None and after.status.reclaimed is not None:
            ended = report.reclaimed(after.status.reclaimed)
        terminal.say(report.headline(after, terminal.paint) + (f" ({ended})" if ended else ""))


def _chosen(terminal: Terminal, refs: tuple[str, ...], every: bool) -> list[TFCluster]:
    """The runs that are meant, each once, all of them known before anything is done."""
    if bool(refs) == every:
        raise UsageError(_("stop: name the runs, or say --all"))
    if not every:
        return _each(terminal, refs)
    clusters = [c for c in terminal.manager.list(all_runs=True) if c.status.released_at is None]
    if not clusters:
        terminal.say(_("Nothing is running."))
    return clusters


def _each(terminal: Terminal, refs: tuple[str, ...]) -> list[TFCluster]:
    clusters = [terminal.manager.status(ref) for ref in refs]
    return list({c.metadata.name: c for c in clusters}.values())


@click.command("delete", cls=Command)
@grammar.ref_argument(nargs=-1)
@click.option("--with-logs", is_flag=True, help="its folder of logs and checkpoints, too")
@YES
@grammar.backend_option
@click.pass_obj
def delete_command(terminal: Terminal, refs: tuple[str, ...], with_logs: bool, yes: bool) -> None:
    """Remove the records of the runs REF…; a run that is active is stopped first."""
    clusters = _each(terminal, refs)
    active = [c.metadata.name for c in clusters if c.active]
    names = ", ".join(c.metadata.name for c in clusters)
    actions = [_("stop {names}").format(names=", ".join(active))] if active else []
    actions.append(_("delete {names}").format(names=names))
    if with_logs:
        folders = [c.status.paths["output"] for c in clusters if "output" in c.status.paths]
        actions.append(
            _("remove the output and checkpoints in {folders}").format(folders=", ".join(folders))
        )
    words = " ".join(["delete", *refs, *(["--with-logs"] if with_logs else [])])
    asks = bool(active) or with_logs
    if asks and not terminal.confirm(_(", ").join(actions), yes, words):
        terminal.note(_("nothing was deleted"))
        return
    for cluster in clusters:
        name = cluster.metadata.name
        goes_on = _("{name} is being stopped, and its record is still there").format(name=name)
        with terminal.detaching(name, goes_on):
            terminal.manager.delete(name, with_logs=with_logs)
        terminal.say(_("deleted {name}").format(name=name))
