"""`options`: what can be asked for, and what fits now."""

from __future__ import annotations

import click

from ..output import report
from ..output.documents import document
from . import grammar
from .terminal import Terminal
from .wording import Command


@click.command("options", cls=Command)
@grammar.output_option(("table", "json", "yaml"))
@grammar.backend_option
@click.pass_obj
def options_command(terminal: Terminal, form: str) -> None:
    """Say what a launch can ask for, and what fits now."""
    what = terminal.manager.options()
    if form == "table":
        terminal.say(report.options(what, terminal.paint))
    else:
        terminal.emit(document(what, form))
