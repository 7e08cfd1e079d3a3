"""`hours`: CPU- and GPU-hours that one's runs have held, and what is left of the budget."""

from __future__ import annotations

import json
import time
from typing import Any

import click
import msgspec

from ..i18n import _
from ..output import hours
from ..output.documents import to_yaml
from ..quota import budgets, ledger
from ..quota.ledger import By, Row
from . import grammar
from .terminal import Terminal
from .wording import Command

FORMS = ("table", "json", "yaml", "csv")
WEEK = 7


def window_options(command: grammar.F) -> grammar.F:
    """`--from`, `--to`: which days."""
    for option in (
        click.option("--to", "last", metavar="DAY", default="", help="the last day [today, UTC]"),
        click.option("--from", "first", metavar="DAY", default="", help="the first [a week]"),
    ):
        command = option(command)
    return command


@click.command("hours", cls=Command)
@window_options
@click.option(
    "--by",
    type=click.Choice(["cluster", "day", "group"]),
    default="cluster",
    help="a row for each of these [cluster]",
)
@grammar.output_option(FORMS)
@grammar.backend_option
@click.pass_obj
def hours_command(terminal: Terminal, first: str, last: str, by: By, form: str) -> None:
    """Say how many CPU- and GPU-hours your runs have held, deleted ones too.

    Runs that have not ended count until now. Days are those of UTC, such as 2026-11-22.
    """
    now = time.time()
    account = terminal.manager.hours()
    days = account.budget.days if account.budget else WEEK
    first, last = budgets.days_asked(first, last, days, now)
    rows = ledger.rows({"": account.days}, first, last, by)
    more = {"budget": msgspec.to_builtins(account.budget)} if account.budget else {}
    show(terminal, rows, by, form, {"from": first, "to": last, "by": by, **more})
    if form == "table":
        for text in ledger.left(account, now):
            terminal.say(text)


def show(terminal: Terminal, rows: list[Row], by: By, form: str, about: dict[str, Any]) -> None:
    """Rows in the form that was asked for."""
    if form == "csv":
        terminal.emit(hours.as_csv(rows, by))
    elif form != "table":
        told = {**about, "items": [msgspec.to_builtins(row) for row in rows]}
        text = json.dumps(told, indent=2, ensure_ascii=False)
        terminal.emit(text if form == "json" else to_yaml(told))
    elif rows:
        terminal.emit(hours.shown(rows, by, terminal.paint, terminal.columns))
    else:
        text = _("Nothing was held from {first} to {last}.")
        terminal.say(text.format(first=about["from"], last=about["to"]))
