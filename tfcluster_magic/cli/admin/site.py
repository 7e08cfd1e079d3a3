"""The commands `admin override`, `hours`, `usage`, `storage` and `audit`: limits and usage of the
site.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from urllib.parse import quote

import click

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...output.documents import unused_table
from ...output.text import clock, one_line, table, zoned
from ...quota.ledger import GROUPINGS, Grouping, HoursRow
from ...spec import conversion
from ...spec.quantities import format_bytes, parse_duration
from .. import grammar
from ..group import Command
from ..runs import HOURS_FORMS, show_hours, window_options
from ..terminal import Terminal
from .hub_api import (
    FORMS,
    AdminGroup,
    HubAPI,
    document,
    hub_options,
    note_unreadable,
    page_options,
    show_page,
)


@click.group("override", cls=AdminGroup)
def override_command() -> None:
    """Override the group's limits for one user, for a time."""


@override_command.command("set", cls=Command)
@click.argument("user", metavar="USER")
@click.option("--cpu", type=float, help="cores of all tasks together")
@click.option("--memory", help="memory of all tasks together, such as 64Gi")
@click.option("--gpu", type=int, help="GPUs of all tasks together")
@click.option("--pods", type=int, help="number of tasks at the same time")
@click.option("--workspace", help="size of the claim `workspace`, such as 20Gi")
@click.option("--data", help="size of the claim `data`")
@click.option("--log", help="size of the claim `log`")
@click.option("--cpu-hours", type=float, help="CPU-hours within the budget's days")
@click.option("--gpu-hours", type=float, help="GPU-hours within the budget's days")
@click.option(
    "--until", required=True, help="2026-11-23, 2026-11-23T18:00 or a duration such as 24h"
)
@click.option("--reason", required=True, help="reason, shown to the user")
@hub_options
@click.pass_obj
def set_override_command(
    terminal: Terminal,
    /,
    user: str,
    until: str,
    reason: str,
    hub: str | None,
    token_file: str | None,
    **words: Any,
) -> None:
    """Set limits of USER until a time; all other limits stay those of the group."""

    def part(**keys: str) -> dict[str, Any]:
        return {key: words[word] for word, key in keys.items() if words[word] is not None}

    body = {
        "until": _parse_until(until),
        "reason": reason,
        "quota": part(cpu="cpu", memory="memory", gpu="gpu", pods="pods"),
        "storage": part(workspace="workspace", data="data", log="log"),
        "budget": part(cpu_hours="cpuHours", gpu_hours="gpuHours"),
    }
    told = HubAPI.of(hub, token_file).ask("PUT", f"overrides/{quote(user, safe='')}", body=body)
    when = zoned(told["override"]["until"])
    terminal.say(
        _("{user} has the override until {time}").format(user=one_line(told["user"]), time=when)
    )


@override_command.command("list", cls=Command)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def list_overrides_command(
    terminal: Terminal, form: str, hub: str | None, token_file: str | None
) -> None:
    """List the current overrides."""
    told = HubAPI.of(hub, token_file).ask("GET", "overrides")
    if form != "table":
        terminal.emit(document(told, form))
    elif told["items"]:
        head = (_("USER"), _("WHAT"), _("UNTIL"), _("WHO"), _("REASON"))
        rows = [_override_row(one["user"], one["override"]) for one in told["items"]]
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("There are no overrides."))


def _override_row(user: str, override: dict[str, Any]) -> tuple[str, ...]:
    words = {**override["quota"], **override["storage"], **override["budget"]}
    what = ", ".join(f"{key} {value}" for key, value in words.items())
    until = zoned(override["until"])
    return (
        one_line(user),
        one_line(what),
        until,
        one_line(override["by"]),
        one_line(override["reason"]),
    )


@override_command.command("clear", cls=Command)
@click.argument("user", metavar="USER")
@hub_options
@click.pass_obj
def clear_override_command(
    terminal: Terminal, user: str, hub: str | None, token_file: str | None
) -> None:
    """End the override of USER now."""
    HubAPI.of(hub, token_file).ask("DELETE", f"overrides/{quote(user, safe='')}")
    terminal.say(_("{user} has the limits of the group again").format(user=user))


