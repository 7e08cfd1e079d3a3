"""`admin audit`: who did what."""

from __future__ import annotations

import click

from ...i18n import _
from ...output.text import clean, clock, table
from .. import grammar
from ..terminal import Terminal
from ..wording import Command
from .common import FORMS, document, hub_options
from .hub_api import HubAPI


@click.command("audit", cls=Command)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="at most so many [100]")
@click.option("--export", is_flag=True, help="the whole log as it is, JSON lines, oldest first")
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def audit_command(
    terminal: Terminal,
    limit: int,
    export: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Show who changed what, and who looked into whose log, newest first."""
    api = HubAPI.of(hub, token_file)
    if export:
        terminal.emit(api.raw("GET", "audit/export").decode().rstrip("\n"))
        return
    told = api.ask("GET", "audit", {"limit": limit})
    if form != "table":
        terminal.emit(document(told, form))
        return
    head = (_("WHEN"), _("WHO"), _("WHAT"), _("WHOSE"), _("WHICH"), _("RESULT"), _("REASON"))
    rows = [
        (
            clock(one["at"], seconds=True),
            *(clean(one[key]) for key in ("who", "what", "owner", "target", "result", "reason")),
        )
        for one in told["items"]
    ]
    if rows:
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("Nothing was done yet."))
