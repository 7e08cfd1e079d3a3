"""`admin`: what the hub's administrators do with everyone's clusters, by the console's API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from ..errors import TFClusterError, UsageError
from ..i18n import _
from ..models import Phase
from ..output.documents import to_yaml
from ..output.text import age, clean, clock, table
from ..quantity import format_bytes
from . import grammar
from .ending import YES
from .hub_api import HubAPI
from .terminal import Terminal
from .wording import Command, paragraphs

F = TypeVar("F", bound=Callable[..., Any])
FORMS = ("table", "json", "yaml")


class Group(Command, click.Group):
    """A group whose help is in the person's language."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Each with the first paragraph of its help."""
        helps = ((name, next(paragraphs(one.help or ""))[0]) for name, one in self.commands.items())
        with formatter.section("Verbs"):
            formatter.write_dl(list(helps))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order in which they stand here."""
        return list(self.commands)


def _hub(command: F) -> F:
    """`--hub` and `--token-file`: which console, and as whom."""
    options = (
        click.option(
            "--hub", metavar="URL", help="where the hub is [TFCLUSTER_HUB_URL, else here]"
        ),
        click.option(
            "--token-file",
            type=click.Path(),
            help="file with a token of the hub [the variable TFCLUSTER_HUB_TOKEN]",
        ),
    )
    for option in options:
        command = option(command)
    return command


def _complete_runs(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's signature
    incomplete: str,
) -> list[CompletionItem]:
    """OWNER/RUN of what is active; none when the hub does not answer."""
    try:
        hub = HubAPI.of(ctx.params.get("hub"), ctx.params.get("token_file"))
        rows = hub.ask("GET", "clusters", {"limit": 1000})["items"]
    except TFClusterError:
        return []
    names = {f"{row['owner']}/{row['name']}": row["phase"] for row in rows if row["active"]}
    return [CompletionItem(n, help=p) for n, p in names.items() if n.startswith(incomplete)]


@click.group("admin", cls=Group)
def admin_command() -> None:
    """For administrators of a hub: clusters of everyone, leaks, the audit log.

    It needs a token of an administrator, made on the hub's page /hub/token with the scope
    access:services!service=admin, in TFCLUSTER_HUB_TOKEN or a file.
    """


@admin_command.command("clusters", cls=Command)
@click.option("--filter", "text", help="only where owner, name, reason or message has this")
@click.option("--owner", help="only of this user")
@click.option(
    "--phase",
    type=click.Choice([p.value for p in Phase]),
    multiple=True,
    help="only runs in this phase; repeatable",
)
@click.option("--reason", help="only with this reason, such as OOMKilled")
@click.option("--sort", help="by this column, -COLUMN for the other way round [age]")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="at most so many [100]")
@click.option("--offset", type=click.IntRange(0), default=0, help="leave out so many before")
@grammar.output_option(FORMS)
@_hub
@click.pass_obj
def clusters_command(
    terminal: Terminal, /, form: str, hub: str | None, token_file: str | None, **words: Any
) -> None:
    """List the clusters of everyone."""
    words["q"] = words.pop("text")
    asked = {key: value for key, value in words.items() if value not in (None, ())}
    told = HubAPI.of(hub, token_file).ask("GET", "clusters", asked)
    if form != "table":
        terminal.emit(_document(told, form))
    elif told["items"]:
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
        rows = [_row(terminal, row) for row in told["items"]]
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("No cluster fits.") if told["all"] else _("There are no clusters."))
    if (more := told["total"] - len(told["items"])) and form == "table":
        terminal.note(_("{count} more; see --limit and --offset").format(count=more))
    _note_missed(terminal, told)


def _row(terminal: Terminal, row: dict[str, Any]) -> tuple[str, ...]:
    return (
        clean(row["owner"]),
        clean(row["name"]),
        terminal.paint.state(Phase(row["phase"])),
        age(time.time() - row["createdAt"]),
        f"{row['cpu']:g}" if row["cpu"] else "-",
        format_bytes(row["memory"]) if row["memory"] else "-",
        str(row["gpu"] or "-"),
        clean(f"{row['reason']}: {row['message']}"),
    )


@admin_command.command("stop", cls=Command)
@click.argument(
    "runs", metavar="OWNER/RUN...", nargs=-1, required=True, shell_complete=_complete_runs
)
@click.option("--reason", required=True, help="why; each owner reads it")
@YES
@grammar.output_option(FORMS)
@_hub
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
    """Stop clusters of anybody, with a reason that each owner reads."""
    meant = [{"owner": owner, "name": name} for owner, name in map(_owned, runs)]
    api = HubAPI.of(hub, token_file)
    deed = _("stop {names}").format(names=", ".join(runs))
    if not terminal.confirm(deed, yes, command="admin stop"):
        terminal.note(_("nothing was stopped"))
        return
    told = api.ask("POST", "clusters/stop", body={"runs": meant, "reason": reason})
    if form != "table":
        terminal.emit(_document(told, form))
    for one in told["results"]:
        name = f"{one['owner']}/{one['name']}"
        if not one["ok"]:
            terminal.exit_code = 1
            terminal.note(_("{label}: {value}").format(label=name, value=clean(one["detail"])))
        elif form == "table":
            terminal.say(_("{name} is being stopped").format(name=name))


def _owned(run: str) -> tuple[str, str]:
    owner, slash, name = run.partition("/")
    if not (owner and slash and name):
        text = _("{run} does not say whose it is: write OWNER/RUN, such as ada/digits-2")
        raise UsageError(text.format(run=run))
    return owner, name


@admin_command.command("logs", cls=Command)
@click.argument("owner", metavar="OWNER")
@click.argument("run", metavar="RUN")
@click.argument("task", metavar="TASK")
@click.option("--lines", type=click.IntRange(1, 1000), default=100, help="the last ones [100]")
@_hub
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
    """Show the last lines of a task of anybody; each look is in the audit log."""
    path = f"clusters/{quote(owner, safe='')}/{quote(run, safe='')}/logs"
    told = HubAPI.of(hub, token_file).ask("GET", path, {"task": task, "lines": lines})
    for line in told["lines"]:
        terminal.emit(clean(line))


@admin_command.command("leaks", cls=Command)
@click.option("--remove", metavar="OWNER/ID", help="remove this one")
@YES
@grammar.output_option(FORMS)
@_hub
@click.pass_obj
def leaks_command(
    terminal: Terminal,
    remove: str | None,
    yes: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """List what no cluster owns any more, or remove one of it."""
    api = HubAPI.of(hub, token_file)
    if remove is not None:
        owner, name = _owned(remove)
        deed = _("remove {name}").format(name=remove)
        if terminal.confirm(deed, yes, command=f"admin leaks --remove {remove}"):
            api.ask("DELETE", "leaks", body={"owner": owner, "id": name})
            terminal.say(_("{name} is removed").format(name=remove))
        return
    told = api.ask("GET", "leaks")
    if form != "table":
        terminal.emit(_document(told, form))
    elif told["items"]:
        rows = [(f"{one['owner']}/{one['id']}", clean(one["what"])) for one in told["items"]]
        terminal.emit(table((_("LEAK"), _("MESSAGE")), rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("There are no leaks."))
    _note_missed(terminal, told)


@admin_command.command("audit", cls=Command)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="at most so many [100]")
@click.option("--export", is_flag=True, help="the whole log as it is, JSON lines, oldest first")
@grammar.output_option(FORMS)
@_hub
@click.pass_obj
def audit_command(
    terminal: Terminal,
    limit: int,
    export: bool,
    form: str,
    hub: str | None,
    token_file: str | None,
) -> None:
    """Show who changed what, and who looked into whose log, newest first."""
    api = HubAPI.of(hub, token_file)
    if export:
        terminal.emit(api.raw("GET", "audit/export").decode().rstrip("\n"))
        return
    told = api.ask("GET", "audit", {"limit": limit})
    if form != "table":
        terminal.emit(_document(told, form))
        return
    head = (_("WHEN"), _("WHO"), _("WHAT"), _("WHOSE"), _("WHICH"), _("RESULT"), _("REASON"))
    rows = [
        (
            clock(one["at"], seconds=True),
            *(clean(one[key]) for key in ("who", "what", "owner", "target", "result", "reason")),
        )
        for one in told["items"]
    ]
    if rows:
        terminal.emit(table(head, rows, terminal.paint, terminal.columns))
    else:
        terminal.say(_("Nothing was done yet."))


def _document(told: Any, form: str) -> str:
    return json.dumps(told, indent=2, ensure_ascii=False) if form == "json" else to_yaml(told)


def _note_missed(terminal: Terminal, told: dict[str, Any]) -> None:
    for one in told.get("missed", ()):
        words = {"label": one["owner"], "value": clean(one["detail"])}
        terminal.note(_("{label}: {value}").format(**words))