def _parse_until(text: str) -> float:
    """Return the end of an override in Unix seconds. If `text` is a day, the override ends at the
    end of that day. Without an offset, `text` is in the time zone of this computer.
    """
    try:
        return time.time() + parse_duration(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        rule = _("write a day, a day and a time, or a duration: 2026-11-23, 2026-11-23T18:00, 24h")
        raise InvalidRequest(
            [Problem("--until", text, rule)], _("nothing was overridden")
        ) from None
    if len(text) == len("2026-11-23"):
        found = found.replace(hour=23, minute=59, second=59)
    return found.timestamp()


def _site_hours(
    words: dict[str, str], hub: str | None, token_file: str | None
) -> tuple[dict[str, Any], list[HoursRow]]:
    """Return the hub's answer about everyone's hours, and the rows in this answer."""
    asked = {key: text for key, text in words.items() if text}
    told = HubAPI.of(hub, token_file).ask("GET", "hours", asked)
    return told, conversion.convert(told["items"], list[HoursRow])


# `admin hours`


@click.command("hours", cls=Command)
@window_options
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="user",
    help="what each row sums up [user]",
)
@grammar.output_option(HOURS_FORMS)
@hub_options
@click.pass_obj
def hours_command(
    terminal: Terminal,
    first: str,
    last: str,
    by: Grouping,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Show the CPU- and GPU-hours that everyone's clusters have reserved, including deleted ones.

    Active clusters count until now. Days are in UTC, such as 2026-11-22.
    """
    words: dict[str, str] = {"by": by, "from": first, "to": last}
    told, rows = _site_hours(words, hub, token_file)
    show_hours(terminal, rows, by, form, {key: told[key] for key in words})
    note_unreadable(terminal, told)


# `admin usage`


@click.command("usage", cls=Command)
@window_options
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="user",
    help="what each row sums up [user]",
)
@grammar.output_option(HOURS_FORMS)
@hub_options
@click.pass_obj
def usage_command(
    terminal: Terminal,
    first: str,
    last: str,
    by: Grouping,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Show the CPU-hours that everyone's clusters have reserved but not used, most first.

    Only hours with measured use are compared: those of ended clusters, and on Kubernetes also those
    of active clusters, if metrics are available.
    """
    words: dict[str, str] = {"by": by, "from": first, "to": last, "sort": "unused"}
    told, rows = _site_hours(words, hub, token_file)
    about = {key: told[key] for key in words}
    show_hours(terminal, rows, by, form, about, unused_table)
    note_unreadable(terminal, told)


# `admin storage`


@click.command("storage", cls=Command)
@click.option("--filter", "text", help="only rows whose user, folder or path contains this text")
@click.option("--owner", help="only rows of this user")
@click.option("--full", is_flag=True, help="only folders that are at least 80 % full")
@page_options("-share")
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def storage_command(
    terminal: Terminal, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """Show how full everyone's folders are, and what the policy allows."""
    words["q"], words["full"] = words.pop("text"), "true" if words["full"] else None
    asked = {key: value for key, value in words.items() if value is not None}
    told = HubAPI.of(hub, token_file).ask("GET", "storage", asked)
    head = (_("USER"), _("FOLDER"), _("USED"), _("ALLOWED"), _("FULL"), _("MESSAGE"))
    none = _("Nothing matches.")
    show_page(terminal, told, form, head, _storage_row, none)


def _storage_row(row: dict[str, Any]) -> tuple[str, ...]:
    used, allowed = row["used"], row["allowed"]
    largest = ", ".join(f"{one['name']} {format_bytes(one['used'])}" for one in row["largest"][:3])
    known = used is not None and allowed is not None
    return (
        one_line(row["owner"]),
        one_line(row["name"]),
        "-" if used is None else ("≥" if row["atLeast"] else "") + format_bytes(used),
        "-" if allowed is None else format_bytes(allowed),
        f"{int(100 * row['share'])} %" if known else "-",
        one_line(row["note"] or largest),
    )


# `admin audit`


@click.command("audit", cls=Command)
@click.option(
    "--limit", type=grammar.Whole(1, 1000), default=100, help="maximum number of rows [100]"
)
@click.option("--export", is_flag=True, help="print the whole log as JSON lines, oldest first")
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
    """Show who changed what and who read whose log, newest first."""
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
            *(one_line(one[key]) for key in ("who", "what", "owner", "target", "result", "reason")),
        )
        for one in told["items"]
    ]
    if rows:
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("Nothing was done yet."))
