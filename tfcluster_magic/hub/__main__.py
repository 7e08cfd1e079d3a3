"""`python -m tfcluster_magic.hub`: what an administrator does to the hub from a shell.

It promises one command for each row of `COMMANDS`, each imported only when it is asked for, and
`secrets`; an error is one sentence with exit code 1.
"""

from __future__ import annotations

import importlib
import sys

import click

from ..errors import TFClusterError
from .secrets import secrets

COMMANDS = {
    "accounts": ("tfcluster_magic.hub.auth.commands", "accounts"),
    "backup": ("tfcluster_magic.hub.backups", "backup"),
    "restore": ("tfcluster_magic.hub.backups", "restore"),
}
"""The word a person types, and where its click command is, which is imported when it is used."""


class Commands(click.Group):
    """The commands of `COMMANDS`, found by name, and `secrets`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The words, in the order of the alphabet."""
        return sorted([*COMMANDS, *super().list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a word, None for another."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, name = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)
        return found


@click.command(cls=Commands)
def main() -> None:
    """Administer the hub."""


main.add_command(secrets)


if __name__ == "__main__":
    try:
        main(prog_name="python -m tfcluster_magic.hub")
    except TFClusterError as problem:
        sys.exit(str(problem))
