"""`admin users` and `admin servers`: who is there, a class that comes, servers."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import click

from ...errors import UsageError
from ...i18n import _
from ...output.text import age, clean, spreadsheet_cell
from ...spec.quantities import format_bytes
from .. import grammar
from ..ending import YES
from ..terminal import Terminal
from ..wording import Command
from .archives import archive_command, archives_command, delete_command
from .common import FORMS, Group, document, hub_options, page_options, show
from .hub_api import HubAPI


@click.group("users", cls=Group, invoke_without_command=True)
@click.option("--filter", "text", help="only where name, group or account has this")
@click.option("--group", help="only of this group")
@click.option(
    "--server",
    type=click.Choice(["running", "starting", "stopping", "stopped"]),
    multiple=True,
    help="only whose server is so; repeatable",
)
@page_options("name")
@grammar.output_option(FORMS)
@hub_options
@click.pass_context
def users_command(
    context: click.Context, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """List everybody: groups, last seen, server, what they ask for and may have."""
    if context.invoked_subcommand is not None:
        return
    terminal: Terminal = context.obj
    words["q"] = words.pop("text")
    asked = {key: value for key, value in words.items() if value not in (None, ())}
    told = HubAPI.of(hub, token_file).ask("GET", "users", asked)
    head = (
        _("NAME"),
        _("GROUPS"),
        _("SEEN"),
        _("SERVER"),
        _("CLUSTERS"),
        "CPU",
        _("MEMORY"),
        "GPU",
        _("STORAGE"),
        _("OVERRIDE"),
    )
    none = _("No user fits.") if told["all"] else _("There are no users.")
    show(terminal, told, form, head, _row, none)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    name = clean(row["name"]) + (" *" if row["admin"] else "")
    groups = [f"[{group}]" if group == row["group"] else group for group in row["groups"]]
    used, allowed, override = row["used"], row["allowed"], row["override"]
    shown = {
        key: _part(used[key], allowed[key], show)
        for key, show in (
            ("cpu", "{:g}".format),
            ("memory", format_bytes),
            ("gpu", "{:g}".format),
            ("storage", format_bytes),
        )
    }
    until = ""
    if override:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(override["until"]))
        until = _("until {time}: {reason}").format(time=when, reason=clean(override["reason"]))
    return (
        name,
        clean(", ".join(groups)) or "-",
        age(time.time() - row["lastSeen"]) if row["lastSeen"] else "-",
        row["server"],
        str(row["clusters"]),
        *shown.values(),
        until,
    )


def _part(used: float | None, allowed: float | None, show: Any) -> str:
    text = "-" if used is None else show(used)
    return text if allowed is None else f"{text}/{show(allowed)}"


@users_command.command("import", cls=Command)
@click.argument("file", metavar="CSV", type=click.Path())
@click.option("--group", default="", help="for lines that name none")
@click.option("--dry-run", is_flag=True, help="say what would be done, and change nothing")
@click.option(
    "--links", "links_file", type=click.Path(), help="write name,link of new accounts to this file"
)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def import_command(
    terminal: Terminal,
    file: str,
    group: str,
    dry_run: bool,
    links_file: str | None,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Bring a class to the hub: accounts with links that set a password, and a group.

    The first line of CSV names the columns: name, and group if need be. What is there stays as it
    is, so that it can be done again; a wrong line is told, and the others are done.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        target = None if links_file is None or dry_run else open(links_file, "x", encoding="utf-8")  # noqa: SIM115
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(str(error)) from None
    body = {"csv": text, "group": group, "dryRun": dry_run}
    try:
        told = HubAPI.of(hub, token_file).ask("POST", "users/import", body=body)
    except BaseException:
        if target is not None:
            target.close()
            Path(target.name).unlink()
        raise
    if target is not None:
        with target:
            Path(target.name).chmod(0o600)
            target.write(_links(told["lines"]))
    if form != "table":
        terminal.emit(document(told, form))
    else:
        _tell(terminal, told, links=target is None)
    if told["wrong"]:
        terminal.exit_code = 1


def _links(lines: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["name", "link"])
    writer.writerows(
        [spreadsheet_cell(line["name"]), line["link"]] for line in lines if line["link"]
    )
    return out.getvalue()


def _tell(terminal: Terminal, told: dict[str, Any], *, links: bool) -> None:
    for line in told["lines"]:
        where = _("line {number}").format(number=line["line"])
        if not line["ok"]:
            text = _("{label}: {value}").format(label=where, value=clean(line["detail"]))
            terminal.note(text)
            continue
        what = ", ".join(line["steps"]) or _("nothing to do")
        link = f" {line['link']}" if line["link"] and links else ""
        terminal.emit(clean(f"{line['name']}: {what}") + link)
    text = _("{count} of {all} lines were imported; {wrong} wrong")
    if told["dryRun"]:
        text = _("{count} of {all} lines would be imported; {wrong} wrong")
    counts = {"count": told["changed"], "all": len(told["lines"]), "wrong": told["wrong"]}
    terminal.say(text.format(**counts))


@click.group("servers", cls=Group)
def servers_command() -> None:
    """Start, stop or delete notebook servers of users."""


def _server_command(what: str, text: str) -> click.Command:
    @click.argument("users", metavar="USER...", nargs=-1, required=True)
    @click.option("--server", default="", help="the one of this name [the one that all have]")
    @YES
    @grammar.output_option(FORMS)
    @hub_options
    @click.pass_obj
    def command(
        terminal: Terminal,
        users: tuple[str, ...],
        server: str,
        yes: bool,
        form: str,
        hub: str | None,
        token_file: str | None,
    ) -> None:
        api = HubAPI.of(hub, token_file)
        action = _("{what} the server of {names}").format(what=what, names=", ".join(users))
        if what != "start" and not terminal.confirm(action, yes, command=f"admin servers {what}"):
            terminal.note(_("nothing was changed"))
            return
        body = {"users": list(users), "do": what, "server": server}
        told = api.ask("POST", "users/servers", body=body)
        if form != "table":
            terminal.emit(document(told, form))
        for one in told["results"]:
            if not one["ok"]:
                terminal.exit_code = 1
                value = {"label": one["user"], "value": clean(one["detail"])}
                terminal.note(_("{label}: {value}").format(**value))
            elif form == "table":
                terminal.say(_("{user}: asked to {what}").format(user=one["user"], what=what))

    command.__doc__ = text
    return click.command(what, cls=Command)(command)


for _what, _text in (
    ("start", "Begin to start the servers of users."),
    ("stop", "Stop the servers of users; their clusters go on."),
    ("delete", "Stop and forget a server that has a name (--server)."),
):
    servers_command.add_command(_server_command(_what, _text))

users_command.add_command(archive_command)
users_command.add_command(archives_command)
users_command.add_command(delete_command)
