"""The commands `admin users` and `admin servers`: list, import and archive users, run servers."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from ...errors import Conflict, TFClusterError, UsageError
from ...i18n import _, ngettext
from ...output.text import age, clock, one_line, spreadsheet_cell, table, zoned
from ...spec.quantities import format_bytes
from .. import grammar
from ..group import Command
from ..runs import yes_option
from ..terminal import Terminal
from .hub_api import FORMS, AdminGroup, HubAPI, document, hub_options, page_options, show_page

_WITHOUT_NOTEBOOK = "invite users even if they cannot get a notebook"
EVERY = 1.0
"""Seconds between two polls while an archive is packed."""


@click.command("archive", cls=Command)
@click.argument("user", metavar="USER")
@click.option(
    "--to", "target", type=click.Path(), help="also download the archive to this new file"
)
@click.option("--reason", help="reason, shown to the user [the term is over]")
@click.option(
    "--remove",
    is_flag=True,
    help="remove the user and their account from the hub once everything is packed",
)
@yes_option
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def archive_command(
    terminal: Terminal,
    /,
    user: str,
    target: str | None,
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
    **words: Any,
) -> None:
    """End what USER runs, and pack their data into the hub's archives.

    The user's server and clusters are stopped. Workspace and records are packed with checksums and
    verified.
    """
    api = HubAPI.of(hub, token_file)
    action = _("archive {name}").format(name=user)
    if not terminal.confirm(action, yes):
        terminal.note(_("nothing was changed"))
        return
    if target is not None and os.path.lexists(target):
        raise UsageError(_("{file} already exists: name another file").format(file=target))
    reason = words["reason"] or _("the term is over")
    body = {"user": user, "reason": reason, "remove": words["remove"]}
    told, said = api.ask("POST", "archives", body=body), ""
    while told["state"] == "packing":
        if told["detail"] and told["detail"] != said:
            said = told["detail"]
            terminal.note(_("waiting: {why}").format(why=one_line(said)))
        time.sleep(EVERY)
        every = api.ask("GET", "archives")["items"]
        told = next((one for one in every if one["file"] == told["file"]), None)
        if told is None:
            raise TFClusterError(
                _("the console restarted before the archive was done: archive again")
            )
    if told["state"] != "done":
        raise Conflict(one_line(told["detail"]))
    if target is not None:
        _download(api, told, Path(target))
    if form != "table":
        terminal.emit(document(told, form))
        return
    text = _("{file}: {files} files, {size}, sha256 {sha256}")
    size = format_bytes(told["size"])
    words = {"file": target or told["file"], "files": told["files"], "sha256": told["sha256"]}
    terminal.say(text.format(size=size, **words))
    if told["missed"]:
        text = _("{count} files could not be packed: MANIFEST.json in the archive lists them")
        terminal.note(text.format(count=told["missed"]))
    if told["detail"]:
        raise Conflict(one_line(told["detail"]))


def _download(api: HubAPI, told: dict[str, Any], target: Path) -> None:
    digest = hashlib.sha256()
    try:
        fd = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise UsageError(str(error)) from None
    try:
        with os.fdopen(fd, "wb") as out:
            for block in api.blocks("GET", f"archives/{quote(told['file'], safe='')}"):
                digest.update(block)
                out.write(block)
        if digest.hexdigest() != told["sha256"]:
            raise TFClusterError(_("the download is damaged (wrong checksum): try again"))
    except BaseException as error:
        target.unlink()
        if isinstance(error, OSError):
            raise UsageError(str(error)) from None
        raise


@click.command("archives", cls=Command)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def archives_command(
    terminal: Terminal, form: str, hub: str | None, token_file: str | None
) -> None:
    """List the archives of users' data."""
    told = HubAPI.of(hub, token_file).ask("GET", "archives")
    if form != "table":
        terminal.emit(document(told, form))
    elif told["items"]:
        head = (_("USER"), _("WHEN"), _("STATE"), _("SIZE"), _("FILE"))
        rows = [
            (
                one_line(one["user"]),
                clock(one["at"], seconds=True),
                one_line(one["detail"] or one["state"]),
                format_bytes(one["size"]),
                one_line(one["file"]),
            )
            for one in told["items"]
        ]
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("There are no archives."))


