"""`connect` and `tensorboard`: get at what a run offers."""

from __future__ import annotations

import click

from ..errors import UsageError
from ..i18n import _
from ..spec import TFCluster
from . import grammar
from .terminal import Terminal
from .wording import Command


@click.command("connect", cls=Command)
@grammar.ref_argument()
@click.option(
    "--timeout", type=grammar.Duration(), default=60.0, help="wait this long for it [60s]"
)
@grammar.backend_option
@click.pass_obj
def connect_command(terminal: Terminal, ref: str, timeout: float) -> TFCluster:
    """Say how to use the In-Graph cluster REF; in a notebook, return its handle.

    In a notebook: cluster = %tfcluster connect REF, then cluster.target or cluster.strategy().
    """
    with terminal.detaching(ref):
        cluster = terminal.manager.reachable(ref, timeout)
    terminal.connected(cluster)
    return cluster


@click.command("tensorboard", cls=Command)
@grammar.ref_argument(required=False, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="every run in the log folder")
@click.option("--stop", is_flag=True, help="end it instead; without REF every one that runs")
@grammar.backend_option
@click.pass_obj
def tensorboard_command(
    terminal: Terminal, refs: tuple[str, ...], everything: bool, stop: bool
) -> None:
    """Open TensorBoard on the runs REF…, beside each other, or on all runs.

    It ends by itself when nobody used it for half an hour.
    """
    if refs and everything:
        raise UsageError(_("tensorboard: name a run or say --all, not both"))
    boards = terminal.manager.boards
    if stop and not refs and not everything:
        for shown in (ended := boards.stop()):
            terminal.say(_("TensorBoard of {name} has ended").format(name=shown))
        if not ended:
            terminal.say(_("No TensorBoard is running."))
        return
    view = boards.view(*refs)
    what = (
        _("TensorBoard of {name}").format(name=", ".join(view.runs))
        if view.runs
        else _("TensorBoard of all runs")
    )
    if stop:
        ended = boards.stop([view.folder])
        text = _("{what} has ended") if ended else _("{what} does not run")
        terminal.say(text.format(what=what))
        return
    terminal.board(boards.open(view).url, what, view)
