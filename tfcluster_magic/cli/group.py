"""The group that imports a verb's module when the verb is used, and says which verb was meant."""

from __future__ import annotations

import difflib
import importlib

import click

VERBS: dict[str, tuple[str, str]] = {
    "launch": ("launch", "start a cluster"),
    "list": ("runs", "the runs there are"),
    "status": ("runs", "how a run is doing, in one sentence and task by task"),
    "logs": ("logs", "what the tasks print"),
    "stop": ("ending", "end runs; their records and output stay"),
    "delete": ("ending", "remove records, and output when asked"),
    "rerun": ("launch", "launch the same snapshot again, or resume it"),
    "connect": ("reach", "how to use an in-graph cluster"),
    "tensorboard": ("reach", "open TensorBoard on a run or on all"),
    "render": ("render", "a run or a launch as documents, task by task"),
    "options": ("options", "what a launch can ask for, and what fits now"),
    "completion": ("completion", "the completion script of a shell"),
}
"""Each verb, the module of this package that holds it, and its line in `--help`, in that order."""


class LazyGroup(click.Group):
    """A group whose commands are the rows of `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs, in the order in which people need them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's command, its module imported now."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".{VERBS[cmd_name][0]}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The verbs with a line each, without importing their modules."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; an unknown one is refused with those that are close."""
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, VERBS, 1)
            hint = f"did you mean {close[0]}?" if close else f"the verbs are {', '.join(VERBS)}"
            raise click.UsageError(f"no such verb: {name}; {hint}", ctx)
        return super().resolve_command(ctx, args)
