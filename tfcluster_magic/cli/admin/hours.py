"""`admin hours`: who held how many CPU- and GPU-hours."""

from __future__ import annotations

import click
import msgspec

from ...quota.ledger import WAYS, By, Row
from .. import grammar
from ..hours import FORMS, show, window_options
from ..terminal import Terminal
from ..wording import Command
from .common import hub_options, note_missed
from .hub_api import HubAPI


@click.command("hours", cls=Command)
@window_options
@click.option(
    "--by", type=click.Choice(WAYS), default="user", help="a row for each of these [user]"
)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def hours_command(
    terminal: Terminal,
    first: str,
    last: str,
    by: By,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Say how many CPU- and GPU-hours everyone's clusters have held, deleted ones too.

    Clusters that have not ended count until now. Days are those of UTC, such as 2026-11-22.
    """
    words = {"by": by, "from": first, "to": last}
    asked = {key: text for key, text in words.items() if text}
    told = HubAPI.of(hub, token_file).ask("GET", "hours", asked)
    rows = msgspec.convert(told["items"], list[Row])
    show(terminal, rows, by, form, {key: told[key] for key in words})
    note_missed(terminal, told)
