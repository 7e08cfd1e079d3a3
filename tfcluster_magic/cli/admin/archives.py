"""`admin users archive`, `archives`, `delete-archives`: data of users at term's end."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from ...errors import Conflict, TFClusterError, UsageError
from ...i18n import _
from ...output.text import clean, clock, table
from ...spec.quantities import format_bytes
from .. import grammar
from ..ending import YES
from ..terminal import Terminal
from ..wording import Command
from .common import FORMS, document, hub_options
from .hub_api import HubAPI

EVERY = 1.0
"""Seconds between two looks at an archive that is being made."""


@click.command("archive", cls=Command)
@click.argument("user", metavar="USER")
@click.option("--to", "target", type=click.Path(), help="bring the archive to this new file, too")
@click.option("--reason", help="why; the user reads it [the term is over]")
@click.option("--remove", is_flag=True, help="remove user and account when all is packed")
@YES
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

    Server and clusters are ended, workspace and records packed with checksums and read again.
    """
    api = HubAPI.of(hub, token_file)
    action = _("archive {name}").format(name=user)
    if not terminal.confirm(action, yes, command=f"admin users archive {user}"):
        terminal.note(_("nothing was changed"))
        return
    if target is not None and os.path.lexists(target):
        raise UsageError(_("{file} is there already: name another").format(file=target))
    reason = words["reason"] or _("the term is over")
    body = {"user": user, "reason": reason, "remove": words["remove"]}
    told, said = api.ask("POST", "archives", body=body), ""
    while told["state"] == "packing":
        if told["detail"] and told["detail"] != said:
            said = told["detail"]
            terminal.note(_("waiting: {why}").format(why=clean(said)))
        time.sleep(EVERY)
        every = api.ask("GET", "archives")["items"]
        told = next((one for one in every if one["file"] == told["file"]), None)
        if told is None:
            raise TFClusterError(_("the console started again meanwhile: archive again"))
    if told["state"] != "done":
        raise Conflict(clean(told["detail"]))
    if target is not None:
        _bring(api, told, Path(target))
    if form != "table":
        terminal.emit(document(told, form))
        return
    text = _("{file}: {files} files, {size}, sha256 {sha256}")
    size = format_bytes(told["size"])
    words = {"file": target or told["file"], "files": told["files"], "sha256": told["sha256"]}
    terminal.say(text.format(size=size, **words))
    if told["missed"]:
        text = _("{count} could not be packed: MANIFEST.json in the archive names them")
        terminal.note(text.format(count=told["missed"]))
    if told["detail"]:
        raise Conflict(clean(told["detail"]))


def _bring(api: HubAPI, told: dict[str, Any], target: Path) -> None:
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
            raise TFClusterError(_("what arrived is not what was packed: try again"))
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
                clean(one["user"]),
                clock(one["at"], seconds=True),
                clean(one["detail"] or one["state"]),
                format_bytes(one["size"]),
                clean(one["file"]),
            )
            for one in told["items"]
        ]
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("There are no archives."))


@click.command("delete-archives", cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@YES
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def delete_command(
    terminal: Terminal,
    files: tuple[str, ...],
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Delete archives for good.

    FILE is as `archives` shows it. What users have is not touched.
    """
    api = HubAPI.of(hub, token_file)
    action = _("delete for good {names}").format(names=", ".join(files))
    if not terminal.confirm(action, yes, command="admin users delete-archives"):
        terminal.note(_("nothing was changed"))
        return
    for file in files:
        told = api.ask("DELETE", f"archives/{quote(file, safe='')}")
        if form != "table":
            terminal.emit(document(told, form))
        else:
            terminal.say(_("Deleted {file}.").format(file=clean(file)))
