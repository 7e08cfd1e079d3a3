"""`connect` and `tensorboard`: get at what a run offers."""

from __future__ import annotations

import click

from ..errors import UsageError
from ..models import TFCluster
from . import grammar
from .terminal import Terminal


@click.command("connect")
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


@click.command("tensorboard")
@grammar.ref_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="every run in the log folder")
@grammar.backend_option
@click.pass_obj
def tensorboard_command(terminal: Terminal, ref: str | None, everything: bool) -> None:
    """Open TensorBoard on the run REF, or on all runs."""
    if ref and everything:
        raise UsageError("tensorboard: name a run or say --all, not both")
    board = terminal.manager.tensorboard(ref)
    terminal.link(board.url, f"TensorBoard of {ref or 'all runs'}")
