"""`admin storage`: what lies in everyone's folders or claims."""

from __future__ import annotations

from typing import Any

import click

from ...i18n import _
from ...output.text import clean
from ...spec.quantities import format_bytes
from .. import grammar
from ..terminal import Terminal
from ..wording import Command
from .common import FORMS, hub_options, page_options, show
from .hub_api import HubAPI


@click.command("storage", cls=Command)
@click.option("--filter", "text", help="only where user, folder or path has this")
@click.option("--owner", help="only of this user")
@click.option("--full", is_flag=True, help="only what is full to 80 % or more")
@page_options("-share")
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def storage_command(
    terminal: Terminal, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """Say how full everyone's folders are, beside what the policy allows."""
    words["q"], words["full"] = words.pop("text"), "true" if words["full"] else None
    asked = {key: value for key, value in words.items() if value is not None}
    told = HubAPI.of(hub, token_file).ask("GET", "storage", asked)
    head = (_("USER"), _("FOLDER"), _("USED"), _("ALLOWED"), _("FULL"), _("MESSAGE"))
    none = _("Nothing fits.")
    show(terminal, told, form, head, _row, none)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    used, allowed = row["used"], row["allowed"]
    largest = ", ".join(f"{one['name']} {format_bytes(one['used'])}" for one in row["largest"][:3])
    known = used is not None and allowed is not None
    return (
        clean(row["owner"]),
        clean(row["name"]),
        "-" if used is None else ("≥" if row["atLeast"] else "") + format_bytes(used),
        "-" if allowed is None else format_bytes(allowed),
        f"{int(100 * row['share'])} %" if known else "-",
        clean(row["note"] or largest),
    )
