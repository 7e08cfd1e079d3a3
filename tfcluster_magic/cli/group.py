"""The group that imports a verb's module when the verb is used, and says which verb was meant."""

from __future__ import annotations

import difflib
import importlib

import click

VERBS: dict[str, str] = {
    "launch": "launch",
    "list": "runs",
    "status": "runs",
    "logs": "logs",
    "stop": "ending",
    "delete": "ending",
    "rerun": "launch",
    "connect": "reach",
    "tensorboard": "reach",
    "render": "render",
    "options": "options",
    "completion": "completion",
}
"""Each verb and the module of this package that holds it, in the order of `--help`."""


class LazyGroup(click.Group):
    """A group whose commands are the rows of `VERBS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs, in the order in which people need them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's command, its module imported now."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f".{VERBS[cmd_name]}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

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
