"""The commands `admin schedules`, `pause` and `resume`, for the schedules of all users."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from ...i18n import _
from ...output.schedules import marks
from ...output.text import one_line
from ...schedules import SCHEDULE_STATES, OccurrenceState
from .. import grammar
from ..group import Command
from ..runs import yes_option
from ..terminal import Terminal
from .hub_api import (
    FORMS,
    HubAPI,
    complete_names,
    hub_options,
    owner_and_schedule,
    page_options,
    show_page,
    tell_results,
)


def _complete_schedules(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """Return OWNER/SCHEDULE of each schedule; empty if the hub does not answer."""
    return complete_names(ctx, incomplete, "schedules", "state")


schedules_argument = click.argument(
    "schedules",
    metavar="OWNER/SCHEDULE...",
    nargs=-1,
    required=True,
    shell_complete=_complete_schedules,
)


@click.command("schedules", cls=Command)
@click.option(
    "--filter",
    "text",
    help="only rows whose owner, name, cron or reason of a pause contains this text",
)
@click.option("--owner", help="only rows of this user")
@click.option(
    "--state",
    type=click.Choice(SCHEDULE_STATES),
    multiple=True,
    help="only schedules in this state; repeatable",
)
@page_options("owner")
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def schedules_command(
    terminal: Terminal, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """List the schedules of everyone: when each is due next, and who paused it."""
    words["q"] = words.pop("text")
    asked = {key: value for key, value in words.items() if value not in (None, ())}
    told = HubAPI.of(hub, token_file).ask("GET", "schedules", asked)
    head = (_("OWNER"), _("NAME"), _("CRON"), _("ZONE"), _("NEXT"), _("LAST TEN"), _("STATE"))
    none = _("No schedule matches.") if told["all"] else _("There are no schedules.")
    show_page(terminal, told, form, head, lambda row: _row(terminal, row), none)


def _row(terminal: Terminal, row: dict[str, Any]) -> tuple[str, ...]:
    last = [OccurrenceState(each["state"]) for each in row["marks"]]
    return (
        one_line(row["owner"]),
        one_line(row["name"]),
        one_line(row["cron"]),
        one_line(row["timeZone"]),
        row["next"] or "-",
        marks(last, terminal.paint),
        one_line(_standing(row)),
    )


def _standing(row: dict[str, Any]) -> str:
    """Return the state of a schedule: who paused it and why, or the problem that it has."""
    if row["state"] == "Active":
        return _("active")
    if row["state"] == "Invalid":
        return _("does not work: {why}").format(why=row["reason"])
    word = _("paused by {by}").format(by=row["by"]) if row["by"] else _("paused")
    if not row["reason"]:
        return word
    return _("{label}: {value}").format(label=word, value=row["reason"])


@click.command("pause", cls=Command)
@schedules_argument
@click.option("--reason", required=True, help="reason, shown to each owner")
@yes_option
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def pause_command(
    terminal: Terminal,
    schedules: tuple[str, ...],
    reason: str,
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Pause any user's schedules, with a reason that each owner sees. Runs go on.

    Only an administrator can resume them.
    """
    meant = [{"owner": owner, "name": name} for owner, name in map(owner_and_schedule, schedules)]
    api = HubAPI.of(hub, token_file)
    action = _("pause {names}").format(names=", ".join(schedules))
    if not terminal.confirm(action, yes):
        terminal.note(_("nothing was paused"))
        return
    told = api.ask("POST", "schedules/pause", body={"schedules": meant, "reason": reason})
    tell_results(terminal, told, form, _("{name} is paused"))


@click.command("resume", cls=Command)
@schedules_argument
@click.option("--reason", default="", help="reason, for the audit log")
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def resume_command(
    terminal: Terminal,
    schedules: tuple[str, ...],
    reason: str,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Resume schedules that an administrator paused."""
    meant = [{"owner": owner, "name": name} for owner, name in map(owner_and_schedule, schedules)]
    body = {"schedules": meant, "reason": reason}
    told = HubAPI.of(hub, token_file).ask("POST", "schedules/resume", body=body)
    tell_results(terminal, told, form, _("{name} is resumed"))
