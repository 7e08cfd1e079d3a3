"""What the verbs of `admin` share: groups of verbs, which hub and as whom, documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...errors import UsageError
from ...i18n import _
from ...output.documents import to_yaml
from ...output.text import clean
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
