"""The group that imports a verb's module when the verb is used, and says which verb was meant."""

from __future__ import annotations

import difflib
import importlib

import click

from ..i18n import _, mark
from .wording import Command

VERBS: dict[str, tuple[str, str]] = {
    "launch": ("tfcluster_magic.cli.launch", mark("start a cluster")),
    "list": ("tfcluster_magic.cli.runs", mark("the runs there are")),
    "status": (
        "tfcluster_magic.cli.runs",
        mark("how a run is doing, in one sentence and task by task"),
    ),
    "logs": ("tfcluster_magic.cli.logs", mark("what the tasks print")),
    "stop": ("tfcluster_magic.cli.ending", mark("end runs; their records and output stay")),
    "delete": ("tfcluster_magic.cli.ending", mark("remove records, and output when asked")),
    "rerun": ("tfcluster_magic.cli.launch", mark("launch the same snapshot again, or resume it")),
    "connect": ("tfcluster_magic.cli.reach", mark("how to use an in-graph cluster")),
    "tensorboard": ("tfcluster_magic.cli.reach", mark("open TensorBoard on a run or on all")),
    "render": ("tfcluster_magic.cli.render", mark("a run or a launch as documents, task by task")),
    "options": (
        "tfcluster_magic.cli.options",
        mark("what a launch can ask for, and what fits now"),
    ),
    "hours": (
        "tfcluster_magic.cli.hours",
        mark("CPU- and GPU-hours that runs have held, and what is left"),
    ),
    "admin": (
        "tfcluster_magic.cli.admin",
        mark("clusters of everyone, for administrators of a hub"),
    ),
    "completion": ("tfcluster_magic.cli.completion", mark("the completion script of a shell")),
}
"""Each verb, the module that holds its command, and its line in `--help`, in that order."""


class LazyGroup(Command, click.Group):
    """A group whose commands are the rows of `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs, in the order in which people need them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's command, its module imported now."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(VERBS[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The verbs with a line each, without importing their modules."""
        with formatter.section(mark("Verbs")):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one is refused with those that are close."""
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, VERBS, 1)
            if close:
                text = _("no such verb: {name}; did you mean {close}?")
            else:
                text = _("no such verb: {name}; the verbs are {verbs}")
            words = {"name": name, "close": "".join(close), "verbs": ", ".join(VERBS)}
            raise click.UsageError(text.format(**words), ctx)
        return super().resolve_command(ctx, args)
