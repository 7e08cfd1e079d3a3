"""`admin override`: what one user may have for a time."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from urllib.parse import quote

import click

from ...errors import InvalidRequest, Problem
from ...i18n import _
from ...output.text import clean, table
from ...spec.quantities import parse_duration
from .. import grammar
from ..terminal import Terminal
from ..wording import Command
from .common import FORMS, Group, document, hub_options
from .hub_api import HubAPI


@click.group("override", cls=Group)
def override_command() -> None:
    """Allow one user something else than their group has, for a time."""


@override_command.command("set", cls=Command)
@click.argument("user", metavar="USER")
@click.option("--cpu", type=float, help="cores of all tasks at once")
@click.option("--memory", help="memory of all tasks at once, such as 64Gi")
@click.option("--gpu", type=int, help="GPUs of all tasks at once")
@click.option("--pods", type=int, help="tasks at once")
@click.option("--workspace", help="size of the claim workspace, such as 20Gi")
@click.option("--data", help="size of the claim data")
@click.option("--log", help="size of the claim log")
@click.option("--cpu-hours", type=float, help="CPU-hours within the budget's days")
@click.option("--gpu-hours", type=float, help="GPU-hours within the budget's days")
@click.option("--until", required=True, help="2026-11-23, 2026-11-23T18:00 or a duration, as 24h")
@click.option("--reason", required=True, help="why; the user reads it")
@hub_options
@click.pass_obj
def set_command(
    terminal: Terminal,
    /,
    user: str,
    until: str,
    reason: str,
    hub: str | None,
    token_file: str | None,
    **words: Any,
) -> None:
    """Set what USER may have until a time; what is not said stays as the group has it."""

    def part(**keys: str) -> dict[str, Any]:
        return {key: words[word] for word, key in keys.items() if words[word] is not None}

    body = {
        "until": _time(until),
        "reason": reason,
        "quota": part(cpu="cpu", memory="memory", gpu="gpu", pods="pods"),
        "storage": part(workspace="workspace", data="data", log="log"),
        "budget": part(cpu_hours="cpuHours", gpu_hours="gpuHours"),
    }
    told = HubAPI.of(hub, token_file).ask("PUT", f"overrides/{quote(user, safe='')}", body=body)
    when = _clock(told["override"]["until"])
    terminal.say(_("{user} has it until {time}").format(user=clean(told["user"]), time=when))


@override_command.command("list", cls=Command)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def list_command(terminal: Terminal, form: str, hub: str | None, token_file: str | None) -> None:
    """List the overrides that count now."""
    told = HubAPI.of(hub, token_file).ask("GET", "overrides")
    if form != "table":
        terminal.emit(document(told, form))
    elif told["items"]:
        head = (_("USER"), _("WHAT"), _("UNTIL"), _("WHO"), _("REASON"))
        rows = [_row(one["user"], one["override"]) for one in told["items"]]
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("There are no overrides."))


def _row(user: str, override: dict[str, Any]) -> tuple[str, ...]:
    words = {**override["quota"], **override["storage"], **override["budget"]}
    what = ", ".join(f"{key} {value}" for key, value in words.items())
    until = _clock(override["until"])
    return clean(user), clean(what), until, clean(override["by"]), clean(override["reason"])


@override_command.command("clear", cls=Command)
@click.argument("user", metavar="USER")
@hub_options
@click.pass_obj
def clear_command(terminal: Terminal, user: str, hub: str | None, token_file: str | None) -> None:
    """End the override of USER now."""
    HubAPI.of(hub, token_file).ask("DELETE", f"overrides/{quote(user, safe='')}")
    terminal.say(_("{user} has what the group has").format(user=user))


def _time(text: str) -> float:
    """When that is, in Unix seconds; a day counts to its end."""
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


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