@click.command("delete-archives", cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@yes_option
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def delete_archives_command(
    terminal: Terminal,
    files: tuple[str, ...],
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Delete archives permanently.

    FILE is a name that `archives` shows. The users' own data is not touched.
    """
    api = HubAPI.of(hub, token_file)
    action = _("permanently delete {names}").format(names=", ".join(files))
    if not terminal.confirm(action, yes):
        terminal.note(_("nothing was changed"))
        return
    for file in files:
        told = api.ask("DELETE", f"archives/{quote(file, safe='')}")
        if form != "table":
            terminal.emit(document(told, form))
        else:
            terminal.say(_("Deleted {file}.").format(file=one_line(file)))


# `admin users` and `admin servers`


@click.group("users", cls=AdminGroup, invoke_without_command=True)
@click.option("--filter", "text", help="only rows whose name, group or account contains this text")
@click.option("--group", help="only users of this group")
@click.option(
    "--server",
    type=click.Choice(["running", "starting", "stopping", "stopped"]),
    multiple=True,
    help="only users whose server is in this state; repeatable",
)
@page_options("name")
@grammar.output_option(FORMS)
@hub_options
@click.pass_context
def users_command(
    context: click.Context, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """List all users: groups, last seen, server, and resources in use and allowed."""
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
    none = _("No user matches.") if told["all"] else _("There are no users.")
    show_page(terminal, told, form, head, _user_row, none)


def _user_row(row: dict[str, Any]) -> tuple[str, ...]:
    name = one_line(row["name"]) + (" *" if row["admin"] else "")
    groups = [f"[{group}]" if group == row["group"] else group for group in row["groups"]]
    used, allowed, override = row["used"], row["allowed"], row["override"]
    shown = {
        key: _used_of_allowed(used[key], allowed[key], show)
        for key, show in (
            ("cpu", "{:g}".format),
            ("memory", format_bytes),
            ("gpu", "{:g}".format),
            ("storage", format_bytes),
        )
    }
    until = ""
    if override:
        reason = one_line(override["reason"])
        until = _("until {time}: {reason}").format(time=zoned(override["until"]), reason=reason)
    return (
        name,
        one_line(", ".join(groups)) or "-",
        age(time.time() - row["lastSeen"]) if row["lastSeen"] else "-",
        row["server"],
        str(row["clusters"]),
        *shown.values(),
        until,
    )


def _used_of_allowed(used: float | None, allowed: float | None, show: Any) -> str:
    text = "-" if used is None else show(used)
    return text if allowed is None else f"{text}/{show(allowed)}"


@users_command.command("import", cls=Command)
@click.argument("file", metavar="CSV", type=click.Path())
@click.option("--group", default="", help="group for lines without one")
@click.option("--dry-run", is_flag=True, help="show what would be imported; change nothing")
@click.option(
    "--links", "links_file", type=click.Path(), help="write name,link of new accounts to this file"
)
@click.option("--without-notebook", is_flag=True, help=_WITHOUT_NOTEBOOK)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def import_command(
    terminal: Terminal,
    /,
    file: str,
    links_file: str | None,
    form: str,
    hub: str | None,
    token_file: str | None,
    **words: Any,
) -> None:
    """Import a class of students: accounts, links for setting a password, and a group.

    The first line of CSV has the column names: name, and optionally group. Existing accounts are
    not changed, so the import can be repeated. A wrong line is reported, and the others are
    imported.
    """
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        wanted = links_file if not words["dry_run"] else None
        target = None if wanted is None else open(wanted, "x", encoding="utf-8")  # noqa: SIM115
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(str(error)) from None
    body = {
        "csv": text,
        "group": words["group"],
        "dryRun": words["dry_run"],
        "withoutNotebook": words["without_notebook"],
    }
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
        _show_import(terminal, told, links=target is None)
    if told["wrong"]:
        terminal.exit_code = 1


@users_command.command("invite", cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--reset", is_flag=True, help="also reset existing passwords")
@click.option("--without-notebook", is_flag=True, help=_WITHOUT_NOTEBOOK)
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def invite_command(
    terminal: Terminal,
    /,
    names: tuple[str, ...],
    form: str,
    hub: str | None,
    token_file: str | None,
    **words: Any,
) -> None:
    """Make a one-time link for setting a password, for each NAME.

    A NAME without an account gets one. A NAME that has a password keeps it and gets no link. With
    --reset the password stops working, all sessions and tokens end at once, and the link sets
    another.
    """
    body = {
        "names": list(names),
        "reset": words["reset"],
        "withoutNotebook": words["without_notebook"],
    }
    told = HubAPI.of(hub, token_file).ask("POST", "users/links", body=body)
    if form != "table":
        terminal.emit(document(told, form))
        return
    for name, link in told["links"].items():
        terminal.emit(f"{one_line(name)} {link}")
    text = _("Each link works once, within {hours} hours, and is shown only now.")
    terminal.note(text.format(hours=told["hours"]))
    if alone := told["leftAlone"]:
        text = ngettext(
            "{names} already has a password. To replace it, add `--reset`.",
            "{names} already have passwords. To replace them, add `--reset`.",
            len(alone),
        )
        terminal.note(text.format(names=one_line(", ".join(alone))))


def _links(lines: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["name", "link"])
    writer.writerows(
        [spreadsheet_cell(line["name"]), line["link"]] for line in lines if line["link"]
    )
    return out.getvalue()


def _show_import(terminal: Terminal, told: dict[str, Any], *, links: bool) -> None:
    for line in told["lines"]:
        where = _("line {number}").format(number=line["line"])
        if not line["ok"]:
            text = _("{label}: {value}").format(label=where, value=one_line(line["detail"]))
            terminal.note(text)
            continue
        what = ", ".join(line["steps"]) or _("nothing to do")
        link = f" {line['link']}" if line["link"] and links else ""
        terminal.emit(one_line(f"{line['name']}: {what}") + link)
    text = _("{count} of {all} lines were imported; {wrong} wrong")
    if told["dryRun"]:
        text = _("{count} of {all} lines would be imported; {wrong} wrong")
    counts = {"count": told["changed"], "all": len(told["lines"]), "wrong": told["wrong"]}
    terminal.say(text.format(**counts))


@click.group("servers", cls=AdminGroup)
def servers_command() -> None:
    """Start, stop or delete notebook servers of users."""


def _server_command(what: str, text: str) -> click.Command:
    @click.argument("users", metavar="USER...", nargs=-1, required=True)
    @click.option("--server", default="", help="name of the server [the default server]")
    @yes_option
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
        if what != "start" and not terminal.confirm(action, yes):
            terminal.note(_("nothing was changed"))
            return
        body = {"users": list(users), "do": what, "server": server}
        told = api.ask("POST", "users/servers", body=body)
        if form != "table":
            terminal.emit(document(told, form))
        for one in told["results"]:
            if not one["ok"]:
                terminal.exit_code = 1
                value = {"label": one["user"], "value": one_line(one["detail"])}
                terminal.note(_("{label}: {value}").format(**value))
            elif form == "table":
                terminal.say(_("{user}: {what} requested").format(user=one["user"], what=what))

    command.__doc__ = text
    return click.command(what, cls=Command)(command)


for _what, _text in (
    ("start", "Start the servers of users, without waiting."),
    ("stop", "Stop the servers of users; their clusters continue."),
    ("delete", "Stop and remove a named server (--server)."),
):
    servers_command.add_command(_server_command(_what, _text))

users_command.add_command(archive_command)
users_command.add_command(archives_command)
users_command.add_command(delete_archives_command)
