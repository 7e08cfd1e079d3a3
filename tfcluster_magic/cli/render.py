"""`render`: a run, or a launch that is only planned, as documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import grammar
from .terminal import Terminal


@click.command("render", cls=grammar.LaunchCommand)
@click.argument("target", metavar="[REF | PROGRAM]", required=False)
@grammar.launch_options
@click.option("--name", help="name of the cluster [from the program]")
@click.option("--sha256", help="checksum that a program from a URL must have")
@click.option("-f", "--file", type=click.Path(), help="cluster file in YAML; options go before it")
@grammar.backend_option
@click.pass_context
def render_command(ctx: click.Context, /, **words: Any) -> None:
    """Print the record of REF, or of a launch with these options, and each task as it is run.

    The output is YAML: the TFCluster, then one document for each task with its command,
    environment and TF_CONFIG. Nothing is created. A port that is not known yet is a word.
    """
    terminal: Terminal = ctx.obj
    target, manager = words.pop("target"), terminal.manager
    asked = {key: words.pop(key) for key in ("name", "sha256", "file")}
    asked |= {"arguments": grammar.arguments_of(ctx) or (), "cell": terminal.cell}
    options = grammar.given(words)
    is_program = (
        target is None or "://" in target or Path(target).exists() or options or asked["file"]
    )
    if is_program:
        cluster = manager.plan(program=target, **asked, **options).cluster
    else:
        cluster = manager.status(target)
    terminal.emit(manager.render(cluster))
