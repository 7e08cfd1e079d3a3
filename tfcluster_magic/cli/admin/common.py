"""What the verbs of `admin` share: groups of verbs, which hub and as whom, documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ...errors import UsageError
from ...i18n import _
from ...output.documents import to_yaml
from ...output.text import clean, table
from ..terminal import Terminal
from ..wording import Command, paragraphs

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
        """In the order in which they were added."""
        return list(self.commands)


def hub_options(command: F) -> F:
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


def page_options(first: str) -> Callable[[F], F]:
    """`--sort`, `--limit` and `--offset` of a table that is sorted by `first` unless asked."""

    def add(command: F) -> F:
        for option in (
            click.option("--offset", type=click.IntRange(0), default=0, help=_OFFSET),
            click.option("--limit", type=click.IntRange(1, 1000), default=100, help=_LIMIT),
            click.option("--sort", help=f"{_SORT} [{first}]"),
        ):
            command = option(command)
        return command

    return add


_SORT = "by this column, -COLUMN for the other way round"
_LIMIT = "at most so many [100]"
_OFFSET = "leave out so many before"


def show(
    terminal: Terminal,
    told: dict[str, Any],
    form: str,
    head: Sequence[str],
    row: Callable[[dict[str, Any]], Sequence[str]],
    none: str,
) -> None:
    """Print one page of a table of the console, or say `none`; and what is not on it."""
    if form != "table":
        terminal.emit(document(told, form))
    elif told["items"]:
        rows = [tuple(row(each)) for each in told["items"]]
        terminal.emit(table(tuple(head), rows, terminal.paint, terminal.columns))
    else:
        terminal.say(none)
    if (more := told["total"] - len(told["items"])) and form == "table":
        terminal.note(_("{count} more; see --limit and --offset").format(count=more))
    note_missed(terminal, told)


def owned(run: str) -> tuple[str, str]:
    """The two parts of OWNER/RUN. Raises UsageError."""
    owner, slash, name = run.partition("/")
    if not (owner and slash and name):
        text = _("{run} does not say whose it is: write OWNER/RUN, such as ada/digits-2")
        raise UsageError(text.format(run=run))
    return owner, name


def document(told: Any, form: str) -> str:
    """What the console told, as JSON or YAML."""
    return json.dumps(told, indent=2, ensure_ascii=False) if form == "json" else to_yaml(told)


def note_missed(terminal: Terminal, told: dict[str, Any]) -> None:
    """Say what could not be read."""
    for one in told.get("missed", ()):
        words = {"label": one["owner"], "value": clean(one["detail"])}
        terminal.note(_("{label}: {value}").format(**words))
