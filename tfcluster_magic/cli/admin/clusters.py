"""The commands `admin clusters`, `stop`, `logs` and `leaks`, for the clusters of all users."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from ...i18n import _
from ...output.text import age, one_line, table
from ...spec import Phase
from ...spec.quantities import format_bytes
from .. import grammar
from ..group import Command
from ..runs import yes_option
from ..terminal import Terminal
from .hub_api import (
    FORMS,
    HubAPI,
    complete_names,
    document,
    hub_options,
    note_unreadable,
    owner_and_run,
    page_options,
    show_page,
    tell_results,
)


def _complete_runs(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """Return OWNER/RUN of each active run; empty if the hub does not answer."""
    return complete_names(ctx, incomplete, "clusters", "phase", active=True)


@click.command("clusters", cls=Command)
@click.option(
    "--filter", "text", help="only rows whose owner, name, reason or message contains this text"
)
@click.option("--owner", help="only rows of this user")
@click.option(
    "--phase",
    type=click.Choice([p.value for p in Phase]),
    multiple=True,
    help="only runs in this phase; repeatable",
)
@click.option("--reason", help="only clusters with this reason, such as OOMKilled")
@page_options("age")
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def clusters_command(
    terminal: Terminal, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """List the clusters of everyone."""
    words["q"] = words.pop("text")
    asked = {key: value for key, value in words.items() if value not in (None, ())}
    told = HubAPI.of(hub, token_file).ask("GET", "clusters", asked)
    head = (
        _("OWNER"),
        _("NAME"),
        _("PHASE"),
        _("AGE"),
        "CPU",
        _("MEMORY"),
        "GPU",
        _("MESSAGE"),
    )
    none = _("No cluster matches.") if told["all"] else _("There are no clusters.")
    show_page(terminal, told, form, head, lambda row: _row(terminal, row), none)


def _row(terminal: Terminal, row: dict[str, Any]) -> tuple[str, ...]:
    return (
        one_line(row["owner"]),
        one_line(row["name"]),
        terminal.paint.state(Phase(row["phase"])),
        age(time.time() - row["createdAt"]),
        f"{row['cpu']:g}" if row["cpu"] else "-",
        format_bytes(row["memory"]) if row["memory"] else "-",
        str(row["gpu"] or "-"),
        one_line(f"{row['reason']}: {row['message']}"),
    )


@click.command("stop", cls=Command)
@click.argument(
    "runs", metavar="OWNER/RUN...", nargs=-1, required=True, shell_complete=_complete_runs
)
@click.option("--reason", required=True, help="reason, shown to each owner")
@yes_option
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def stop_command(
    terminal: Terminal,
    runs: tuple[str, ...],
    reason: str,
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Stop any user's clusters, with a reason that each owner sees."""
    meant = [{"owner": owner, "name": name} for owner, name in map(owner_and_run, runs)]
    api = HubAPI.of(hub, token_file)
    action = _("stop {names}").format(names=", ".join(runs))
    if not terminal.confirm(action, yes):
        terminal.note(_("nothing was stopped"))
        return
    told = api.ask("POST", "clusters/stop", body={"runs": meant, "reason": reason})
    tell_results(terminal, told, form, _("{name} is being stopped"))


@click.command("logs", cls=Command)
@click.argument("owner", metavar="OWNER")
@click.argument("run", metavar="RUN")
@click.argument("task", metavar="TASK")
@click.option(
    "--lines", type=grammar.Whole(1, 1000), default=100, help="number of last lines [100]"
)
@hub_options
@click.pass_obj
def logs_command(
    terminal: Terminal,
    owner: str,
    run: str,
    task: str,
    lines: int,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Show the last lines of any user's task; each use is in the audit log."""
    path = f"clusters/{quote(owner, safe='')}/{quote(run, safe='')}/logs"
    told = HubAPI.of(hub, token_file).ask("GET", path, {"task": task, "lines": lines})
    for line in told["lines"]:
        terminal.emit(one_line(line))


@click.command("leaks", cls=Command)
@click.option("--remove", metavar="OWNER/ID", help="remove this leftover")
@yes_option
@grammar.output_option(FORMS)
@hub_options
@click.pass_obj
def leaks_command(
    terminal: Terminal,
    remove: str | None,
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """List leftovers that no cluster owns, or remove one."""
    api = HubAPI.of(hub, token_file)
    if remove is not None:
        owner, name = owner_and_run(remove)
        action = _("remove {name}").format(name=remove)
        if terminal.confirm(action, yes):
            api.ask("DELETE", "leaks", body={"owner": owner, "id": name})
            terminal.say(_("{name} is removed").format(name=remove))
        return
    told = api.ask("GET", "leaks")
    if form != "table":
        terminal.emit(document(told, form))
    elif told["items"]:
        rows = [(f"{one['owner']}/{one['id']}", one_line(one["what"])) for one in told["items"]]
        terminal.emit(table((_("LEAK"), _("MESSAGE")), rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("There are no leaks."))
    note_unreadable(terminal, told)
